"""Hand jobs in and take them out again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from tests.contract.machine.choices import BATCH, COUNT, KEYS, LOSE, PICK, TERMS
from tests.contract.machine.expect import MAX_STALLS, Expected, Hold, Q, ending_kind
from tests.contract.machine.model import Model
from toril.event import EventKind
from toril.job import FINISHED, Dedup, JobSpec, State, Terms
from toril.storage.protocol import EndingKind, Feature, Receipt, Removal


class Producing(Model):
    """The steps of those who have work to give."""

    @initialize(n=st.integers(0, 5))
    def enqueue_the_first_jobs(self, n: int) -> None:
        """Begin with some work, so that few examples are idle."""
        self.enqueue_plain_jobs(n)

    @rule(terms=TERMS, reply=st.booleans(), lose=LOSE)
    def enqueue_a_new_job(self, terms: Terms, reply: bool, lose: bool) -> None:
        """Hand in a job of a new id."""
        self._hand_in(f"j{next(self.numbers)}", terms, reply, False, lose)

    @rule(key=KEYS, lose=LOSE)
    def enqueue_under_a_key(self, key: Dedup, lose: bool) -> None:
        """Hand in a job that is otherwise plain."""
        terms = Terms(attempts=2, dedup=key, result_ttl_ms=2_500)
        self._hand_in(f"j{next(self.numbers)}", terms, True, False, lose)

    @rule(n=COUNT)
    def enqueue_plain_jobs(self, n: int) -> None:
        """Hand in some jobs without options, in one call."""
        specs = [self._spec(f"j{next(self.numbers)}", Terms(attempts=2), True) for _ in range(n)]
        for spec, receipt in zip(specs, self._enqueue(specs, False), strict=True):
            self._received(spec, receipt)

    @rule(batch=BATCH)
    def enqueue_all_kinds(self, batch: list[tuple[int | None, Terms, bool]]) -> None:
        """Hand in new and known ids in one call, with keys that some of them share.

        No reply is lost: who replaces whom is another question the second time. And nobody waits,
        which is for jobs handed in alone.
        """
        ids = [f"j{next(self.numbers)}", *self.ids]
        specs = [
            self._allowed(
                f"j{next(self.numbers)}" if pick is None else ids[pick % len(ids)],
                terms,
                False,
                requeue,
            )
            for pick, terms, requeue in batch
        ]
        for spec, receipt in zip(specs, self._enqueue(specs, False), strict=True):
            self._received(spec, receipt)

    @precondition(lambda self: self.ids)
    @rule(pick=PICK, terms=TERMS, reply=st.booleans(), requeue=st.booleans(), lose=LOSE)
    def enqueue_a_known_id(
        self, pick: int, terms: Terms, reply: bool, requeue: bool, lose: bool
    ) -> None:
        """Hand in a job of an id that was there before."""
        ids = list(self.ids)
        failed = [i for i in ids if i in self.jobs and self.jobs[i].state is State.FAILED]
        chosen = failed if requeue and failed else ids
        self._hand_in(chosen[pick % len(chosen)], terms, reply, requeue, lose)

    @precondition(lambda self: self.specs)
    @rule(pick=PICK)
    def repeat_an_enqueue(self, pick: int) -> None:
        """Hand the very same thing in again, as after a reply that was lost long ago."""
        spec = self.specs[pick % len(self.specs)]
        (receipt,) = self._enqueue([spec], False)
        self._received(spec, receipt)

    def _spec(self, job_id: str, terms: Terms, reply: bool) -> JobSpec:
        n = next(self.numbers)
        return JobSpec(
            id=job_id, payload=f'{{"n":{n}}}'.encode(), terms=terms, origin=f"o{n}", reply=reply
        )

    def _allowed(self, job_id: str, terms: Terms, reply: bool, requeue: bool) -> JobSpec:
        if Feature.LIFO not in self.storage.features:
            terms = replace(terms, lifo=False)
        return replace(self._spec(job_id, terms, reply), requeue_failed=requeue)

    def _hand_in(self, job_id: str, terms: Terms, reply: bool, requeue: bool, lose: bool) -> None:
        spec = self._allowed(job_id, terms, reply, requeue)
        (receipt,) = self._enqueue([spec], lose)
        self._received(spec, receipt)

    def _enqueue(self, specs: list[JobSpec], lose: bool) -> Sequence[Receipt]:
        for spec in specs:
            self.ids[spec.id] = None
        self.specs += specs
        return self.run(lambda: self.storage.enqueue(Q, specs), "enqueue" if lose else "")

    def _received(self, spec: JobSpec, receipt: Receipt) -> None:
        there = self.jobs.get(spec.id)
        if there is not None and there.spec.origin == spec.origin:
            assert receipt.created, f"{receipt}: this hand-in had made the job"
            assert receipt.id == spec.id
            assert there.fits(receipt.state, self.now), receipt
            return
        if there is not None and not (there.state is State.FAILED and spec.requeue_failed):
            assert (receipt.id, receipt.created) == (spec.id, False), receipt
            assert there.fits(receipt.state, self.now), receipt
            there.reply |= spec.reply
            return
        if self._refused_by_key(spec, receipt):
            return
        assert (receipt.id, receipt.created) == (spec.id, True), receipt
        if there is not None:
            self.seen["requeued"] += 1
            self._drop(there)
        self._create(spec)
        assert self.jobs[spec.id].fits(receipt.state, self.now), receipt

    def _refused_by_key(self, spec: JobSpec, receipt: Receipt) -> bool:
        hold = self.keys.get(spec.terms.dedup.key) if spec.terms.dedup is not None else None
        if hold is None or (hold.loose and receipt.created):
            return False
        holder = self.jobs.get(hold.job_id)
        if holder is not None and self._replaced(holder, spec, receipt):
            self.seen["replaced"] += 1
            self._tell(EventKind.REMOVED, holder.id)
            self._bury(holder, EndingKind.GONE)
            return False
        self.seen["deduplicated"] += 1
        assert (receipt.id, receipt.created) == (hold.job_id, False), receipt
        assert receipt.deduplicated
        if holder is None:
            assert receipt.state is None
        else:
            fits = holder.fits(receipt.state, self.now)
            assert fits or (self.looks_late and receipt.state is None), receipt
            holder.reply |= spec.reply
        return True

    def _replaced(self, holder: Expected, spec: JobSpec, receipt: Receipt) -> bool:
        dedup = spec.terms.dedup
        if dedup is None or not dedup.replace or holder.state is not State.DELAYED:
            return False
        return receipt.created or holder.due > self.now  # one that is due may wait already

    def _create(self, spec: JobSpec) -> None:
        job = Expected(spec=spec, born=self.now, state=State.WAITING, reply=spec.reply)
        job.allowed = spec.terms.attempts + MAX_STALLS
        self.added += 1
        self.jobs[spec.id] = job
        self.ghosts.pop(spec.id, None)
        dedup = spec.terms.dedup
        if dedup is not None:
            until = None if dedup.ttl_ms is None else self.now + dedup.ttl_ms
            self.keys[dedup.key] = Hold(spec.id, until)
        self._tell(EventKind.ADDED, spec.id)
        self._line_up(job, spec.terms.delay_ms)

    @precondition(lambda self: self.ids)
    @rule(pick=PICK, lose=LOSE)
    def remove(self, pick: int, lose: bool) -> None:
        """Remove a job in whatever state it is."""
        job_id = list(self.ids)[pick % len(self.ids)]
        verb = "remove" if lose else ""
        (answer,) = self.run(lambda: self.storage.remove(Q, [job_id]), verb)
        job = self.jobs.get(job_id)
        if job is None:
            assert answer is Removal.NOT_FOUND
        elif job.state is State.ACTIVE:
            assert answer is Removal.ACTIVE
        else:
            again = {Removal.NOT_FOUND} if lose else set()
            assert answer in {Removal.REMOVED, *again}
            self._tell(EventKind.REMOVED, job_id)
            self._bury(job, EndingKind.GONE)

    @invariant()
    def endings_are_as_expected(self) -> None:
        """Ask how everything ended, also what never was."""
        asked = [*self.ids, "nobody"]
        endings = self.run(lambda: self.storage.finished(Q, asked, 0))
        by_id = {ending.id: ending for ending in endings}
        assert list(by_id) == [i for i in asked if i in by_id], "not in the order asked"
        for job_id in asked:
            job, ghost = self.jobs.get(job_id), self.ghosts.get(job_id)
            ending = by_id.get(job_id)
            if job is not None and job.state not in FINISHED:
                assert ending is None, f"{job} lives, but ended as {ending}"
                continue
            assert ending is not None, f"no ending of {job_id!r}"
            if job is not None:
                assert (ending.kind, ending.result) == (ending_kind(job), job.result)
            elif ghost is not None:
                assert (ending.kind, ending.result) == (ghost.kind, ghost.result)
