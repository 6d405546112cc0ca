"""Drive any storage by random steps and compare every answer with a simple expectation.

The expectation is one small record per job and a few dicts, written from the contract alone.
It holds invariants I1-I8 and I11-I13 (`docs/guarantees.md`) after every step. Subclass
`StorageMachine` with a `make_rig` of your storage to run the same steps over it.

No deadline is ever near when a step runs (see `_advance`), so a storage on a real clock fits
too: set `slack_ms` to the longest time an example may take between two moves of the clock.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import ClassVar, Final, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from toril.errors import StorageUnavailable
from toril.event import Cursor, Event, EventKind
from toril.job import FINISHED, Dedup, JobRecord, JobSpec, State, Terms
from toril.outcome import (
    CANCELLED,
    Answer,
    AnswerKind,
    Completed,
    Failed,
    Failure,
    Lease,
    Outcome,
    Postponed,
    Released,
    Retried,
)
from toril.storage.protocol import (
    Batch,
    Cancellation,
    Claim,
    Claimed,
    Counts,
    EndingKind,
    Feature,
    Notes,
    Receipt,
    Removal,
    Settlement,
    Storage,
)
from toril.testing.rig import Rig

T = TypeVar("T")

Q: Final = "machine"
LEASE_MS: Final = 4_000
REAP_MS: Final = 1_000
MAX_STALLS: Final = 1
ENDING_KEPT_MS: Final = 60_000

_TOLD_BY: Final = {
    State.WAITING: EventKind.WAITING,
    State.PRIORITIZED: EventKind.WAITING,
    State.DELAYED: EventKind.DELAYED,
    State.ACTIVE: EventKind.ACTIVE,
    State.COMPLETED: EventKind.COMPLETED,
    State.FAILED: EventKind.FAILED,
}
_ENDS: Final = frozenset({EventKind.COMPLETED, EventKind.FAILED, EventKind.CANCELLED})


@dataclass(slots=True)
class Expected:
    """What one job must look like. State WAITING stands for both lines of the ready."""

    spec: JobSpec
    born: int
    state: State
    reply: bool
    # Its place among the ready: smaller starts first; None where the contract names no order.
    rank: tuple[int, int] | None = None
    due: int = 0
    made: int = 0
    stalls: int = 0
    starts: int = 0
    runs: int = 0
    allowed: int = 0
    worker: str = ""
    token: str = ""
    lease: Lease | None = None
    ended: Outcome | None = None
    until: int = 0
    fenced: bool = False
    missed: int = 0
    cancel: bool = False
    cancel_told: bool = False
    doomed: bool = False
    result: bytes | None = None
    failure: Failure | None = None
    progress: bytes | None = None
    expires: int | None = None

    @property
    def id(self) -> str:
        """The job's id."""
        return self.spec.id

    def fits(self, state: State | None, now: int) -> bool:
        """Tell whether a storage may report this state."""
        if self.state is State.DELAYED and state is State.DELAYED:
            return True
        if self.state is State.WAITING or (self.state is State.DELAYED and self.due < now):
            # A stalled job may overtake the prioritised ones by leaving their line.
            plain = not self.spec.terms.priority or self.stalls > 0
            lined_up = bool(self.spec.terms.priority) and state is State.PRIORITIZED
            return lined_up or (plain and state is State.WAITING)
        return state is self.state


@dataclass(slots=True)
class Hold:
    """Who holds a dedup key, until when (None: while the job lives); `loose`: perhaps nobody."""

    job_id: str
    until: int | None
    loose: bool = False


@dataclass(slots=True)
class Ghost:
    """How a job that is gone had ended, and until when that must stay readable."""

    until: int
    kind: EndingKind
    result: bytes | None


_KEYS = st.sampled_from(
    [Dedup("k1"), Dedup("k1", ttl=3), Dedup("k2", ttl=9), Dedup("k2", replace=True)]
)
_DEDUPS = st.one_of(st.none(), _KEYS)
_TERMS = st.builds(
    Terms,
    delay_ms=st.sampled_from([0, 0, 0, 500, 3_000]),
    priority=st.sampled_from([0, 0, 1, 2]),
    lifo=st.sampled_from([False, False, False, True]),
    attempts=st.integers(1, 3),
    dedup=_DEDUPS,
    result_ttl_ms=st.sampled_from([None, None, 2_500]),
)
_PICK = st.integers(0, 255)
_BATCH = st.lists(
    st.tuples(st.one_of(st.none(), _PICK), _TERMS, st.booleans()), min_size=2, max_size=5
)
_WORKER = st.integers(0, 2)
_COUNT = st.integers(1, 3)
_LOSE = st.sampled_from([False, False, True])
_KINDS = st.sampled_from(["complete", "fail", "retry", "retry later", "postpone", "release"])


