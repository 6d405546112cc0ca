"""Count what happens, for whoever wants to collect it."""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable

JobsProcessed = Literal["completed", "failed", "retried"]
Ended = Literal["completed", "failed", "retried", "cancelled"]
FailureReason = Literal["transient_exhausted", "permanent"]


class MetricsCollector(Protocol):
    """What a worker reports; implement it to feed your monitoring.

    Called on the event loop, except `heartbeat_*`, which may come from the heart's thread.
    Must be quick and must not raise.
    """

    def increment_jobs_processed(self, queue: str, status: JobsProcessed) -> None:
        """An attempt ended."""
        ...

    def observe_job_duration(self, queue: str, seconds: float) -> None:
        """A handler ran that long."""
        ...

    def set_queue_length(self, queue: str, state: str, length: int) -> None:
        """A queue holds that many jobs in that state."""
        ...

    def increment_stalled_jobs(self, queue: str) -> None:
        """A stalled job was found."""
        ...

    def increment_heartbeat_success(self, queue: str) -> None:
        """Leases were renewed."""
        ...

    def increment_heartbeat_failure(self, queue: str) -> None:
        """Leases could not be renewed."""
        ...

    def set_active_workers(self, queue: str, worker_id: str, active: bool) -> None:
        """A worker started or stopped."""
        ...

    def set_redis_connection_status(self, connected: bool) -> None:
        """The storage answers, or does not."""
        ...

    def increment_redis_reconnect_attempts(self) -> None:
        """The storage was tried again."""
        ...

    def increment_stalled_checker_skipped(self, queue: str) -> None:
        """A reap cycle was skipped because the one before still ran."""
        ...


@runtime_checkable
class JobMetrics(Protocol):
    """What a worker reports beside, to a collector that has these too."""

    def job_ended(
        self,
        queue: str,
        name: str,
        ended: Ended,
        *,
        seconds: float,
        waited: float | None,
        reason: FailureReason | None,
    ) -> None:
        """An attempt ended and is recorded.

        `waited` is the time in line, for first attempts; `reason` why a job failed for good.
        """
        ...

    def leases_renewed(self, queue: str, seconds: float) -> None:
        """A renewal took that long."""
        ...


@runtime_checkable
class EnqueueMetrics(Protocol):
    """What a queue reports, to a collector that has this too."""

    def jobs_enqueued(self, queue: str, name: str, count: int) -> None:
        """So many new jobs of that name were stored; duplicates are none."""
        ...


class NoMetrics:
    """Collect nothing; the default."""

    def increment_jobs_processed(self, queue: str, status: JobsProcessed) -> None:
        """Do nothing."""

    def observe_job_duration(self, queue: str, seconds: float) -> None:
        """Do nothing."""

    def set_queue_length(self, queue: str, state: str, length: int) -> None:
        """Do nothing."""

    def increment_stalled_jobs(self, queue: str) -> None:
        """Do nothing."""

    def increment_heartbeat_success(self, queue: str) -> None:
        """Do nothing."""

    def increment_heartbeat_failure(self, queue: str) -> None:
        """Do nothing."""

    def set_active_workers(self, queue: str, worker_id: str, active: bool) -> None:
        """Do nothing."""

    def set_redis_connection_status(self, connected: bool) -> None:
        """Do nothing."""

    def increment_redis_reconnect_attempts(self) -> None:
        """Do nothing."""

    def increment_stalled_checker_skipped(self, queue: str) -> None:
        """Do nothing."""
