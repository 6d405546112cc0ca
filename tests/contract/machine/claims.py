"""Claim jobs, and check what was granted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.contract.machine.choices import COUNT, LOSE, PICK, WORKER
from tests.contract.machine.expect import LEASE_MS, Expected, Q
from tests.contract.machine.produce import Producing
from toril.errors import StorageUnavailable
from toril.event import EventKind
from toril.job import FINISHED, State
from toril.outcome import Lease
from toril.storage.protocol import Batch, Cancellation, Claim, Claimed, EndingKind


class Claiming(Producing):
    """The steps of workers with free hands, and those that keep what is in them."""

    @rule(worker=WORKER, n=COUNT, lease_ms=st.sampled_from([600, LEASE_MS]), lose=LOSE)
    def claim(self, worker: int, n: int, lease_ms: int, lose: bool) -> None:
        """Claim jobs, perhaps asking twice."""
        self._claim(self.workers[worker], n, lease_ms, lose)

    def _claim(self, worker_id: str, n: int, lease_ms: int = LEASE_MS, lose: bool = False) -> None:
        claim = replace(self._wish(worker_id, n), lease_ms=lease_ms)
        batch = self.run(lambda: self.storage.claim(Q, claim), "claim" if lose else "")
        self._take(batch, claim)

    @rule(worker=WORKER, n=COUNT)
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
    @rule(pick=PICK)
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
    @rule(worker=WORKER, pick=PICK, lose=LOSE)
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

    @precondition(lambda self: self.ids)
    @rule(pick=PICK, running=st.booleans(), beat=st.booleans(), lose=LOSE)
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
