"""Move finished jobs into Parquet, and out of the store only once they are safe there.

    <path>/runs/<run>/*.parquet      the jobs, as Spark wrote them
    <path>/manifests/<run>.json      put by rename when the files were read again and compared
    <path>/purged/<run>.json         put when the jobs of the run are out of the store

A run without a manifest is none: its jobs are all still in the store. A run with a manifest and
no purge is purged by the next call. So a crash at any step loses nothing, and a job is deleted
only if it still has the end that the archive holds.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from toril.errors import InvalidOption, StorageError, UnsupportedFeature
from toril.failpoints import passing
from toril.ids import ulid
from toril.retry import Seconds, to_ms, to_seconds
from toril.spark.flows.files import Files
from toril.spark.flows.jobs import finished_states, read_jobs
from toril.spark.flows.pace import Report, batches, silent
from toril.spark.flows.place import Desk, Place
from toril.spark.flows.trouble import plain_errors
from toril.spark.schema import JOBS, ddl
from toril.storage.protocol import Ends, Seen, Storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

COLUMNS: Final = {**JOBS, "payload": "binary", "result_bytes": "binary"}
"""`data` and `result` as text; what is no text stands in `payload` and `result_bytes`."""

RUNS: Final = "runs"
MANIFESTS: Final = "manifests"
PURGED: Final = "purged"

_BATCH: Final = 4000
_CALL: Final = 1000
"""Jobs of one batch are deleted by so many to a call, all calls of it under way together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a run wrote: proven to be in its files when the manifest is there."""

    run: str
    storage: str
    queue: str
    states: tuple[str, ...]
    rows: int
    digest: str
    purge: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRun:
    """What one call did.

    `changed` jobs are in the archive as they were and were left in the store, because they were
    retried, removed or ended anew since. `resumed` were deleted for earlier runs that had
    not come that far. `unfinished` names runs without a manifest, whose jobs are all in the store.
    """

    path: str
    run: str | None
    archived: int
    purged: int
    changed: int
    resumed: int
    unfinished: tuple[str, ...]


def archive(
    spark: SparkSession,
    queue: str,
    path: str,
    *,
    states: Sequence[str] = ("completed", "failed"),
    older_than: Seconds = 0,
    purge: bool = True,
    clean: bool = False,
    url: str | None = None,
    url_env: str | None = None,
    password_file: str | None = None,
    report: Report = silent,
) -> ArchiveRun:
    """Write finished jobs to Parquet, read them again, then delete them from the store.

    Called again after a crash it goes on where that one stopped. `clean` deletes the files of
    runs that never got a manifest: only if no other archive of this path is under way.
    """
    place = Place(
        flow="archive", queue=queue, url=url, url_env=url_env, password_file=password_file
    )
    chosen = finished_states(states)
    older_ms = to_ms(to_seconds("older_than", older_than))
    if not path.strip():
        raise InvalidOption("archive: the path is empty; name a directory for the Parquet files")
    with plain_errors(), place.open() as desk:
        if purge and not isinstance(desk.storage, Ends):
            raise UnsupportedFeature(
                f"archive: {desk.storage.url} cannot delete jobs by their end; use purge=False"
            )
        flow = _Archive(spark, Files(spark, path), place, desk, report)
        resumed = flow.resume() if purge else 0
        unfinished = flow.unfinished(clean)
        manifest = flow.write(chosen, older_ms, purge)
        purged = flow.purge(manifest) if manifest is not None and purge else 0
    rows = 0 if manifest is None else manifest.rows
    return ArchiveRun(
        path=flow.files.root,
        run=None if manifest is None else manifest.run,
        archived=rows,
        purged=purged,
        changed=rows - purged if purge else 0,
        resumed=resumed,
        unfinished=unfinished,
    )


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """Read the jobs of all runs that were proven, each end of a job once."""
    files = Files(spark, path)
    runs = [files.at(RUNS, one.run) for one in _manifests(files)]
    if not runs:
        return spark.createDataFrame([], ddl(COLUMNS))
    return (
        spark.read.schema(ddl(COLUMNS))
        .parquet(*runs)
        .dropDuplicates(["queue", "id", "finished_at"])
    )


class _Archive:
    """One call: what it works on."""

    def __init__(
        self, spark: SparkSession, files: Files, place: Place, desk: Desk, report: Report
    ) -> None:
        self.files = files
        self._spark = spark
        self._place = place
        self._desk = desk
        self._report = report

    def resume(self) -> int:
        """Delete the jobs of proven runs that were not yet deleted; tell how many."""
        done = set(self.files.sizes(PURGED))
        return sum(
            self.purge(one)
            for one in _manifests(self.files)
            if one.purge
            and f"{one.run}.json" not in done
            and (one.storage, one.queue) == (self._desk.storage.url, self._place.queue)
        )

    def unfinished(self, clean: bool) -> tuple[str, ...]:
        """Name the runs without a manifest, and delete them if asked to."""
        proven = {one.run for one in _manifests(self.files)}
        found = [name for name in self.files.folders(RUNS) if name not in proven]
        if clean:
            for name in found:
                self.files.delete(RUNS, name)
        return tuple(found)

    def write(self, states: Sequence[str], older_ms: int, purge: bool) -> Manifest | None:
        """Write one run and prove it; None where there was nothing to write."""
        from pyspark.sql import Observation

        run = ulid()
        before = time.time_ns() // 1_000_000 - older_ms
        seen = Observation()
        frame = self._jobs(states, before).observe(seen, *_sums())
        self._report(0, None, "reading")
        frame.write.mode("error").parquet(self.files.at(RUNS, run))
        told = seen.get
        rows, digest = int(told["rows"]), str(told["digest"])
        passing("archive_written")
        if not rows:
            self.files.delete(RUNS, run)
            return None
        self._report(rows, rows, "verifying")
        self._prove(run, rows, digest)
        manifest = Manifest(
            run=run,
            storage=self._desk.storage.url,
            queue=self._place.queue,
            states=tuple(states),
            rows=rows,
            digest=digest,
            purge=purge,
        )
        self.files.put(asdict(manifest), MANIFESTS, f"{run}.json")
        passing("archive_verified")
        return manifest

    def _jobs(self, states: Sequence[str], before_ms: int) -> DataFrame:
        from pyspark.sql import functions as f

        asked = [name for name in COLUMNS if name not in ("data", "result")]
        frame = read_jobs(self._spark, self._place, states, asked, until_ms=before_ms)
        for text, stored in (("data", "payload"), ("result", "result_bytes")):
            frame = frame.withColumn(text, f.try_validate_utf8(f.col(stored).cast("string")))
            frame = frame.withColumn(stored, f.when(f.col(text).isNull(), f.col(stored)))
        return frame.select(*COLUMNS)

    def _prove(self, run: str, rows: int, digest: str) -> None:
        """Read the files again; raise unless they hold what was read from the store."""
        self.files.sync(RUNS, run)
        found = self._read(run).agg(*_sums()).collect()[0]
        if (found["rows"], str(found["digest"])) != (rows, digest):
            raise StorageError(
                f"archive: '{self.files.at(RUNS, run)}' holds {found['rows']:,} jobs of {rows:,},"
                " or others than were read; nothing was deleted from the store. fix: run it again"
            )

    def _read(self, run: str) -> DataFrame:
        return self._spark.read.schema(ddl(COLUMNS)).parquet(self.files.at(RUNS, run))

    def purge(self, manifest: Manifest) -> int:
        """Delete the jobs of a proven run that are as the archive has them."""
        from pyspark.sql import functions as f

        rows: Iterator[Any] = (
            self._read(manifest.run)
            .select("id", f.unix_millis("finished_at").alias("at"))
            .toLocalIterator(prefetchPartitions=True)
        )
        done = purged = 0
        for batch in batches(rows, _BATCH):
            seen = [Seen(id=row["id"], finished_ms=row["at"]) for row in batch]
            purged += self._desk.call(partial(_discard, queue=manifest.queue, seen=seen))
            done += len(seen)
            passing("archive_purging")
            self._report(done, manifest.rows, "purging")
        note = {"run": manifest.run, "rows": done, "purged": purged}
        self.files.put(note, PURGED, f"{manifest.run}.json")
        return purged


async def _discard(storage: Storage, queue: str, seen: Sequence[Seen]) -> int:
    assert isinstance(storage, Ends)
    answers = await asyncio.gather(
        *(storage.discard(queue, seen[at : at + _CALL]) for at in range(0, len(seen), _CALL))
    )
    return sum(sum(one) for one in answers)


def _sums() -> list[Column]:
    """How many rows, and a sum over all that they hold, in whatever order they come."""
    from pyspark.sql import functions as f

    digest = f.sum(f.xxhash64(*COLUMNS).cast("decimal(38,0)")).alias("digest")
    return [f.count(f.lit(1)).alias("rows"), digest]


def _manifests(files: Files) -> list[Manifest]:
    found = []
    for name in sorted(files.sizes(MANIFESTS)):
        if name.endswith(".json") and not name.startswith("."):
            fields = json.loads(files.read_text(MANIFESTS, name))
            found.append(Manifest(**{**fields, "states": tuple(fields["states"])}))
    return found
