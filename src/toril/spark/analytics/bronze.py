"""Keep the events of queues for good: as read, each exactly once, in Parquet."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from toril.errors import InvalidOption, StorageError, TorilWarning
from toril.failpoints import passing
from toril.ids import check_name
from toril.spark.analytics.lake import Lake
from toril.spark.analytics.manifest import (
    FOLDER,
    Entry,
    TornFile,
    check_files,
    folder_of,
    read_entries,
    record,
)
from toril.spark.events_options import EARLIEST, NAME, EventsOptions
from toril.spark.register import register
from toril.spark.schema import EVENTS, GAP, ddl
from toril.storage.local import hold_embedded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHECKPOINT: Final = "checkpoint"
_ORIGIN: Final = "toril.json"
"""Written before a checkpoint is used: the number of its first batch and where that starts."""

BRONZE: Final = {**EVENTS, "batch": "bigint"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BronzeRun:
    """What one run added; `offsets` is where each queue was left."""

    batches: int
    rows: int
    gaps: int
    lost: int
    offsets: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Origin:
    first: int
    starting: str


def bronze(
    spark: SparkSession,
    lake: str,
    *,
    queues: Sequence[str],
    url: str | None = None,
    url_env: str | None = None,
    password_file: str | None = None,
    fail_on_data_loss: bool = True,
    rebuild: bool = False,
    max_rows: int | None = None,
) -> BronzeRun:
    """Read the events that came since the last run, up to now, and add them to the lake.

    A batch counts once its manifest entry is there; a run that dies is made good by the next.
    Raises `StorageError` where checkpoint and output do not belong together: with `rebuild` the
    checkpoint is thrown away, and reading goes on where the output ends.
    """
    options = _options(queues, url, url_env, password_file, fail_on_data_loss, max_rows)
    checked = EventsOptions.read(options)
    register(spark)
    place = Lake(spark, lake)
    entries = read_entries(place)
    origin = _origin(place, entries, rebuild)
    starting = _starting(place, origin, queues)
    with hold_embedded(checked.target.resolve()):
        writer = _Writer(place, origin, entries)
        reader = spark.readStream.format(NAME).options(**options)
        stream = reader.option("startingOffsets", starting).load()
        query = (
            stream.writeStream.foreachBatch(writer.write)
            .option("checkpointLocation", place.at(CHECKPOINT))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()
    return writer.told()


def read_bronze(spark: SparkSession, lake: str) -> DataFrame:
    """Read the events kept so far, with the number of the batch that brought each.

    Only files that a manifest entry names are read. Those that are missing or torn are left out,
    with a warning that names them; `torn_files` lists them.
    """
    place = Lake(spark, lake)
    whole, torn = check_files(place, read_entries(place))
    if torn:
        shown = "; ".join(f"{file.path} {file.fact}" for file in torn[:5])
        more = f"; and {len(torn) - 5:,} more" if len(torn) > 5 else ""
        warnings.warn(
            f"bronze at {place.root}: {len(torn):,} files left out: {shown}{more};"
            " restore them, or read the events again into another lake",
            TorilWarning,
            stacklevel=2,
        )
    if not whole:
        return spark.createDataFrame([], ddl(BRONZE))
    reader = spark.read.schema(ddl(BRONZE)).option("basePath", place.at(FOLDER))
    return reader.parquet(*whole)


def torn_files(spark: SparkSession, lake: str) -> list[TornFile]:
    """Name the files of bronze that are missing or not whole."""
    place = Lake(spark, lake)
    return check_files(place, read_entries(place))[1]


class _Writer:
    """Writes micro-batches; Spark calls it on the driver, again for a batch it is not sure of."""

    def __init__(self, lake: Lake, origin: _Origin, entries: Sequence[Entry]) -> None:
        self._lake = lake
        self._origin = origin
        self._known = {entry.batch: entry for entry in entries}
        self._added: list[Entry] = []

    def write(self, events: DataFrame, epoch: int) -> None:
        """Overwrite the directory of a batch, then record it; one that is recorded stays."""
        batch = self._origin.first + epoch
        end = read_offsets(self._lake, epoch)
        known = self._known.get(batch)
        if known is not None:
            if known.end != end:
                raise _mismatch(self._lake, f"batch {batch} ends elsewhere in each")
            return
        if epoch and batch - 1 not in self._known:
            raise _mismatch(self._lake, f"batch {batch - 1} is not in the output")
        rows, gaps, lost = _write(events, self._lake.at(FOLDER, folder_of(batch)))
        passing("bronze_written")
        sizes = self._lake.sizes(FOLDER, folder_of(batch))
        files = {name: size for name, size in sizes.items() if name.endswith(".parquet")}
        entry = Entry(batch=batch, files=files, rows=rows - gaps, gaps=gaps, lost=lost, end=end)
        record(self._lake, entry)
        passing("bronze_recorded")
        self._known[batch] = entry
        self._added.append(entry)

    def told(self) -> BronzeRun:
        """Sum up what was added."""
        newest = max(self._known.values(), key=lambda entry: entry.batch, default=None)
        return BronzeRun(
            batches=len(self._added),
            rows=sum(entry.rows for entry in self._added),
            gaps=sum(entry.gaps for entry in self._added),
            lost=sum(entry.lost for entry in self._added),
            offsets={} if newest is None else _places(newest.end),
        )


def _write(events: DataFrame, path: str) -> tuple[int, int, int]:
    """Write a batch and give its rows, its gaps, and the events lost in them."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    is_gap = f.col("kind") == GAP
    counted = events.observe(
        seen,
        f.count(f.lit(1)).alias("rows"),
        f.count_if(is_gap).alias("gaps"),
        f.coalesce(f.sum(f.when(is_gap, f.col("count"))), f.lit(0)).alias("lost"),
    )
    counted.write.mode("overwrite").parquet(path)
    found = seen.get
    return int(found["rows"]), int(found["gaps"]), int(found["lost"])


