"""Make gold: figures per minute and queue, failure groups, slowest jobs, promises kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from toril.errors import InvalidOption
from toril.spark.analytics import gold_queries
from toril.text import printable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PERCENTILES: Final = {
    f"{what}_p{share}_ms": "double" for what in ("wait", "run") for share in (50, 95, 99)
}

COLUMNS: Final[Mapping[str, Mapping[str, str]]] = {
    "per_minute": {
        "queue": "string",
        "minute": "timestamp",
        "added": "bigint",
        "completed": "bigint",
        "failed": "bigint",
        "retried": "bigint",
        "stalled": "bigint",
        "cancelled": "bigint",
        **_PERCENTILES,
        "backlog": "bigint",
        "busy_ms": "bigint",
        "workers": "int",
        "utilisation": "double",
    },
    "failures": {
        "queue": "string",
        "reason_group": "string",
        "count": "bigint",
        "jobs": "bigint",
        "first": "timestamp",
        "last": "timestamp",
        "sample_job_id": "string",
        "sample_reason": "string",
    },
    "slowest": {
        "queue": "string",
        "job_id": "string",
        "job_name": "string",
        "run_ms": "bigint",
        "wait_ms": "bigint",
        "attempts": "int",
        "state": "string",
        "finished": "timestamp",
    },
    "sla": {
        "queue": "string",
        "minute": "timestamp",
        "within": "bigint",
        "breached": "bigint",
    },
    "totals": {
        "queue": "string",
        "added": "bigint",
        "completed": "bigint",
        "failed": "bigint",
        "cancelled": "bigint",
        "retried": "bigint",
        "stalled": "bigint",
        "unfinished": "bigint",
        "lost": "bigint",
        "reconciled": "bigint",
        "failure_rate": "double",
        "retry_rate": "double",
        **_PERCENTILES,
        "first_event": "timestamp",
        "last_event": "timestamp",
    },
    "by_hour": {
        "queue": "string",
        "day": "date",
        "hour": "int",
        "completed": "bigint",
        "failed": "bigint",
    },
    "gaps": {
        "queue": "string",
        "number": "bigint",
        "count": "bigint",
        "time": "timestamp",
    },
}
"""The tables of gold and their columns, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gold:
    """The tables of gold, each sorted as it is shown, and the SQL that made each."""

    per_minute: DataFrame
    failures: DataFrame
    slowest: DataFrame
    sla: DataFrame
    totals: DataFrame
    by_hour: DataFrame
    gaps: DataFrame
    queries: Mapping[str, str]

    def tables(self) -> dict[str, DataFrame]:
        """The tables by name."""
        return {name: getattr(self, name) for name in COLUMNS}


def gold(
    events: DataFrame, jobs: DataFrame, attempts: DataFrame, *, sla_ms: int | None = None
) -> Gold:
    """Make gold of bronze and silver; nothing runs until a table is read.

    The inputs become the temporary views `bronze_events`, `silver_jobs` and `silver_attempts` of
    the session, so that the queries can be run again, as they are or changed.
    """
    check_sla(sla_ms)
    session = events.sparkSession
    events.createOrReplaceTempView("bronze_events")
    jobs.createOrReplaceTempView("silver_jobs")
    attempts.createOrReplaceTempView("silver_attempts")
    queries = {
        "per_minute": gold_queries.PER_MINUTE,
        "failures": gold_queries.FAILURES,
        "slowest": gold_queries.SLOWEST_JOBS,
        "sla": gold_queries.sla_query(sla_ms),
        "totals": gold_queries.TOTALS,
        "by_hour": gold_queries.BY_HOUR,
        "gaps": gold_queries.GAPS,
    }
    queries = {name: query.strip() for name, query in queries.items()}
    return Gold(**{name: session.sql(query) for name, query in queries.items()}, queries=queries)


def check_sla(sla_ms: int | None) -> None:
    """Refuse a promise that is no time."""
    if sla_ms is None or (isinstance(sla_ms, int) and type(sla_ms) is not bool and sla_ms > 0):
        return
    raise InvalidOption(f"sla_ms={printable(sla_ms, 40)}: must be a whole number of ms above 0")


def write_gold(gold: Gold, path: str, format: Literal["parquet", "csv"] = "parquet") -> None:
    """Write each table into a folder of its name, in place of what was there."""
    if format not in ("parquet", "csv"):
        raise InvalidOption(f"format '{printable(format, 40)}' is unknown; use parquet or csv")
    for name, table in gold.tables().items():
        writer = table.coalesce(1).write.mode("overwrite")
        if format == "csv":
            writer = writer.option("header", True)
        writer.format(format).save(f"{path.rstrip('/')}/{name}")
