"""Let time pass, leases lapse, workers die and queues stand still."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.contract.machine.choices import LOSE, PICK, WORKER
from tests.contract.machine.expect import LEASE_MS, MAX_STALLS, REAP_MS, Expected, Q
from tests.contract.machine.settle import Settling
from toril.event import EventKind
from toril.job import FINISHED, State


class Troubled(Settling):
    """The steps that nobody asks for."""

    @rule(ms=st.sampled_from([1, 400, 1_001, 2_600, LEASE_MS + 1, 9_500, 61_000]))
    def advance(self, ms: int) -> None:
        """Let time pass."""
        self._advance(ms)

    @rule(pick=PICK, after=st.booleans())
    def advance_to_a_deadline(self, pick: int, after: bool) -> None:
        """Let time pass until something is just about to happen, or just has."""
        self._advance_to(list(self._deadlines()), pick, after)

    @precondition(lambda self: any(job.state is State.DELAYED for job in self.jobs.values()))
    @rule(pick=PICK, after=st.booleans())
    def claim_around_a_delay(self, pick: int, after: bool) -> None:
        """Claim when a delayed job is not quite due, or just is."""
        dues = [job.due for job in self.jobs.values() if job.state is State.DELAYED]
        self._advance_to(dues, pick, after)
        self._claim(self.workers[0], 3)

    @precondition(lambda self: self._live())
    @rule(pick=PICK, after=st.booleans())
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

    @rule(worker=WORKER)
    def crash(self, worker: int) -> None:
        """Let a worker die; another takes its place."""
        self._crash(worker)

    def _crash(self, worker: int) -> str:
        dead, self.workers[worker] = self.workers[worker], f"heir{next(self.numbers)}"
        self.run(lambda: self.rig.crash(dead))
        return dead

    @precondition(lambda self: any(self._is_active(job_id) for job_id in self.jobs))
    @rule(worker=WORKER)
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

    @rule(paused=st.sampled_from([False, False, True]), lose=LOSE)
    def pause(self, paused: bool, lose: bool) -> None:
        """Stop or resume the queue, or say so again."""
        self._pause(paused, lose)

    def _pause(self, paused: bool, lose: bool = False) -> None:
        self.run(lambda: self.storage.pause(Q, paused), "pause" if lose else "")
        if paused is not self.paused:
            self._tell(EventKind.PAUSED if paused else EventKind.RESUMED)
        self.paused = paused