def read_offsets(lake: Lake, epoch: int) -> dict[str, Any]:
    """Read where a batch ends from the plan that Spark wrote down before it ran it."""
    version, _, *sources = lake.read_text(CHECKPOINT, "offsets", str(epoch)).splitlines()
    if version != "v1" or len(sources) != 1:
        raise StorageError(
            f"{lake.at(CHECKPOINT)}: offsets are of format '{version}' with {len(sources)} sources,"
            " toril knows 'v1' with one; use a Spark that toril was tested with"
        )
    found: dict[str, Any] = json.loads(sources[0])
    return found


def _origin(lake: Lake, entries: Sequence[Entry], rebuild: bool) -> _Origin:
    """Find where the checkpoint began, or begin one; refuse one that lost its other half."""
    newest = entries[-1] if entries else None
    if rebuild:
        lake.delete(CHECKPOINT)
    elif lake.exists(CHECKPOINT, _ORIGIN):
        origin = _Origin(**json.loads(lake.read_text(CHECKPOINT, _ORIGIN)))
        _check_halves(lake, origin, newest)
        return origin
    elif newest is not None or lake.exists(CHECKPOINT, "offsets"):
        raise _mismatch(lake, "the checkpoint is gone" if newest else "the checkpoint is foreign")
    origin = _Origin(
        first=0 if newest is None else newest.batch + 1,
        starting=EARLIEST if newest is None else json.dumps(_places(newest.end)),
    )
    lake.write_json({"first": origin.first, "starting": origin.starting}, CHECKPOINT, _ORIGIN)
    return origin


def _check_halves(lake: Lake, origin: _Origin, newest: Entry | None) -> None:
    """Both must have seen the same batches, but for the one that a crash cut short."""
    planned = [int(name) for name in lake.sizes(CHECKPOINT, "offsets") if name.isdigit()]
    done = [int(name) for name in lake.sizes(CHECKPOINT, "commits") if name.isdigit()]
    recorded = -1 if newest is None else newest.batch - origin.first
    if recorded > max(planned, default=-1):
        raise _mismatch(lake, "the checkpoint is older than the output")
    if recorded < max(done, default=-1):
        raise _mismatch(lake, "output that the checkpoint knows of is gone")


def _starting(lake: Lake, origin: _Origin, queues: Sequence[str]) -> str:
    """Where the first batch starts; it must know all queues, to carry those on that rest."""
    if origin.starting == EARLIEST:
        return EARLIEST
    places: dict[str, Any] = json.loads(origin.starting)
    missing = sorted(places.keys() - set(queues))
    if missing and not lake.sizes(CHECKPOINT, "offsets"):
        raise InvalidOption(
            f"bronze at {lake.root}: the first run after a rebuild must name all queues of the"
            f" lake, or their events would be read again later; missing: {', '.join(missing)}"
        )
    return json.dumps({queue: place for queue, place in places.items() if queue in queues})


def _places(end: Mapping[str, Any]) -> dict[str, Any]:
    return {queue: {"id": mark["id"], "n": mark["n"]} for queue, mark in end.items()}


def _mismatch(lake: Lake, fact: str) -> StorageError:
    return StorageError(
        f"bronze at {lake.root}: {fact}, so events would be missed or doubled; restore what"
        " is missing, or use rebuild (--rebuild) to go on where the output ends"
    )


def _options(
    queues: Sequence[str],
    url: str | None,
    url_env: str | None,
    password_file: str | None,
    fail_on_data_loss: bool,
    max_rows: int | None,
) -> dict[str, str]:
    if isinstance(queues, str) or not queues:
        raise InvalidOption("bronze: queues= must be a list of one name or more")
    for name in queues:
        check_name("queue", name)
    given = {
        "queues": ",".join(queues),
        "url": url,
        "urlEnv": url_env,
        "passwordFile": password_file,
        "failOnDataLoss": "true" if fail_on_data_loss else "false",
        "maxRowsPerTrigger": None if max_rows is None else str(max_rows),
    }
    return {name: value for name, value in given.items() if value is not None}
