"""Load a table into a queue: each row a job, none twice."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toril.errors import InvalidOption
from toril.ids import token
from toril.spark.flows.files import Files
from toril.spark.flows.jobs import FORMAT
from toril.spark.flows.pace import Report, silent
from toril.spark.flows.place import Desk, Place
from toril.spark.flows.trouble import plain_errors
from toril.spark.register import register
from toril.text import printable, suggest

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

FORMATS: Final = ("parquet", "csv", "json", "orc", "table")
_ENDINGS: Final = {
    "parquet": "parquet",
    "csv": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "orc": "orc",
}
_PACKED: Final = (".gz", ".bz2", ".zst", ".lz4", ".snappy")
_LOOK_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How a row becomes a job.

    The id is a column, or a hash over the columns `id_from`, or over the whole row. `options` are
    those of all jobs, `option_columns` name the columns that hold them: both as the sink
    `toril_jobs` has them, durations in milliseconds.
    """

    id_column: str | None = None
    id_from: Sequence[str] = ()
    id_prefix: str | None = None
    name: str | None = None
    name_column: str | None = None
    data_column: str | None = None
    data_columns: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    option_columns: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for one, other in (
            ("id_column", "id_from"),
            ("name", "name_column"),
            ("data_column", "data_columns"),
        ):
            if getattr(self, one) and getattr(self, other):
                raise InvalidOption(f"ingest: give {one} or {other}, not both")

    def named(self) -> list[str]:
        """All columns that are named."""
        single = (self.id_column, self.name_column, self.data_column)
        some = [one for one in single if one is not None]
        return [*some, *self.id_from, *self.data_columns, *self.option_columns.values()]

    def sink_options(self) -> dict[str, str]:
        """The options of the sink that say the same."""
        hashed = None if self.id_column else ",".join(self.id_from) or "content"
        given = {
            "idColumn": self.id_column,
            "idFrom": hashed,
            "idPrefix": self.id_prefix or None,
            "name": self.name,
            "nameColumn": self.name_column,
            "dataColumn": self.data_column,
            "dataColumns": ",".join(self.data_columns) or None,
            **self.options,
            **{f"{option}Column": column for option, column in self.option_columns.items()},
        }
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRun:
    """What was loaded: `duplicates` were there already, by their id."""

    rows: int
    created: int
    duplicates: int
    seconds: float

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds if self.seconds else 0.0


def ingest(
    spark: SparkSession,
    source: str | DataFrame,
    queue: str,
    *,
    shape: Shape | None = None,
    format: str | None = None,
    schema: str | None = None,
    url: str | None = None,
    url_env: str | None = None,
    password_file: str | None = None,
    report: Report = silent,
) -> IngestRun:
    """Hand in one job per row of a path, a table or a DataFrame.

    May be repeated, also after a crash half way: a row whose id is there already adds nothing, for
    as long as its job is kept. Columns of a CSV without `schema` are text.
    """
    place = Place(flow="ingest", queue=queue, url=url, url_env=url_env, password_file=password_file)
    shape = shape or Shape()
    with plain_errors():
        frame = _read(spark, source, format, schema) if isinstance(source, str) else source
        _check_columns(frame, shape)
        register(spark)
        with place.open() as desk:
            return _load(frame, place, shape, desk, report)


def _load(frame: DataFrame, place: Place, shape: Shape, desk: Desk, report: Report) -> IngestRun:
    context, started = frame.sparkSession.sparkContext, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="toril-ingest-") as folder:
        told = Path(folder, "counts.json")
        writer = frame.write.format(FORMAT).mode("append").option("reportPath", str(told))
        with _watched(context, place.queue, desk, report):
            writer.options(**place.options(), **shape.sink_options()).save()
        counts = json.loads(told.read_text(encoding="utf-8"))
    return IngestRun(
        rows=counts["rows"],
        created=counts["created"],
        duplicates=counts["duplicates"],
        seconds=time.monotonic() - started,
    )


@contextmanager
def _watched(context: SparkContext, queue: str, desk: Desk, report: Report) -> Iterator[None]:
    """Tell how far the write is, by what the queue holds and how many tasks are done.

    Workers may take jobs out meanwhile, so it is what the queue shows, not a count of ours.
    """

    def held() -> int:
        return desk.call(lambda storage: storage.counts(queue)).total

    group, over, before = f"toril-ingest-{token()}", threading.Event(), held()

    def look() -> None:
        while not over.wait(_LOOK_S):
            done, total = _tasks(context, group)
            report(max(0, held() - before), None, f"{done} of {total} tasks done" if total else "")

    watcher = threading.Thread(target=look, name="toril-ingest", daemon=True)
    context.setJobGroup(group, f"toril ingest into '{queue}'")
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        # None takes it away, though its type does not say so.
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def _tasks(context: SparkContext, group: str) -> tuple[int, int]:
    tracker = context.statusTracker()
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in () if info is None else info.stageIds:
            found = tracker.getStageInfo(stage)
            if found is not None:
                done += found.numCompletedTasks
                total += found.numTasks
    return done, total


def _read(spark: SparkSession, source: str, format: str | None, schema: str | None) -> DataFrame:
    from pyspark.errors import AnalysisException, ParseException

    chosen = format or _format_of(spark, source)
    if chosen not in FORMATS:
        raise InvalidOption(
            f"ingest: format '{printable(chosen, 40)}' is unknown.{suggest(chosen, FORMATS)}"
            f" Known: {', '.join(FORMATS)}"
        )
    reader = spark.read
    try:
        if chosen == "table":
            return reader.table(source)
        if schema is not None:
            reader = reader.schema(schema)
        if chosen == "csv":
            reader = reader.options(header=True, mode="FAILFAST")
        elif chosen == "json":
            reader = reader.options(mode="FAILFAST")
        return reader.format(chosen).load(source)
    except (AnalysisException, ParseException) as error:
        first = str(error).strip().splitlines()[0]
        raise InvalidOption(
            f"ingest: '{printable(source, 200)}' cannot be read as {chosen}:"
            f" {printable(first, 200)}"
        ) from None


def _format_of(spark: SparkSession, source: str) -> str:
    """Tell the format by the ending of the path, or of the files in a directory."""
    files = Files(spark, source)
    names = [source, *files.sizes()] if "*" not in source else [source]
    for name in names:
        for packed in _PACKED:
            name = name.removesuffix(packed)
        found = _ENDINGS.get(name.rpartition(".")[2].lower())
        if found is not None:
            return found
    if "*" not in source and not files.exists():
        raise InvalidOption(
            f"ingest: nothing is at '{printable(source, 200)}';"
            " for a table of Spark's catalog say format 'table'"
        )
    raise InvalidOption(
        f"ingest: '{printable(source, 200)}' does not tell its format; give one of"
        f" {', '.join(FORMATS)}"
    )


def _check_columns(frame: DataFrame, shape: Shape) -> None:
    for column in shape.named():
        if column not in frame.columns:
            raise InvalidOption(
                f"ingest: no column '{printable(column, 60)}'.{suggest(column, frame.columns)}"
                f" Columns: {printable(', '.join(frame.columns), 300)}"
            )
