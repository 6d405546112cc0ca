"""Make silver of events: one row per job, one per attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toril.spark.analytics import silver_queries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SILVER_JOBS: Final = {
    "queue": "string",
    "job_id": "string",
    "job_name": "string",
    "added": "timestamp",
    "first_active": "timestamp",
    "last_active": "timestamp",
    "finished": "timestamp",
    "state": "string",
    "attempts": "int",
    "stalls": "int",
    "retries": "int",
    "reason": "string",
    "wait_ms": "bigint",
    "run_ms": "bigint",
    "total_ms": "bigint",
    "worker_id": "string",
    "source": "string",
    "life": "bigint",
    "ready": "timestamp",
    "first_seen": "timestamp",
    "last_seen": "timestamp",
}
"""One row is one life of a job: an id that is added again lives again. `life` is the number of the
event that began it."""

SILVER_ATTEMPTS: Final = {
    "queue": "string",
    "job_id": "string",
    "job_name": "string",
    "attempt": "int",
    "started": "timestamp",
    "ended": "timestamp",
    "outcome": "string",
    "reason": "string",
    "worker_id": "string",
    "run_ms": "bigint",
    "life": "bigint",
}
"""One row is one start of a job by a worker."""


def silver_jobs(events: DataFrame) -> DataFrame:
    """Tell what became of each job; the events of a job must all be there, in any order."""
    return jobs_of(segments_of(events))


def silver_attempts(events: DataFrame) -> DataFrame:
    """Tell how each attempt went; the events of a job must all be there, in any order."""
    return attempts_of(segments_of(events))


def segments_of(events: DataFrame) -> DataFrame:
    """Cut lives into what came before the first attempt, and the attempts."""
    return events.sparkSession.sql(silver_queries.SEGMENTS, events=events)


def jobs_of(segments: DataFrame) -> DataFrame:
    """Put the segments of each life together."""
    return segments.sparkSession.sql(silver_queries.JOBS, segments=segments)


def attempts_of(segments: DataFrame) -> DataFrame:
    """Choose the segments that are attempts."""
    return segments.sparkSession.sql(silver_queries.ATTEMPTS, segments=segments)
