"""Collect metrics for Prometheus, under the names its users know (extra `metrics`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from toril._version import __version__
from toril.extras import missing_extra
from toril.metrics import Ended, FailureReason, JobsProcessed

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_NAMES: Final = 100
"""So many job names get a series of their own; the others share one, as labels must be bounded."""

OTHER: Final = "other"
STORAGE_GAUGES: Final = (
    *("bullmq_queue_length", "bullmq_job_count", "toril_queue_jobs"),
    *("toril_queue_oldest_waiting_seconds", "toril_queue_paused"),
    *("toril_storage_up", "toril_build_info"),
)
"""What a look at the storage tells; the rest is known to workers only."""
_SECONDS: Final = (
    *(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0),
)
_LOCK_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)


class PrometheusMetrics:
    """A `MetricsCollector` with a registry of its own; for all workers and queues of a process.

    `render` gives the text that Prometheus reads. Job ids and error texts never become labels.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
        except ImportError:
            raise missing_extra("metrics need", "metrics") from None
        self.registry = CollectorRegistry() if registry is None else registry
        self._names: set[tuple[str, str]] = set()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=self.registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

        self._processed = counter(
            "bullmq_jobs_processed_total", "Attempts that ended, by status", "queue", "status"
        )
        self._duration = histogram(
            "bullmq_job_duration_seconds", "How long handlers ran", _SECONDS, "queue"
        )
        self._length = gauge("bullmq_queue_length", "Jobs by state", "queue", "state")
        self._count = gauge("bullmq_job_count", "Jobs by state, as Node's", "queue", "state")
        self._stalled = counter("bullmq_stalled_jobs_total", "Stalled jobs found", "queue")
        self._beats = counter("bullmq_heartbeat_success_total", "Renewals of leases", "queue")
        self._missed = counter("bullmq_heartbeat_failure_total", "Renewals that failed", "queue")
        self._extend = histogram(
            "bullmq_lock_extend_duration_seconds", "How long a renewal took", _LOCK_SECONDS, "queue"
        )
        self._workers = gauge("bullmq_active_workers", "Workers that run", "queue", "worker_id")
        self._connected = gauge(
            "bullmq_redis_connection_status", "1 for the status that holds", "status"
        )
        self._reconnects = counter(
            "bullmq_redis_reconnect_attempts_total", "Times the storage was tried again"
        )
        self._skipped = counter(
            "bullmq_stalled_checker_skipped_total", "Looks for stalled jobs left out", "queue"
        )
        self._failed = counter(
            "bullmq_jobs_failed_total", "Jobs that failed for good, by reason", "queue", "reason"
        )
        self._enqueued = counter(
            "toril_jobs_enqueued_total", "New jobs handed in here", "queue", "name"
        )
        self._finished = counter(
            "toril_jobs_finished_total", "Jobs that ended", "queue", "name", "outcome"
        )
        self._retries = counter("toril_job_retries_total", "Attempts to repeat", "queue", "name")
        self._all_stalled = counter("toril_jobs_stalled_total", "Stalled jobs found", "queue")
        self._run_time = histogram(
            "toril_job_duration_seconds", "How long handlers ran", _SECONDS, "queue", "name"
        )
        self._wait_time = histogram(
            "toril_job_wait_seconds", "From due to started", _SECONDS, "queue", "name"
        )
        self._jobs = gauge("toril_queue_jobs", "Jobs by state", "queue", "state")
        self._oldest = gauge(
            "toril_queue_oldest_waiting_seconds", "Age of the first job in line", "queue"
        )
        self._paused = gauge("toril_queue_paused", "1 while the queue is paused", "queue")
        self._active = gauge("toril_worker_active_jobs", "Jobs in hand", "queue", "worker_id")
        self._slots = gauge("toril_worker_slots", "Jobs at once", "queue", "worker_id")
        self._up = gauge("toril_storage_up", "1 while the storage answers a worker")
        self._up.set(math.nan)  # a program without workers does not know, and must alarm nobody
        self._away = counter("toril_storage_reconnects_total", "Times the storage was tried again")
        build = gauge("toril_build_info", "Always 1", "version", "protocol")
        build.labels(__version__, "bullmq-5.62").set(1)

    def render(self, names: Sequence[str] | None = None) -> bytes:
        """Write all metrics, or some, in Prometheus' text format."""
        from prometheus_client import generate_latest

        chosen = self.registry if names is None else self.registry.restricted_registry(names)
        return generate_latest(chosen)

    # -- MetricsCollector ------------------------------------------------------------------

    def increment_jobs_processed(self, queue: str, status: JobsProcessed) -> None:
        """An attempt ended."""
        self._processed.labels(queue, status).inc()

    def observe_job_duration(self, queue: str, seconds: float) -> None:
        """A handler ran that long."""
        self._duration.labels(queue).observe(seconds)

    def set_queue_length(self, queue: str, state: str, length: int) -> None:
        """A queue holds that many jobs in that state."""
        self._jobs.labels(queue, state).set(length)
        self._count.labels(queue, state).set(length)
        self._length.labels(queue, "wait" if state == "waiting" else state).set(length)

    def increment_stalled_jobs(self, queue: str) -> None:
        """A stalled job was found."""
        self._stalled.labels(queue).inc()
        self._all_stalled.labels(queue).inc()

    def increment_heartbeat_success(self, queue: str) -> None:
        """Leases were renewed."""
        self._beats.labels(queue).inc()

    def increment_heartbeat_failure(self, queue: str) -> None:
        """Leases could not be renewed."""
        self._missed.labels(queue).inc()

    def set_active_workers(self, queue: str, worker_id: str, active: bool) -> None:
        """A worker started or stopped; the series of one that stopped ends."""
        if active:
            self._workers.labels(queue, worker_id).set(1)
            return
        for gauge in (self._workers, self._active, self._slots):
            gauge.remove(queue, worker_id)

    def set_redis_connection_status(self, connected: bool) -> None:
        """The storage answers, or does not."""
        self._up.set(connected)
        self._connected.labels("connected").set(connected)
        self._connected.labels("disconnected").set(not connected)

    def increment_redis_reconnect_attempts(self) -> None:
        """The storage was tried again."""
        self._reconnects.inc()
        self._away.inc()

    def increment_stalled_checker_skipped(self, queue: str) -> None:
        """A look for stalled jobs was left out because the one before still ran."""
        self._skipped.labels(queue).inc()

    # -- JobMetrics ------------------------------------------------------------------------

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
        """An attempt ended and is recorded."""
        label = self._name(queue, name)
        self._run_time.labels(queue, label).observe(seconds)
        if waited is not None:
            self._wait_time.labels(queue, label).observe(waited)
        if ended == "retried":
            self._retries.labels(queue, label).inc()
            return
        self._finished.labels(queue, label, ended).inc()
        if reason is not None:
            self._failed.labels(queue, reason).inc()

    def leases_renewed(self, queue: str, seconds: float) -> None:
        """A renewal took that long."""
        self._extend.labels(queue).observe(seconds)

    # -- EnqueueMetrics --------------------------------------------------------------------

    def jobs_enqueued(self, queue: str, name: str, count: int) -> None:
        """So many new jobs of that name were stored."""
        self._enqueued.labels(queue, self._name(queue, name)).inc(count)

    # -- what an exporter looks up when it is asked ------------------------------------------

    def set_worker_load(self, queue: str, worker_id: str, active: int, slots: int) -> None:
        """A worker has that many jobs in hand, of so many."""
        self._active.labels(queue, worker_id).set(active)
        self._slots.labels(queue, worker_id).set(slots)

    def set_queue_state(self, queue: str, paused: bool, oldest_waiting_s: float) -> None:
        """A queue is paused or not; its first job in line waits that long."""
        self._paused.labels(queue).set(paused)
        self._oldest.labels(queue).set(oldest_waiting_s)

    def _name(self, queue: str, name: str) -> str:
        if (queue, name) not in self._names:
            if len(self._names) >= _NAMES:
                return OTHER
            self._names.add((queue, name))
        return name
