"""What a fleet has done, by task: while it works and when it has ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toril.storage.protocol import Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCount:
    """What one attempt of a task did.

    `ended` is false while it works, and stays so if it died; its counts are then those it told
    last, a second before its end or so, and its unfinished jobs come back when their leases
    lapse.
    """

    task: int
    attempt: int
    worker_id: str
    completed: int = 0
    failed: int = 0
    retried: int = 0
    active: int = 0
    seconds: float = 0.0
    ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetProgress:
    """How a fleet does, at one moment; `counts` are those of its whole queue."""

    queue: str
    tasks: int
    attempts: Sequence[TaskCount]
    counts: Counts
    seconds: float
    stopping: bool

    @property
    def completed(self) -> int:
        """Attempts that completed a job."""
        return sum(one.completed for one in self.attempts)

    @property
    def failed(self) -> int:
        """Attempts that failed a job for good."""
        return sum(one.failed for one in self.attempts)

    @property
    def retried(self) -> int:
        """Attempts that failed and are followed by another."""
        return sum(one.retried for one in self.attempts)

    @property
    def running(self) -> int:
        """Tasks at work."""
        newest = {one.task: one for one in self.attempts}
        return sum(not one.ended for one in newest.values())

    def __str__(self) -> str:
        counts = self.counts
        paused = ", paused" if counts.paused else ""
        return (
            f"fleet on '{self.queue}': {self.completed:,} completed, {self.failed:,} failed,"
            f" {self.retried:,} retried in {self.seconds:.0f} s by {self.running} of {self.tasks}"
            f" tasks; queue: {counts.ready:,} waiting, {counts.active:,} active,"
            f" {counts.delayed:,} delayed{paused}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetResult:
    """What a fleet did; `tasks` are the attempts that ended, `died` those that did not.

    An attempt that died before it told anything shows only in the number of the one after it.
    """

    queue: str
    tasks: Sequence[TaskCount]
    died: Sequence[TaskCount]
    seconds: float

    @property
    def completed(self) -> int:
        """Jobs completed; a task that died may have completed a few more than it told."""
        return sum(one.completed for one in (*self.tasks, *self.died))

    @property
    def failed(self) -> int:
        """Jobs failed for good."""
        return sum(one.failed for one in (*self.tasks, *self.died))

    @property
    def retried(self) -> int:
        """Attempts that were followed by another."""
        return sum(one.retried for one in (*self.tasks, *self.died))

    def __str__(self) -> str:
        died = f", {len(self.died)} task attempts died" if self.died else ""
        return (
            f"fleet on '{self.queue}': {self.completed:,} completed, {self.failed:,} failed,"
            f" {self.retried:,} retried in {self.seconds:.1f} s by {len(self.tasks)} tasks{died}"
        )
