"""Hold the gold tables as plain rows: what a report is made of, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """What one queue did in one minute; `minute_ms` is its start, in milliseconds since 1970."""

    queue: str
    minute_ms: int
    added: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    stalled: int = 0
    cancelled: int = 0
    wait_p50_ms: float | None = None
    wait_p95_ms: float | None = None
    wait_p99_ms: float | None = None
    run_p50_ms: float | None = None
    run_p95_ms: float | None = None
    run_p99_ms: float | None = None
    backlog: int = 0
    busy_ms: int = 0
    workers: int = 0
    utilisation: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Failed attempts of one queue whose reasons differ only in their numbers and names."""

    queue: str
    reason_group: str
    count: int
    jobs: int
    first_ms: int | None = None
    last_ms: int | None = None
    sample_job_id: str | None = None
    sample_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowJob:
    """One of the jobs that ran longest."""

    queue: str
    job_id: str
    job_name: str | None = None
    run_ms: int | None = None
    wait_ms: int | None = None
    attempts: int | None = None
    state: str | None = None
    finished_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaMinute:
    """How many jobs of one minute kept to the limit, and how many did not."""

    queue: str
    minute_ms: int
    within: int
    breached: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """What one queue did in the whole time."""

    queue: str
    added: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    stalled: int = 0
    unfinished: int = 0
    lost: int = 0
    reconciled: int = 0
    failure_rate: float | None = None
    retry_rate: float | None = None
    wait_p50_ms: float | None = None
    wait_p95_ms: float | None = None
    wait_p99_ms: float | None = None
    run_p50_ms: float | None = None
    run_p95_ms: float | None = None
    run_p99_ms: float | None = None
    first_event_ms: int | None = None
    last_event_ms: int | None = None

    @property
    def unseen(self) -> int:
        """Jobs, at least, whose adding is not among the events: gone before the first read."""
        known = self.completed + self.failed + self.cancelled + self.unfinished
        return max(known - self.added, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """What one queue finished in one hour of one day, in UTC."""

    queue: str
    day: date
    hour: int
    completed: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Events lost to trimming, the last of which had this number; no count where none is known."""

    queue: str
    number: int
    count: int | None = None
    time_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """Everything a report shows; rows in an order of their own, so that equal data looks equal."""

    per_minute: Sequence[Minute] = ()
    failures: Sequence[FailureGroup] = ()
    slowest: Sequence[SlowJob] = ()
    sla: Sequence[SlaMinute] = ()
    totals: Sequence[Total] = ()
    by_hour: Sequence[Hour] = ()
    gaps: Sequence[Gap] = ()
    queries: Mapping[str, str] = field(default_factory=dict)


class GoldTables(Protocol):
    """The gold tables as DataFrames, with the SQL text behind each."""

    @property
    def per_minute(self) -> DataFrame: ...
    @property
    def failures(self) -> DataFrame: ...
    @property
    def slowest(self) -> DataFrame: ...
    @property
    def sla(self) -> DataFrame: ...
    @property
    def totals(self) -> DataFrame: ...
    @property
    def by_hour(self) -> DataFrame: ...
    @property
    def gaps(self) -> DataFrame: ...
    @property
    def queries(self) -> Mapping[str, str]: ...


_PERCENTILES: Final = tuple(f"{what}_p{p}_ms" for what in ("wait", "run") for p in (50, 95, 99))
# Spark hands timestamps over in the zone of the Python process, where an hour in autumn is
# ambiguous; numbers are not.
_MINUTE: Final = "unix_millis(minute) AS minute_ms"
_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "per_minute": (
        *("queue", _MINUTE, "added", "completed", "failed", "retried", "stalled", "cancelled"),
        *(*_PERCENTILES, "backlog", "busy_ms", "workers", "utilisation"),
    ),
    "failures": (
        *("queue", "reason_group", "count", "jobs", "unix_millis(first) AS first_ms"),
        *("unix_millis(last) AS last_ms", "sample_job_id", "sample_reason"),
    ),
    "slowest": (
        *("queue", "job_id", "job_name", "run_ms", "wait_ms", "attempts", "state"),
        "unix_millis(finished) AS finished_ms",
    ),
    "sla": ("queue", _MINUTE, "within", "breached"),
    "totals": (
        *("queue", "added", "completed", "failed", "cancelled", "retried", "stalled"),
        *("unfinished", "lost", "reconciled", "failure_rate", "retry_rate", *_PERCENTILES),
        "unix_millis(first_event) AS first_event_ms",
        "unix_millis(last_event) AS last_event_ms",
    ),
    "by_hour": ("queue", "day", "hour", "completed", "failed"),
    "gaps": ("queue", "number", "count", "unix_millis(time) AS time_ms"),
}


def collect(gold: GoldTables) -> ReportData:
    """Bring the gold tables to the driver, one Spark job each."""
    return arrange(
        ReportData(
            per_minute=[Minute(**row) for row in _rows(gold.per_minute, "per_minute")],
            failures=[FailureGroup(**row) for row in _rows(gold.failures, "failures")],
            slowest=[SlowJob(**row) for row in _rows(gold.slowest, "slowest")],
            sla=[SlaMinute(**row) for row in _rows(gold.sla, "sla")],
            totals=[Total(**row) for row in _rows(gold.totals, "totals")],
            by_hour=[Hour(**row) for row in _rows(gold.by_hour, "by_hour")],
            gaps=[Gap(**row) for row in _rows(gold.gaps, "gaps")],
            queries=dict(gold.queries),
        )
    )


def arrange(data: ReportData) -> ReportData:
    """Put the rows in order: by queue and time, the largest first where there is no time."""
    return ReportData(
        per_minute=tuple(sorted(data.per_minute, key=lambda row: (row.queue, row.minute_ms))),
        failures=tuple(
            sorted(data.failures, key=lambda row: (-row.count, row.queue, row.reason_group))
        ),
        slowest=tuple(
            sorted(data.slowest, key=lambda row: (-(row.run_ms or 0), row.queue, row.job_id))
        ),
        sla=tuple(sorted(data.sla, key=lambda row: (row.queue, row.minute_ms))),
        totals=tuple(sorted(data.totals, key=lambda row: (-row.added, row.queue))),
        by_hour=tuple(sorted(data.by_hour, key=lambda row: (row.queue, row.day, row.hour))),
        gaps=tuple(sorted(data.gaps, key=lambda row: (row.queue, row.number))),
        queries=dict(sorted(data.queries.items())),
    )


def _rows(frame: DataFrame, table: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.selectExpr(*_COLUMNS[table]).collect()]