class StorageMachine(RuleBasedStateMachine):
    """The steps and the expectation; subclasses bring the storage."""

    slack_ms: ClassVar[int] = 0
    """How much of the storage's time may pass by itself between two moves of the clock."""

    looks_late: ClassVar[bool] = False
    """Whether the holder of a key is looked at after the call, which may have replaced it."""

    kinds: ClassVar[frozenset[EventKind]] = _ENDS | {
        EventKind.ADDED,
        EventKind.ACTIVE,
        EventKind.RETRYING,
        EventKind.RETRIES_EXHAUSTED,
        EventKind.STALLED,
        EventKind.REMOVED,
        EventKind.PAUSED,
        EventKind.RESUMED,
    }
    """The kinds that must appear exactly as often as the thing happened."""

    seen: ClassVar[Counter[str]] = Counter()
    """How often the rare things happened, so that a test can tell an idle machine."""

    @classmethod
    async def make_rig(cls) -> Rig:
        """Make a rig with an open storage that holds nothing."""
        raise NotImplementedError

    async def drop_rig(self) -> None:
        """Let go what `make_rig` made."""
        await self.storage.close()

    def __init__(self) -> None:
        super().__init__()
        self._handled = sys.exception()
        self.loop = asyncio.new_event_loop()
        self.rig: Rig = self.loop.run_until_complete(self.make_rig())
        self.now = 0
        self.paused = False
        self.reap_after = -1
        self.jobs: dict[str, Expected] = {}
        self.keys: dict[str, Hold] = {}
        self.ghosts: dict[str, Ghost] = {}
        self.workers = ["w0", "w1", "w2"]
        self.specs: list[JobSpec] = []
        self.ids: dict[str, None] = {}
        self.granted: set[Lease] = set()
        self.stale: list[Lease] = []
        self.settled: set[Lease] = set()
        self.last_settled: list[Outcome] = []
        self.unanswered: list[Claim] = []
        self.added = 0
        self.gone = 0
        self.numbers = count(1)
        self.due_events: list[tuple[str | None, EventKind]] = []
        self.log: list[Event] = []
        self.told: dict[str | None, EventKind] = {}

    @property
    def storage(self) -> Storage:
        """The storage under test."""
        return self.rig.storage

    def run(self, call: Callable[[], Awaitable[T]], lose: str = "") -> T:
        """Call the storage; with `lose`, lose the reply of that verb first and repeat."""

        async def ask() -> T:
            return await call()

        if lose:
            self.seen[f"lost {lose}"] += 1
            self.rig.lose_reply(lose)
            try:
                self.loop.run_until_complete(ask())
            except StorageUnavailable:
                pass
            else:
                raise AssertionError(f"the reply to {lose} was not lost")
        return self.loop.run_until_complete(ask())

    def _tell(self, kind: EventKind, job_id: str | None = None) -> None:
        """Expect one event from this step."""
        self.due_events.append((job_id, kind))

    # Time. Deadlines are kept at a distance, so `<` is all the model ever needs.

    def _deadlines(self) -> Iterator[int]:
        yield self.reap_after
        for job in self.jobs.values():
            yield from (job.until, job.due, job.expires or 0)
        yield from (hold.until for hold in self.keys.values() if hold.until is not None)
        yield from (ghost.until for ghost in self.ghosts.values())

    def _advance(self, ms: int) -> None:
        """Move on by `ms`, or a little more where some deadline would be too near to call."""
        to = self.now + ms
        while near := [d for d in self._deadlines() if to <= d <= to + self.slack_ms]:
            to = max(near) + 1
        self.run(lambda: self.rig.advance(to - self.now))
        self.now = to
        for job in [j for j in self.jobs.values() if j.expires is not None and j.expires < to]:
            self.seen["expired"] += 1
            self._drop(job)  # no ghost: whether its ending outlives `result_ttl` is left open
        self.keys = {k: h for k, h in self.keys.items() if h.until is None or h.until > to}
        self.ghosts = {i: g for i, g in self.ghosts.items() if g.until > to}

    def _drop(self, job: Expected) -> None:
        """Let a job vanish from the expectation."""
        del self.jobs[job.id]
        self.gone += 1

    def _lapsed(self, job: Expected) -> bool:
        return job.until < self.now

    def _owner(self, lease: Lease) -> Expected | None:
        """The job that runs under this very lease."""
        job = self.jobs.get(lease.job_id)
        return job if job is not None and job.lease == lease else None

    def _live(self) -> list[Expected]:
        """Jobs in the hands of workers who know it and live."""
        return [j for j in self.jobs.values() if j.lease is not None and j.worker in self.workers]

    # Produce.

    @initialize(n=st.integers(0, 5))
    def enqueue_the_first_jobs(self, n: int) -> None:
        """Begin with some work, so that few examples are idle."""
        self.enqueue_plain_jobs(n)

    @rule(terms=_TERMS, reply=st.booleans(), lose=_LOSE)
    def enqueue_a_new_job(self, terms: Terms, reply: bool, lose: bool) -> None:
        """Hand in a job of a new id."""
        self._hand_in(f"j{next(self.numbers)}", terms, reply, False, lose)

    @rule(key=_KEYS, lose=_LOSE)
    def enqueue_under_a_key(self, key: Dedup, lose: bool) -> None:
        """Hand in a job that is otherwise plain."""
        terms = Terms(attempts=2, dedup=key, result_ttl_ms=2_500)
        self._hand_in(f"j{next(self.numbers)}", terms, True, False, lose)

    @rule(n=_COUNT)
    def enqueue_plain_jobs(self, n: int) -> None:
        """Hand in some jobs without options, in one call."""
        specs = [self._spec(f"j{next(self.numbers)}", Terms(attempts=2), True) for _ in range(n)]
        for spec, receipt in zip(specs, self._enqueue(specs, False), strict=True):
            self._received(spec, receipt)

    @rule(batch=_BATCH)
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
    @rule(pick=_PICK, terms=_TERMS, reply=st.booleans(), requeue=st.booleans(), lose=_LOSE)
    def enqueue_a_known_id(
        self, pick: int, terms: Terms, reply: bool, requeue: bool, lose: bool
    ) -> None:
        """Hand in a job of an id that was there before."""
        ids = list(self.ids)
        failed = [i for i in ids if i in self.jobs and self.jobs[i].state is State.FAILED]
        chosen = failed if requeue and failed else ids
        self._hand_in(chosen[pick % len(chosen)], terms, reply, requeue, lose)

    @precondition(lambda self: self.specs)
    @rule(pick=_PICK)
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

    def _line_up(self, job: Expected, delay_ms: int, *, front: bool = False) -> None:
        """Expect the job at the end of its line, or in front of it."""
        terms = job.spec.terms
        job.rank = None
        job.lease = None
        job.token = ""
        job.until = 0
        if delay_ms:
            job.state, job.due = State.DELAYED, self.now + delay_ms
            return
        job.state, job.due = State.WAITING, 0
        front = front or terms.lifo
        if not (front and terms.priority):
            n = next(self.numbers)
            job.rank = (terms.priority, -n if front else n)

    @precondition(lambda self: self.ids)
    @rule(pick=_PICK, running=st.booleans(), beat=st.booleans(), lose=_LOSE)
    def cancel(self, pick: int, running: bool, beat: bool, lose: bool) -> None:
        """Cancel a job in whatever state it is."""
        active = [job_id for job_id in self.jobs if self._is_active(job_id)]
        ids = active if running and active else list(self.ids)
        job_id = ids[pick % len(ids)]
        verb = "cancel" if lose else ""
        (answer,) = self.run(lambda: self.storage.cancel(Q, [job_id], running), verb)
        job = self.jobs.get(job_id)
        if job is None:
            assert answer is Cancellation.NOT_FOUND
        elif job.state is State.ACTIVE:
            assert answer is (Cancellation.REQUESTED if running else Cancellation.PROCESSING)
            job.cancel |= running
            job.cancel_told |= running
            if beat and job in self._live():
                self._renew([job])
        elif job.state in FINISHED:
            assert answer.value == job.state.value
        else:
            again = {Cancellation.NOT_FOUND} if lose else set()
            assert answer in {Cancellation.CANCELLED, *again}
            self._tell(EventKind.CANCELLED, job_id)
            self._bury(job, EndingKind.CANCELLED)

    @precondition(lambda self: self.ids)
    @rule(pick=_PICK, lose=_LOSE)
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

    def _bury(self, job: Expected, kind: EndingKind) -> None:
        """Expect the job gone, its key free, and its ending readable if somebody waits."""
        if job.state in FINISHED:
            kind = _ending_kind(job)
        if job.reply:
            self.ghosts[job.id] = Ghost(self.now + ENDING_KEPT_MS, kind, job.result)
        key = job.spec.terms.dedup.key if job.spec.terms.dedup is not None else ""
        hold = self.keys.get(key)
        if hold is not None and hold.job_id == job.id:
            if job.state in FINISHED:
                hold.loose = True  # the contract leaves open whether the key outlives a removal
            else:
                del self.keys[key]
        self._drop(job)

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
                assert (ending.kind, ending.result) == (_ending_kind(job), job.result)
            elif ghost is not None:
                assert (ending.kind, ending.result) == (ghost.kind, ghost.result)

    # Work.

    @rule(worker=_WORKER, n=_COUNT, lease_ms=st.sampled_from([600, LEASE_MS]), lose=_LOSE)
    def claim(self, worker: int, n: int, lease_ms: int, lose: bool) -> None:
        """Claim jobs, perhaps asking twice."""
        self._claim(self.workers[worker], n, lease_ms, lose)

    def _claim(self, worker_id: str, n: int, lease_ms: int = LEASE_MS, lose: bool = False) -> None:
        claim = replace(self._wish(worker_id, n), lease_ms=lease_ms)
        batch = self.run(lambda: self.storage.claim(Q, claim), "claim" if lose else "")
        self._take(batch, claim)

    @rule(worker=_WORKER, n=_COUNT, kind=_KINDS, lose=_LOSE)
    def work(self, worker: int, n: int, kind: str, lose: bool) -> None:
        """Claim jobs and end all that are in hand, good and bad leases alike."""
        self._claim(self.workers[worker], n)
        jobs = [j for j in self._live() if j.worker == self.workers[worker]]
        self._end([self._outcome(job, kind) for job in jobs], None, lose)

    @rule(worker=_WORKER, n=_COUNT)
    def lose_a_claim(self, worker: int, n: int) -> None:
        """Claim jobs and do not hear which, for a while or for ever."""
        claim = self._wish(self.workers[worker], n)
        self.rig.lose_reply("claim")
        try:
            self.run(lambda: self.storage.claim(Q, claim))
        except StorageUnavailable:
            pass
        else:
            raise AssertionError("the reply to claim was not lost")
        active = self.run(lambda: self.storage.peek(Q, State.ACTIVE, 0, 1_000))
        new = [self._startable(r.spec.id) for r in active if not self._is_active(r.spec.id)]
        assert len(new) <= n
        ranks = [job.rank for job in new]
        for job in new:
            self._start(job, claim, doomed=job.doomed)
        for rank in ranks:
            self._check_order(rank)
        self._check_short(len(new), claim)
        self.unanswered.append(claim)

    @precondition(lambda self: self.unanswered)
    @rule(pick=_PICK)
    def repeat_a_lost_claim(self, pick: int) -> None:
        """Ask again: what was granted comes first, unless its lease has lapsed since."""
        claim = self.unanswered.pop(pick % len(self.unanswered))
        if claim.worker_id not in self.workers:
            return
        self.seen["claim repeated late"] += 1
        held = [j for j in self.jobs.values() if j.token == claim.token]
        self._take(self.run(lambda: self.storage.claim(Q, claim)), claim, held)
        # Whether the repeated claim prolonged the leases is the storage's affair; a beat will.
        self._renew([job for job in held if job.lease is not None])

    def _wish(self, worker_id: str, n: int) -> Claim:
        token = f"t{next(self.numbers)}"
        return Claim(token=token, worker_id=worker_id, count=n, lease_ms=LEASE_MS)

    def _is_active(self, job_id: str) -> bool:
        job = self.jobs.get(job_id)
        return job is not None and job.state is State.ACTIVE

    def _may_start(self, job: Expected) -> bool:
        return job.state is State.WAITING or (job.state is State.DELAYED and job.due < self.now)

    def _startable(self, job_id: str) -> Expected:
        """The job, which must be one that may start now (I8, I9, I13)."""
        job = self.jobs.get(job_id)
        assert job is not None, f"{job_id!r} was granted, but is not there"
        assert self._may_start(job), f"granted, but must not start: {job}"
        assert not self.paused, f"{job_id!r} started while the queue was paused"
        return job

    def _take(self, batch: Batch, claim: Claim, held: Collection[Expected] = ()) -> None:
        """Check what a claim brought, and book it."""
        ids = [got.spec.id for got in batch.jobs]
        assert len(set(ids)) == len(ids) <= claim.count, f"{ids} for {claim}"
        for job in held:
            assert job.id in ids or self._lapsed(job), f"not granted again: {job}"
        regranted = {job.id for job in held}
        for got in batch.jobs:
            if got.spec.id in regranted:
                self._hand_over(self.jobs[got.spec.id], got)
                continue
            job = self._startable(got.spec.id)
            rank = job.rank
            self._start(job, claim, doomed=got.doom is not None)
            self._check_order(rank)
            self._hand_over(job, got)
        self._check_short(len(ids), claim, batch)

    def _start(self, job: Expected, claim: Claim, *, doomed: bool) -> None:
        job.state, job.due, job.rank = State.ACTIVE, 0, None
        job.worker, job.token, job.until = claim.worker_id, claim.token, self.now + claim.lease_ms
        job.fenced, job.missed, job.cancel, job.ended = False, 0, False, None
        job.starts += 1
        job.runs += not doomed
        assert job.runs <= job.allowed, f"started too often (I5): {job}"
        self._tell(EventKind.ACTIVE, job.id)

    def _check_order(self, rank: tuple[int, int] | None) -> None:
        """Nobody with an earlier place may still wait (I7)."""
        for other in self.jobs.values():
            if rank is not None and other.state is State.WAITING and other.rank is not None:
                assert other.rank >= rank, f"{other} was overtaken by {rank}"

    def _check_short(self, got: int, claim: Claim, batch: Batch | None = None) -> None:
        """A claim that brings less than it asked for leaves nothing startable behind."""
        if got >= claim.count or self.paused:
            return
        left = [job.id for job in self.jobs.values() if self._may_start(job)]
        assert not left, f"{claim} got {got} and left {left}"
        dues = [job.due for job in self.jobs.values() if job.state is State.DELAYED]
        if batch is None:
            return
        if not dues:
            assert batch.next_in_ms is None
        else:
            assert batch.next_in_ms is not None
            assert batch.next_in_ms <= min(dues) - self.now <= batch.next_in_ms + self.slack_ms

    def _hand_over(self, job: Expected, got: Claimed) -> None:
        """Check the job in hand and note its lease."""
        spec, lease = got.spec, got.lease
        assert (spec.name, spec.payload) == (job.spec.name, job.spec.payload)
        assert spec.terms.attempts == job.spec.terms.attempts
        assert (got.attempts_made, got.stalls) == (job.made, job.stalls), f"{got} is not {job}"
        assert (lease.job_id, lease.attempt) == (job.id, job.made + 1)
        assert (got.doom is not None) == job.doomed
        assert 0 <= got.age_ms - (self.now - job.born) <= self.slack_ms
        assert lease not in self.granted, f"granted twice: {lease}"
        self.granted.add(lease)
        job.lease = lease

    @precondition(lambda self: self._live() or self.stale)
    @rule(worker=_WORKER, pick=_PICK, lose=_LOSE)
    def renew(self, worker: int, pick: int, lose: bool) -> None:
        """Let the heart of one worker beat, also for a lease that it lost."""
        stale = [self.stale[pick % len(self.stale)]] if self.stale else []
        self._renew([j for j in self._live() if j.worker == self.workers[worker]], stale, lose)

    def _renew(
        self, jobs: Sequence[Expected], stale: Sequence[Lease] = (), lose: bool = False
    ) -> None:
        held = {job.lease: job for job in jobs if job.lease is not None}
        asked, verb = [*stale, *held], "renew" if lose else ""
        answer = self.run(lambda: self.storage.renew(Q, asked, LEASE_MS), verb)
        lost, cancelled = set(answer.lost), set(answer.cancelled)
        assert set(stale) <= lost <= set(asked), f"{answer} to {asked}"
        assert cancelled <= set(held) - lost
        for lease, job in held.items():
            assert lease not in lost or self._lapsed(job), f"lost while it was held: {job}"
            assert lease in lost or not job.fenced, f"first lost, then renewed: {job}"
            if lease in lost:
                job.fenced = True
                continue
            job.until, job.missed = self.now + LEASE_MS, 0
            assert lease in cancelled or not job.cancel, f"not told to stop: {job}"
            assert lease not in cancelled or job.cancel_told, f"told to stop by nobody: {job}"

    @precondition(lambda self: self._live())
    @rule(
        picks=st.lists(_PICK, min_size=1, max_size=3),
        kind=_KINDS,
        refill=st.sampled_from([0, 0, 1, 2]),
        lose=_LOSE,
    )
    def settle(self, picks: list[int], kind: str, refill: int, lose: bool) -> None:
        """End attempts, perhaps asking for the next jobs, perhaps asking twice."""
        live = self._live()
        jobs = {job.id: job for job in (live[pick % len(live)] for pick in picks)}
        outcomes = [self._outcome(job, kind) for job in jobs.values()]
        claim = self._wish(live[0].worker, refill) if refill else None
        self._end(outcomes, claim, lose)

    def _end(self, outcomes: list[Outcome], claim: Claim | None = None, lose: bool = False) -> None:
        """Settle what is in hand and book it, then what the refill brought."""
        done = self._settle(outcomes, claim, lose)
        for outcome, answer in zip(outcomes, done.answers, strict=True):
            self._settled(outcome, answer)
        if claim is None:
            assert not done.batch.jobs
        else:
            self._take(done.batch, claim)

    @precondition(lambda self: self.stale)
    @rule(pick=_PICK, kind=_KINDS)
    def settle_a_stale_lease(self, pick: int, kind: str) -> None:
        """Let somebody who lost a job end it; nothing may change (I3, I4)."""
        lease = self.stale[pick % len(self.stale)]
        self._settle_stale(_make_outcome(lease, kind, self._result()))

    @precondition(lambda self: self.last_settled)
    @rule(pick=_PICK)
    def repeat_a_settle(self, pick: int) -> None:
        """Settle once more what was settled: at once it is our own, later perhaps lost."""
        self._settle_stale(self.last_settled[pick % len(self.last_settled)])

    def _settle_stale(self, outcome: Outcome) -> None:
        lease = outcome.lease
        ours = lease in self.settled
        self.seen["settled again" if ours else "settled stale"] += 1
        (answer,) = self._settle([outcome], None, False).answers
        allowed = {AnswerKind.DONE} if ours else set()
        job = self.jobs.get(lease.job_id)
        if job is None:
            allowed.add(AnswerKind.GONE)
        elif job.ended != outcome:  # else nothing happened to the job since
            allowed.add(AnswerKind.LOST)
        assert answer.kind in allowed, f"{answer} to {outcome}"

    def _settle(self, outcomes: list[Outcome], claim: Claim | None, lose: bool) -> Settlement:
        verb = "settle" if lose else ""
        done = self.run(lambda: self.storage.settle(Q, outcomes, claim), verb)
        assert len(done.answers) == len(outcomes)
        return done

    def _result(self) -> bytes:
        return str(next(self.numbers)).encode()

    def _outcome(self, job: Expected, kind: str) -> Outcome:
        """Make an outcome that a worker with a sound retry policy could hand in."""
        assert job.lease is not None
        if job.doomed:
            kind = "fail"
        if kind.startswith("retry") and job.made + 1 >= job.spec.terms.attempts:
            kind = "exhaust"
        return _make_outcome(job.lease, kind, self._result())

    def _settled(self, outcome: Outcome, answer: Answer) -> None:
        """Book an outcome handed in by the owner of the job."""
        job = self._owner(outcome.lease)
        assert job is not None
        if answer.kind is AnswerKind.LOST:
            assert self._lapsed(job), f"lost while it was held: {job}"
            job.fenced = True
            return
        assert answer.kind is AnswerKind.DONE, f"{answer} to {outcome}"
        assert not job.fenced, f"first lost, then settled: {job}"
        assert outcome.lease not in self.settled, f"two commits under one lease: {job}"
        self.settled.add(outcome.lease)
        job.ended = outcome
        self.last_settled = [*self.last_settled[-3:], outcome]
        self.stale.append(outcome.lease)
        self.seen[type(outcome).__name__] += 1
        match outcome:
            case Completed():
                job.made, job.result = job.made + 1, outcome.result
                self._finish(job, State.COMPLETED)
            case Failed():
                job.made, job.failure = job.made + 1, outcome.failure
                self._finish(job, State.FAILED)
                if outcome.exhausted:
                    self._tell(EventKind.RETRIES_EXHAUSTED, job.id)
            case Retried():
                job.made += 1
                self._tell(EventKind.RETRYING, job.id)
                self._line_up(job, outcome.delay_ms)
            case Postponed():
                job.allowed += 1
                self._line_up(job, outcome.delay_ms or 0)
            case Released():
                job.allowed += 1
                self._line_up(job, 0, front=True)

    def _finish(self, job: Expected, state: State) -> None:
        terms = job.spec.terms
        job.state, job.lease, job.token, job.until, job.due = state, None, "", 0, 0
        job.doomed, job.rank = False, None
        if terms.result_ttl_ms is not None:
            job.expires = self.now + terms.result_ttl_ms
        key = terms.dedup.key if terms.dedup is not None else ""
        hold = self.keys.get(key)
        if hold is not None and hold.job_id == job.id and hold.until is None:
            del self.keys[key]
        self._tell(_TOLD_BY[state], job.id)

    @precondition(lambda self: self.granted and isinstance(self.storage, Notes))
    @rule(pick=_PICK, stale=st.booleans())
    def note_progress(self, pick: int, stale: bool) -> None:
        """Write progress under a lease that is held, or under one that is not (I4)."""
        live = [job.lease for job in self._live() if job.lease is not None]
        leases = self.stale if stale or not live else live
        if not leases or not isinstance(self.storage, Notes):
            return
        lease, value = leases[pick % len(leases)], self._result()
        notes = self.storage
        (answer,) = self.run(lambda: notes.progress(Q, [(lease, value)]))
        job = self._owner(lease)
        if job is None:
            known = lease.job_id in self.jobs
            assert answer.kind is (AnswerKind.LOST if known else AnswerKind.GONE)
        elif answer.kind is AnswerKind.DONE:
            assert not job.fenced
            job.progress = value
        else:
            assert self._lapsed(job), f"{answer} while it was held: {job}"
            job.fenced = True

    # Trouble.

    @rule(ms=st.sampled_from([1, 400, 1_001, 2_600, LEASE_MS + 1, 9_500, 61_000]))
    def advance(self, ms: int) -> None:
        """Let time pass."""
        self._advance(ms)

    @rule(pick=_PICK, after=st.booleans())
    def advance_to_a_deadline(self, pick: int, after: bool) -> None:
        """Let time pass until something is just about to happen, or just has."""
        self._advance_to(list(self._deadlines()), pick, after)

    @precondition(lambda self: any(job.state is State.DELAYED for job in self.jobs.values()))
    @rule(pick=_PICK, after=st.booleans())
    def claim_around_a_delay(self, pick: int, after: bool) -> None:
        """Claim when a delayed job is not quite due, or just is."""
        dues = [job.due for job in self.jobs.values() if job.state is State.DELAYED]
        self._advance_to(dues, pick, after)
        self._claim(self.workers[0], 3)

    @precondition(lambda self: self._live())
    @rule(pick=_PICK, after=st.booleans())
    def reap_around_a_lapse(self, pick: int, after: bool) -> None:
        """Reap when a lease has not quite lapsed, or just has."""
        self._reap()
        self._advance_to([job.until for job in self._live()], pick, after)
        self._reap()

    def _advance_to(self, deadlines: Sequence[int], pick: int, after: bool) -> None:
        ahead = sorted({d for d in deadlines if d > self.now + self.slack_ms + 1})
        if ahead:
            ms = ahead[pick % len(ahead)] - self.now
            self._advance(ms + 1 if after else ms - 1 - self.slack_ms)

    @rule()
    def reap(self) -> None:
        """Look for lapsed leases."""
        self._reap()

    @rule()
    def stall(self) -> None:
        """Let every lease lapse and reap twice: a storage may mark first and sweep later."""
        self._advance(LEASE_MS + 1)
        self._reap()
        self._advance(REAP_MS + 1)
        self._reap()
        assert not any(self._is_active(job_id) for job_id in self.jobs)

    def _reap(self) -> None:
        lapsed = {
            job.id: job
            for job in self.jobs.values()
            if job.state is State.ACTIVE and self._lapsed(job)
        }
        answer = self.run(lambda: self.storage.reap(Q, MAX_STALLS, REAP_MS))
        found = [*answer.stalled, *answer.doomed]
        assert len(set(found)) == len(found)
        assert set(found) <= set(lapsed), f"{answer} took jobs away from their owners (I8)"
        assert 0 <= answer.next_in_ms <= REAP_MS
        if self.now <= self.reap_after:
            assert not found, "worked twice in one interval"
            return
        self.reap_after = self.now + REAP_MS
        place = -next(self.numbers)
        for job_id in answer.stalled:
            self._stalled(lapsed[job_id], place)
        for job_id in answer.doomed:
            self._doomed(lapsed[job_id])
        for job_id in set(lapsed) - set(found):
            lapsed[job_id].missed += 1
            assert lapsed[job_id].missed < 2, f"not found by two passes: {lapsed[job_id]}"

    def _stalled(self, job: Expected, place: int) -> None:
        self.seen["stalled"] += 1
        self._take_away(job)
        assert job.stalls <= MAX_STALLS, f"stalled too often, but goes on (I5): {job}"
        self._line_up(job, 0, front=True)
        # Those found by one reap share a place: the contract gives them no order.
        job.rank = None if job.spec.terms.priority else (0, place)

    def _doomed(self, job: Expected) -> None:
        self.seen["doomed"] += 1
        self._take_away(job)
        assert job.stalls > MAX_STALLS or job.cancel_told, f"doomed too early: {job}"
        (record,) = self.run(lambda: self.storage.get(Q, [job.id]))
        assert record is not None, f"doomed and gone: {job}"
        if record.state is State.FAILED:
            assert record.attempts_made in {job.made, job.made + 1}
            job.made, job.failure = record.attempts_made, record.failure
            self._finish(job, State.FAILED)
        else:
            self._line_up(job, 0, front=True)
            job.rank, job.doomed = None, True

    def _take_away(self, job: Expected) -> None:
        job.stalls += 1
        self._tell(EventKind.STALLED, job.id)
        if job.lease is not None:
            self.stale.append(job.lease)

    @rule(worker=_WORKER)
    def crash(self, worker: int) -> None:
        """Let a worker die; another takes its place."""
        self._crash(worker)

    def _crash(self, worker: int) -> str:
        dead, self.workers[worker] = self.workers[worker], f"heir{next(self.numbers)}"
        self.run(lambda: self.rig.crash(dead))
        return dead

    @precondition(lambda self: any(self._is_active(job_id) for job_id in self.jobs))
    @rule(worker=_WORKER)
    def crash_and_recover(self, worker: int) -> None:
        """Let a worker die while the others go on: its jobs restart in time (I12)."""
        dead = self._crash(worker)
        orphans = [j for j in self.jobs.values() if j.worker == dead and j.state is State.ACTIVE]
        starts = {job.id: job.starts for job in orphans}
        deadline = self.now + LEASE_MS + 2 * REAP_MS
        while self.now + REAP_MS + 1 <= deadline:
            self._renew(self._live())
            self._advance(REAP_MS + 1)
            self._reap()
        assert not [job for job in orphans if job.state is State.ACTIVE], "orphans (I12)"
        if self.paused:
            return
        self._claim(self.workers[worker], 1 + len(self.jobs))
        for job in orphans:
            self.seen["recovered"] += 1
            assert job.state in FINISHED or job.starts > starts[job.id]

    @rule(paused=st.sampled_from([False, False, True]), lose=_LOSE)
    def pause(self, paused: bool, lose: bool) -> None:
        """Stop or resume the queue, or say so again."""
        self._pause(paused, lose)

    def _pause(self, paused: bool, lose: bool = False) -> None:
        self.run(lambda: self.storage.pause(Q, paused), "pause" if lose else "")
        if paused is not self.paused:
            self._tell(EventKind.PAUSED if paused else EventKind.RESUMED)
        self.paused = paused

    # What must hold after every step.

    @invariant()
    def everything_is_as_expected(self) -> None:
        """Compare all jobs (I6) and the events of the step with the expectation."""
        counts, shelves, records, events = self.run(self._look)
        self._check_records(counts, shelves, records)
        self._check_events(events)
        for state, shelf in shelves.items():
            for record in shelf:
                assert self.told.get(record.spec.id) is _TOLD_BY[state], (
                    "a change without its event"
                )

    async def _look(
        self,
    ) -> tuple[Counts, dict[State, Sequence[JobRecord]], Sequence[JobRecord | None], list[Event]]:
        storage = self.storage
        after = self.log[-1].cursor if self.log else Cursor.START
        return (
            await storage.counts(Q),
            {state: await storage.peek(Q, state, 0, 1_000) for state in State},
            await storage.get(Q, list(self.ids)),
            list(await storage.events(Q, after, limit=1_000)),
        )

    def _check_records(
        self,
        counts: Counts,
        shelves: dict[State, Sequence[JobRecord]],
        records: Sequence[JobRecord | None],
    ) -> None:
        found = [record.spec.id for shelf in shelves.values() for record in shelf]
        assert len(found) == len(set(found)), f"in two places: {found}"
        assert set(found) == set(self.jobs), "lost or invented jobs (I1, I6)"
        assert self.added == len(found) + self.gone == counts.total + self.gone
        assert counts.paused is self.paused
        by_id = dict(zip(self.ids, records, strict=True))
        for state, shelf in shelves.items():
            assert counts.of(state) == len(shelf), f"{counts} but {len(shelf)} {state}"
            for record in shelf:
                assert record.state is state
                assert record == by_id[record.spec.id]
                self._check_record(self.jobs[record.spec.id], record)
        assert all(by_id[i] is None for i in self.ids if i not in self.jobs)
        keyed = [j.spec.terms.dedup for j in self.jobs.values() if j.state not in FINISHED]
        alive = Counter(dedup.key for dedup in keyed if dedup is not None and dedup.ttl is None)
        assert all(n == 1 for n in alive.values()), f"two jobs under one key (I11): {alive}"

    def _check_record(self, job: Expected, record: JobRecord) -> None:
        assert job.fits(record.state, self.now), f"{record.state}, expected {job}"
        assert record.spec.payload == job.spec.payload
        assert (record.attempts_made, record.stalls) == (job.made, job.stalls), job
        assert record.attempts_started == job.starts, job
        assert record.progress == job.progress, job
        assert record.result == job.result, job
        if job.state is State.ACTIVE:
            assert record.worker_id == job.worker
        if job.state is State.FAILED and job.failure is not None:
            assert record.failure is not None
            assert str(record.failure) == str(job.failure)

    def _check_events(self, events: list[Event]) -> None:
        """Each change has one event; those of a job come in the order of its changes."""
        happened: dict[str | None, list[EventKind]] = defaultdict(list)
        expected: dict[str | None, list[EventKind]] = defaultdict(list)
        for event in events:
            assert not self.log or event.cursor > self.log[-1].cursor, "not in order"
            self.log.append(event)
            if event.kind in _TOLD_BY.values():
                self.told[event.job_id] = event.kind
            if event.kind in self.kinds:
                happened[event.job_id].append(event.kind)
        for job_id, kind in self.due_events:
            if kind in self.kinds:
                expected[job_id].append(kind)
        self.due_events.clear()
        assert happened == expected

    @precondition(lambda self: self.log)
    @rule(pick=_PICK, limit=_COUNT)
    def read_events_again(self, pick: int, limit: int) -> None:
        """Read a part of the events in small pages, between two cursors."""
        first = pick % len(self.log)
        after = self.log[first].cursor
        until = self.log[-1].cursor
        pages: list[Event] = []
        for _ in range(5):
            page = self._read(after, until, limit)
            assert len(page) <= limit
            pages += page
            after = page[-1].cursor if page else after
        assert pages == self.log[first + 1 :][: len(pages)]
        assert len(pages) >= min(5, len(self.log) - first - 1)
        assert self.run(lambda: self.storage.cursor(Q)) >= until

    def _read(self, after: Cursor, until: Cursor | None, limit: int) -> Sequence[Event]:
        return self.run(lambda: self.storage.events(Q, after, until, limit))

    def teardown(self) -> None:
        """Drain everything and account for it, unless the example has failed already."""
        try:
            if sys.exception() is self._handled:
                self._drain()
        finally:
            self.loop.run_until_complete(self.drop_rig())
            self.loop.close()

    def _drain(self) -> None:
        self._pause(False)
        self.workers = ["last"]
        for _ in range(10 + 2 * len(self.jobs)):
            self._advance(LEASE_MS + 9_001)
            self._reap()
            self._advance(REAP_MS + 1)
            self._reap()
            self._claim("last", 5)
            self._end([self._outcome(job, "complete") for job in self._live()])
            self.everything_is_as_expected()
            if all(job.state in FINISHED for job in self.jobs.values()):
                break
        assert all(job.state in FINISHED for job in self.jobs.values()), "does not drain"
        self._check_history()

    def _check_history(self) -> None:
        """From the events alone: every job added ended exactly once (I1, I2)."""
        again: list[Event] = []
        while page := self._read(again[-1].cursor if again else Cursor.START, None, 7):
            again += page
        assert again == self.log, "another reading of the same events"
        open_jobs: set[str | None] = set()
        for event in again:
            if event.kind is EventKind.ADDED:
                assert event.job_id not in open_jobs, f"added twice: {event}"
                open_jobs.add(event.job_id)
            elif event.kind in _ENDS:
                assert event.job_id in open_jobs, f"ended twice: {event}"
                open_jobs.discard(event.job_id)
            elif event.kind is EventKind.REMOVED:
                open_jobs.discard(event.job_id)
        assert not open_jobs, f"never ended: {open_jobs}"


def _make_outcome(lease: Lease, kind: str, text: bytes) -> Outcome:
    failure = Failure(kind="ValueError", reason=text.decode())
    match kind:
        case "complete":
            return Completed(lease=lease, result=text)
        case "retry":
            return Retried(lease=lease, failure=failure, delay_ms=0)
        case "retry later":
            return Retried(lease=lease, failure=failure, delay_ms=1_500)
        case "postpone":
            return Postponed(lease=lease, delay_ms=700)
        case "release":
            return Released(lease=lease)
        case _:
            return Failed(lease=lease, failure=failure, exhausted=kind == "exhaust")


def _ending_kind(job: Expected) -> EndingKind:
    if job.state is State.COMPLETED:
        return EndingKind.COMPLETED
    cancelled = job.failure is not None and job.failure.kind == CANCELLED
    return EndingKind.CANCELLED if cancelled else EndingKind.FAILED
