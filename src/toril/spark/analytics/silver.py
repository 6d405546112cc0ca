"""Make silver of events: one row per job, one per attempt; at once, or step by step in a lake."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from toril.spark.analytics import silver_queries
from toril.spark.analytics.bronze import read_bronze
from toril.spark.analytics.lake import Lake
from toril.spark.analytics.manifest import Entry, read_entries
from toril.spark.schema import EVENTS, ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER: Final = "silver"
_RECORDS: Final = "_steps"
_OVER: Final = "over=true"
_OPEN: Final = "over=false"
_FOLD: Final = 200
"""Steps after which silver is made anew in one, so that there are never many small files."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Silver:
    """The two tables of silver."""

    jobs: DataFrame
    attempts: DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Batches of bronze that silver has taken in: those after `since`, up to `last`.

    `end` is where the last of them ended, to tell a lake whose bronze was begun anew.
    """

    last: int
    since: int
    end: Mapping[str, Any]
    reopened: int

    @property
    def folder(self) -> str:
        """Where its rows are, inside each table."""
        return f"step={self.last}"


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


def update_silver(spark: SparkSession, lake: str, *, rebuild: bool = False) -> Silver:
    """Take in the batches of bronze that came since the last call, and read silver.

    A step counts once it is recorded; one that dies is made again over what it left.
    """
    place = Lake(spark, lake)
    entries = read_entries(place)
    steps = read_steps(place)
    if rebuild or not _fits(steps, entries):
        place.delete(FOLDER)
        steps = []
    if entries and (not steps or entries[-1].batch > steps[-1].last):
        old = steps if len(steps) >= _FOLD else []
        _take_step(spark, place, steps[len(old) :], entries[-1])
        _forget(place, old)
    return read_silver(spark, lake)


def read_silver(spark: SparkSession, lake: str) -> Silver:
    """Read silver as of its last step."""
    place = Lake(spark, lake)
    steps = read_steps(place)
    return Silver(
        jobs=_rows(spark, place, "jobs", SILVER_JOBS, steps),
        attempts=_rows(spark, place, "attempts", SILVER_ATTEMPTS, steps),
    )


def read_steps(lake: Lake) -> list[Step]:
    """Read the steps that silver consists of, oldest first."""
    names = sorted(name for name in lake.sizes(FOLDER, _RECORDS) if name.endswith(".json"))
    steps: list[Step] = []
    for name in names:
        if not name.startswith("."):
            step = Step(**json.loads(lake.read_text(FOLDER, _RECORDS, name)))
            steps = [step] if step.since < 0 else [*steps, step]
    return steps


def _fits(steps: Sequence[Step], entries: Sequence[Entry]) -> bool:
    """Tell whether the steps are an unbroken row over this very bronze."""
    ends = {entry.batch: entry.end for entry in entries}
    before = -1
    for step in steps:
        if step.since != before or ends.get(step.last) != step.end:
            return False
        before = step.last
    return True


def _take_step(spark: SparkSession, lake: Lake, steps: Sequence[Step], newest: Entry) -> None:
    """Work out the lives that are over since the last step, and keep the events of the others."""
    since = steps[-1].last if steps else -1
    folder = f"step={newest.batch}"
    bronze = read_bronze(spark, lake.root).select(*EVENTS, "batch")
    events = bronze.where(f"batch > {since}").drop("batch")
    reopened = 0
    if steps:
        still = _open_events(spark, lake, steps[-1:])
        strangers = write(
            spark.sql(silver_queries.STRANGERS, events=events, open=still),
            lake.at(FOLDER, "reopened", folder),
        )
        reopened = strangers.count()
        events = events.unionByName(still)
        if reopened:
            past = bronze.where(f"batch <= {since}").drop("batch")
            events = events.unionByName(past.join(strangers, ["queue", "job_id"], "left_semi"))
    segments = write(segments_of(events), lake.at(FOLDER, "segments", folder))
    for over, state in ((_OVER, "state IN"), (_OPEN, "state NOT IN")):
        some = segments.where(f"{state} {silver_queries.ENDED}")
        write(jobs_of(some), lake.at(FOLDER, "jobs", folder, over))
        write(attempts_of(some), lake.at(FOLDER, "attempts", folder, over))
    open_events = spark.sql(silver_queries.OPEN, events=events, segments=segments)
    write(open_events, lake.at(FOLDER, "open", folder))
    step = Step(last=newest.batch, since=since, end=newest.end, reopened=reopened)
    lake.write_json(asdict(step), FOLDER, _RECORDS, f"{step.last:012d}.json")
    lake.delete(FOLDER, "segments")
    for old in steps[:-1]:  # the last one is needed if this step has to be made again
        lake.delete(FOLDER, "open", old.folder)


def _forget(lake: Lake, steps: Sequence[Step]) -> None:
    """Delete steps whose rows are all in a later one."""
    for step in steps:
        lake.delete(FOLDER, _RECORDS, f"{step.last:012d}.json")
        for table in ("jobs", "attempts", "open", "reopened"):
            lake.delete(FOLDER, table, step.folder)


def _open_events(spark: SparkSession, lake: Lake, last: Sequence[Step]) -> DataFrame:
    paths = [lake.at(FOLDER, "open", step.folder) for step in last]
    return _read(spark, EVENTS, paths)


def _rows(
    spark: SparkSession,
    lake: Lake,
    table: str,
    columns: Mapping[str, str],
    steps: Sequence[Step],
) -> DataFrame:
    """Read the lives that are over, each as of the last step that knows its job, and the others."""
    paths = [lake.at(FOLDER, table, step.folder, _OVER) for step in steps]
    paths += [lake.at(FOLDER, table, step.folder, _OPEN) for step in steps[-1:]]
    rows = _read(spark, {**columns, "step": "bigint"}, paths, lake.at(FOLDER, table))
    again = [lake.at(FOLDER, "reopened", step.folder) for step in steps if step.reopened]
    if again:
        keys = {"queue": "string", "job_id": "string", "step": "bigint"}
        reopened = _read(spark, keys, again, lake.at(FOLDER, "reopened"))
        rows = spark.sql(
            """
            SELECT rows.* FROM {rows} AS rows LEFT ANTI JOIN {reopened} AS later
            ON rows.queue = later.queue AND rows.job_id = later.job_id AND rows.step < later.step
            """,
            rows=rows,
            reopened=reopened,
        )
    return rows.select(*columns)


def _read(
    spark: SparkSession, columns: Mapping[str, str], paths: Sequence[str], base: str | None = None
) -> DataFrame:
    if not paths:
        return spark.createDataFrame([], ddl(dict(columns)))
    reader = spark.read.schema(ddl(dict(columns)))
    return (reader.option("basePath", base) if base else reader).parquet(*paths)


def write(frame: DataFrame, path: str) -> DataFrame:
    """Write a frame in place of what a step that died may have left, and read it back."""
    frame.write.mode("overwrite").parquet(path)
    return frame.sparkSession.read.schema(frame.schema).parquet(path)
