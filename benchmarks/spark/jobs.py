"""Jobs read and written by Spark, beside the same blocking client without Spark.

Both sides have two partitions: tasks of Spark there, processes here. What is compared is measured
in turns, in one session on one server.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Final

from benchmarks.spark.figure import Figure
from tests.servers import Server, valkey_binary
from toril.ids import ulid
from toril.job import DEFAULT_TERMS, JobSpec, State, Terms
from toril.resp.sync import SyncClient
from toril.resp.url import parse_url
from toril.spark.jobs_source import JobsSource
from toril.spark.jobs_write import JobsWriter
from toril.spark.register import register
from toril.spark.target import Target
from toril.storage import open_bulk
from toril.storage.bullmq.bulk import BullmqBulk
from toril.storage.bullmq.intake import add_command
from toril.storage.bullmq.keys import keys_of
from toril.storage.bullmq.official import scripts
from toril.storage.columns import Bulk, JobColumns, Slice, Written, spread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

JOBS: Final = {"redis": 1_000_000, "bullmq": 300_000}
"""Read and written: so many that the start of a query, some tenths of a second, does not decide."""
PARTITIONS: Final = 2
_PIECE: Final = 2000
_OFFICIALLY: Final = 1000

Rates = Mapping[str, Callable[[], float]]


def measure(spark: SparkSession, reps: int) -> list[Figure]:
    """Measure reading and writing on both layouts of a server."""
    register(spark)
    figures: list[Figure] = []
    pool = ProcessPoolExecutor(PARTITIONS, mp_context=get_context("spawn"))
    with Server(valkey_binary()) as server, pool:
        for layout in ("redis", "bullmq"):
            url = server.url if layout == "redis" else f"bullmq+{server.url}"
            figures += _read(spark, pool, url, layout, reps)
            _empty(server)
            figures += _write(spark, pool, server, url, layout, reps)
    return figures


def _read(
    spark: SparkSession, pool: ProcessPoolExecutor, url: str, layout: str, reps: int
) -> list[Figure]:
    queue, count = f"read-{layout}", JOBS[layout]
    with _Opened(url) as bulk:
        for first in range(0, count, 10_000):
            ids, payloads = _rows(first, first + 10_000)
            bulk.write_jobs(queue, ids, payloads)
        cuts = bulk.cut_jobs(queue, State.WAITING, PARTITIONS)
    reader = spark.read.format("toril_jobs").option("url", url).option("queue", queue)
    frame = reader.option("partitions", PARTITIONS).load()
    rates = _in_turns(
        {
            "spark": lambda: _timed(
                count, lambda: frame.write.format("noop").mode("overwrite").save()
            ),
            "alone": lambda: _together(
                pool, count, [partial(_scan, url, queue, cut) for cut in cuts]
            ),
        },
        reps,
    )
    return [
        Figure.of(
            f"job read, all columns ({layout}), beside Bulk alone",
            *(rates["spark"], rates["alone"], "jobs/s", "≥ 0.8"),
        )
    ]


def _write(
    spark: SparkSession,
    pool: ProcessPoolExecutor,
    server: Server,
    url: str,
    layout: str,
    reps: int,
) -> list[Figure]:
    count = JOBS[layout]
    frame = spark.range(0, count, 1, PARTITIONS).selectExpr(
        "concat('order-', id) AS id", "id AS number", "'some text of a job' AS text"
    )
    frame = frame.cache()
    frame.count()
    half = count // PARTITIONS
    shares = [(part * half, part * half + half) for part in range(PARTITIONS)]

    def by_spark(source: str) -> float:
        _empty(server)
        return _timed(count, lambda: _save(frame, source, url))

    def alone() -> float:
        _empty(server)
        queue = ulid()
        return _together(pool, count, [partial(_fill, url, queue, *share) for share in shares])

    ways: dict[str, Callable[[], float]] = {
        "spark": lambda: by_spark(JobsSource.name()),
        "alone": alone,
    }
    if layout == "bullmq":
        spark.dataSource.register(OfficialSource)
        ways["official"] = lambda: by_spark(OfficialSource.name())
    rates = _in_turns(ways, reps)
    frame.unpersist()
    figures = [
        Figure.of(
            f"bulk write ({layout}), beside the client alone",
            *(rates["spark"], rates["alone"], "jobs/s", "≥ 0.8"),
        )
    ]
    if "official" in rates:
        figures.append(
            Figure.of(
                "bulk write (bullmq), beside the official script in the same writer",
                *(rates["spark"], rates["official"], "jobs/s", "≥ 1.5"),
            )
        )
    return figures


def _save(frame: DataFrame, source: str, url: str) -> None:
    writer = frame.write.format(source).mode("append").option("url", url)
    writer.option("queue", ulid()).option("idColumn", "id").save()


def _in_turns(ways: Rates, reps: int) -> Mapping[str, Sequence[float]]:
    """Measure each way once to warm it, then all of them in turns."""
    for way in ways.values():
        way()
    found: dict[str, list[float]] = defaultdict(list)
    for rep in range(reps):
        names = list(ways) if rep % 2 == 0 else list(ways)[::-1]
        for name in names:
            found[name].append(ways[name]())
    return found


def _timed(count: int, action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return count / (time.perf_counter() - begun)


def _together(
    pool: ProcessPoolExecutor, count: int, parts: Sequence[Callable[[], tuple[float, float]]]
) -> float:
    """Run parts at the same time, each in a process; from the first start to the last end."""
    spans = [future.result() for future in [pool.submit(part) for part in parts]]
    return count / (max(end for _, end in spans) - min(begun for begun, _ in spans))


def _scan(url: str, queue: str, cut: Slice) -> tuple[float, float]:
    with _Opened(url) as bulk:
        begun = time.time()
        for _ in bulk.scan_jobs(queue, cut, tuple(JobColumns.__annotations__)):
            pass
        return begun, time.time()


def _fill(url: str, queue: str, first: int, stop: int) -> tuple[float, float]:
    ids, payloads = _rows(first, stop)
    with _Opened(url) as bulk:
        begun = time.time()
        for at in range(0, len(ids), _PIECE):
            bulk.write_jobs(queue, ids[at : at + _PIECE], payloads[at : at + _PIECE])
        return begun, time.time()


def _rows(first: int, stop: int) -> tuple[list[str], list[bytes]]:
    numbers = range(first, stop)
    text = b'{"id":"order-%d","number":%d,"text":"some text of a job"}'
    return [f"order-{one}" for one in numbers], [text % (one, one) for one in numbers]


def _empty(server: Server) -> None:
    client = SyncClient(parse_url(server.url))
    client.call("", "FLUSHALL")
    client.close()


class _Opened:
    """A blocking side that is closed at the end."""

    def __init__(self, url: str) -> None:
        self._bulk = open_bulk(url)

    def __enter__(self) -> Bulk:
        return self._bulk

    def __exit__(self, *_: object) -> None:
        self._bulk.close()


class OfficialBulk(BullmqBulk):
    """Writes by the official script, one call per job, many in a pipeline."""

    def write_jobs(
        self,
        queue: str,
        ids: Sequence[str],
        payloads: Sequence[bytes],
        names: Sequence[str] | str = "job",
        terms: Sequence[Terms] | Terms = DEFAULT_TERMS,
        origin: str = "",
    ) -> Written:
        """Add jobs; they are all taken to be new."""
        keys = keys_of(self.address, queue)
        now = self._now()
        columns = zip(ids, payloads, spread(names, len(ids)), spread(terms, len(ids)), strict=True)
        commands = [
            add_command(keys, JobSpec(id=one, payload=data, name=name, terms=own), now)
            for one, data, name, own in columns
        ]
        self._client.learn(scripts()["addStandardJob"])
        for first in range(0, len(commands), _OFFICIALLY):
            self._client.pipeline(keys.base, commands[first : first + _OFFICIALLY])
        return Written(created=len(ids), duplicates=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficialTarget(Target):
    """A target whose jobs go through the official script."""

    def open(self) -> Bulk:
        """Open the slower writer."""
        return OfficialBulk(self.resolve())


class OfficialSource(JobsSource):
    """The same source and writer; only the script differs."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "toril_jobs_official"

    def writer(self, schema: StructType, overwrite: bool) -> JobsWriter:
        """Write through the official script."""
        plan = super().writer(schema, overwrite).plan
        target = OfficialTarget(
            source=plan.target.source,
            url=plan.target.url,
            url_env=plan.target.url_env,
            password_file=plan.target.password_file,
        )
        return JobsWriter(replace(plan, target=target))
