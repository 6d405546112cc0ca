"""Prove that the state machine can fail, and only where the contract is broken.

Storages with one fault each must be refused; storages that take a liberty the contract grants
must be accepted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.contract.machine import StorageMachine
from tests.contract.machine.quiet import QuietRig
from toril.clock import ManualClock
from toril.event import EventKind
from toril.job import PENDING, State
from toril.outcome import LOST, Answer, Failure, Lease, Outcome
from toril.storage.memory import MemoryStorage
from toril.storage.memory_entry import Entry
from toril.storage.memory_log import EventLog, Extras
from toril.storage.memory_queue import MemoryQueue
from toril.storage.protocol import Batch, Cancellation, Claim, Reaped, Renewal
from toril.testing.rig import Rig


class SettlesWithoutComparingTokens(MemoryQueue):
    """Takes any lease for the one that runs."""

    def settle(self, outcome: Outcome, now: int) -> Answer:
        """End whatever attempt is running."""
        entry = self.find(outcome.lease.job_id, now)
        if entry is not None and entry.state is State.ACTIVE:
            outcome = replace(outcome, lease=self._grant(entry, now).lease)
        return super().settle(outcome, now)


class GrantsNewJobsToARepeatedClaim(MemoryQueue):
    """Takes each call for a claim of its own."""

    _calls = count(1)

    def claim(self, claim: Claim, now: int) -> Batch:
        """Claim under a token nobody used before."""
        return super().claim(replace(claim, token=f"{claim.token}+{next(self._calls)}"), now)


class LosesStalledJobs(MemoryQueue):
    """Says it put stalled jobs back, and does not."""

    def reap(self, max_stalls: int, interval_ms: int, now: int) -> Reaped:
        """Forget the stalled."""
        reaped = super().reap(max_stalls, interval_ms, now)
        for job_id in reaped.stalled:
            self._forget(self.jobs[job_id])
        return reaped


class LeavesCancelledJobsInTheLine(MemoryQueue):
    """Deletes the record of a cancelled job, not its place."""

    def cancel(self, job_id: str, running: bool, now: int) -> Cancellation:
        """Cancel a job and leave it in the line."""
        entry = self.find(job_id, now)
        answer = super().cancel(job_id, running, now)
        if entry is not None and answer is Cancellation.CANCELLED and entry.state in PENDING:
            self._lines.enter(entry)
        return answer


class GrantsWhilePaused(MemoryQueue):
    """Says it is paused, and hands out jobs."""

    def claim(self, claim: Claim, now: int) -> Batch:
        """Claim as if nothing were paused."""
        paused, self.paused = self.paused, False
        batch = super().claim(claim, now)
        self.paused = paused
        return batch


class NeverProlongsALease(MemoryQueue):
    """Says a lease is prolonged, and lets it lapse."""

    def renew(self, leases: Sequence[Lease], lease_ms: int, now: int) -> Renewal:
        """Answer without an effect."""
        untils = {job_id: entry.lease_until_ms for job_id, entry in self.jobs.items()}
        renewal = super().renew(leases, lease_ms, now)
        for job_id, entry in self.jobs.items():
            entry.lease_until_ms = untils[job_id]
        return renewal


class StartsJobsTooEarly(MemoryQueue):
    """Has a clock that is a little fast."""

    def _promote_due(self, now: int) -> None:
        super()._promote_due(now + 100)


class KeepsKeysForEver(MemoryQueue):
    """Never lets a dedup key go."""

    def _release_key(self, entry: Entry) -> None:
        pass


class SaysNothingOfStarts(MemoryQueue):
    """Changes a state without its event."""

    def _tell(self, kind: EventKind, entry: Entry, now: int, extras: Extras = ()) -> None:
        if kind is not EventKind.ACTIVE:
            super()._tell(kind, entry, now, extras)


class MarksBeforeItSweeps(MemoryQueue):
    """Finds a lapsed lease only in the second pass, as BullMQ does."""

    def __init__(self, log: EventLog | None = None) -> None:
        super().__init__(log)
        self._marked: set[tuple[str, int]] = set()

    def reap(self, max_stalls: int, interval_ms: int, now: int) -> Reaped:
        """Sweep what was marked, then mark what runs."""
        if self._reaped_ms is not None and now < self._reaped_ms + interval_ms:
            return super().reap(max_stalls, interval_ms, now)
        spared = {
            job_id: entry.lease_until_ms
            for job_id, entry in self._active.items()
            if (job_id, entry.started) not in self._marked
        }
        for job_id in spared:
            self.jobs[job_id].lease_until_ms = sys.maxsize
        reaped = super().reap(max_stalls, interval_ms, now)
        for job_id, until_ms in spared.items():
            self.jobs[job_id].lease_until_ms = until_ms
        self._marked = {(job_id, entry.started) for job_id, entry in self._active.items()}
        return reaped


class DoomsAtTheNextClaim(MemoryQueue):
    """Leaves it to a worker to fail a job that stalled too often."""

    def __init__(self, log: EventLog | None = None) -> None:
        super().__init__(log)
        self._dooms: dict[Entry, Failure] = {}

    def _doom(self, entry: Entry, max_stalls: int, now: int) -> None:
        self._dooms[entry] = Failure(kind="JobStalled", reason=f"more than {max_stalls} times")
        self._line_up(entry, now, 0, front=True, ignore_priority=True)

    def claim(self, claim: Claim, now: int) -> Batch:
        """Tell the doomed from the others."""
        batch = super().claim(claim, now)
        dooms = [self._dooms.get(self.jobs[got.spec.id]) for got in batch.jobs]
        jobs = [replace(got, doom=doom) for got, doom in zip(batch.jobs, dooms, strict=True)]
        return replace(batch, jobs=jobs)


class LosesLapsedLeases(MemoryQueue):
    """Refuses a lapsed lease before anybody reaped it."""

    def _is_over(self, lease: Lease, now: int) -> bool:
        entry = self.jobs.get(lease.job_id)
        return entry is not None and entry.owned_by(lease) and entry.lease_until_ms <= now

    def settle(self, outcome: Outcome, now: int) -> Answer:
        """End an attempt under a live lease."""
        return LOST if self._is_over(outcome.lease, now) else super().settle(outcome, now)

    def renew(self, leases: Sequence[Lease], lease_ms: int, now: int) -> Renewal:
        """Prolong what has not lapsed."""
        over = [lease for lease in leases if self._is_over(lease, now)]
        renewal = super().renew([lease for lease in leases if lease not in over], lease_ms, now)
        return replace(renewal, lost=[*renewal.lost, *over])

    def note_progress(self, lease: Lease, progress: bytes, now: int) -> Answer:
        """Record progress under a live lease."""
        if self._is_over(lease, now):
            return LOST
        return super().note_progress(lease, progress, now)


FAULTS = [
    SettlesWithoutComparingTokens,
    GrantsNewJobsToARepeatedClaim,
    LosesStalledJobs,
    LeavesCancelledJobsInTheLine,
    GrantsWhilePaused,
    NeverProlongsALease,
    StartsJobsTooEarly,
    KeepsKeysForEver,
    SaysNothingOfStarts,
]
LIBERTIES = [MemoryQueue, MarksBeforeItSweeps, DoomsAtTheNextClaim, LosesLapsedLeases]


class OddStorage(MemoryStorage):
    """A memory storage with other queues inside."""

    def __init__(self, inside: type[MemoryQueue], clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self._inside = inside

    def _queue(self, name: str) -> MemoryQueue:
        return self._queues.setdefault(name, self._inside())


class OddMachine(StorageMachine):
    """The machine over a memory storage with other queues inside."""

    inside: ClassVar[type[MemoryQueue]]

    @classmethod
    async def make_rig(cls) -> Rig:
        """Make an empty storage."""
        clock = ManualClock()
        storage = OddStorage(cls.inside, clock)
        await storage.open()
        return QuietRig(storage, clock)


def run_over(queue: type[MemoryQueue], examples: int) -> None:
    """Run the machine over a storage of such queues, the same examples each time."""
    effort = settings(
        max_examples=examples,
        stateful_step_count=50,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],  # shrinking takes long, and nobody reads the example
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    machine = type(queue.__name__, (OddMachine,), {"inside": queue})
    run_state_machine_as_test(machine, settings=effort)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_machine_refuses_a_storage_that(fault: type[MemoryQueue]) -> None:
    with pytest.raises(AssertionError):
        run_over(fault, 400)


@pytest.mark.parametrize("liberty", LIBERTIES, ids=lambda liberty: liberty.__name__)
def test_the_machine_accepts_a_storage_that(liberty: type[MemoryQueue]) -> None:
    run_over(liberty, 60)
