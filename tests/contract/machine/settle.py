"""End attempts, and write about them while they run."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.contract.machine.choices import COUNT, KINDS, LOSE, PICK, WORKER
from tests.contract.machine.claims import Claiming
from tests.contract.machine.expect import Expected, Q, make_outcome
from toril.event import EventKind
from toril.job import State
from toril.outcome import (
    Answer,
    AnswerKind,
    Completed,
    Failed,
    Outcome,
    Postponed,
    Released,
    Retried,
)
from toril.storage.protocol import Claim, Notes, Settlement


class Settling(Claiming):
    """The steps of workers with something in hand."""

    @rule(worker=WORKER, n=COUNT, kind=KINDS, lose=LOSE)
    def work(self, worker: int, n: int, kind: str, lose: bool) -> None:
        """Claim jobs and end all that are in hand, good and bad leases alike."""
        self._claim(self.workers[worker], n)
        jobs = [j for j in self._live() if j.worker == self.workers[worker]]
        self._end([self._outcome(job, kind) for job in jobs], None, lose)

    @precondition(lambda self: self._live())
    @rule(
        picks=st.lists(PICK, min_size=1, max_size=3),
        kind=KINDS,
        refill=st.sampled_from([0, 0, 1, 2]),
        lose=LOSE,
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
    @rule(pick=PICK, kind=KINDS)
    def settle_a_stale_lease(self, pick: int, kind: str) -> None:
        """Let somebody who lost a job end it; nothing may change (I3, I4)."""
        lease = self.stale[pick % len(self.stale)]
        self._settle_stale(make_outcome(lease, kind, self._result()))

    @precondition(lambda self: self.last_settled)
    @rule(pick=PICK)
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
        return make_outcome(job.lease, kind, self._result())

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

    @precondition(lambda self: self.granted and isinstance(self.storage, Notes))
    @rule(pick=PICK, stale=st.booleans())
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
