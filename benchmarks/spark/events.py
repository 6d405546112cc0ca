"""Events read through Spark, beside the same reading without it.

The events are those of whole lives: jobs that were handed in, started and completed by a worker.
Beside them stand the same jobs handed in and nothing more, which are the most alike that events can
be: what costs `Bulk` least, and Spark as much as any.

Both sides are given a URL, a queue and a number of partitions; both plan, then read the same
pieces, each piece in a process of its own: Spark into its rows, `Bulk` alone into columns. Runs
alternate, and medians are told. Two more figures tell where the time goes: how fast a task's own
code makes Arrow batches without Spark, and how fast Spark takes batches that are ready, with
nothing read. A partition through Spark keeps two processes busy, its Python worker and the JVM.
Where partitions fill all cores, nothing is left for the second one, and the times of both add up:
no reading is faster than that, and how near it comes is told.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Final

from benchmarks.spark.figure import Figure
from benchmarks.spark.ready import ReadySource
from tests.servers import Server, valkey_binary
from tests.spark.making import keep_all
from toril import JobContext, Queue, Worker
from toril.spark.events_options import NAME, EventsOptions
from toril.spark.events_plan import Piece, Planner
from toril.spark.events_read import Reading
from toril.spark.register import register
from toril.spark.schema import EVENTS
from toril.storage import open_bulk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS: Final = (1, 2)
_JOBS: Final = {"redis": 2_000_000, "bullmq": 300_000}
"""Four events each; so many that the start of a query, some tenths of a second, does not decide."""

_CHUNK: Final = 50_000
_WARM_UPS: Final = 4
"""A JVM takes some ten million rows until its code is as fast as it gets."""


def measure(spark: SparkSession, reps: int) -> Iterator[Figure]:
    """Measure each kind of server storage on a server of its own."""
    register(spark)
    spark.dataSource.register(ReadySource)
    for kind, jobs in _JOBS.items():
        with Server(valkey_binary()) as server:
            url = server.url if kind == "redis" else f"bullmq+{server.url}"
            _fill(url, jobs)
            if kind == "redis":
                for parts in PARTITIONS:
                    yield from _compare(spark, f"{kind}, handed in", url, parts, reps)
            asyncio.run(_work(url, jobs))
            for parts in PARTITIONS:
                yield from _compare(spark, kind, url, parts, reps, target="≥ 0.8")


def _compare(
    spark: SparkSession, what: str, url: str, parts: int, reps: int, target: str = ""
) -> list[Figure]:
    given = {"url": url, "queue": "bench", "partitions": str(parts)}
    events = sum(piece.planned for piece in _pieces(given))
    with ProcessPoolExecutor(parts, mp_context=get_context("spawn")) as pool:
        ways = {
            "spark": _through(spark, NAME, given),
            "ready": _through(spark, ReadySource.name(), given),
            "arrow": _spread(pool, read_arrow, given),
            "columns": _spread(pool, read_columns, given),
        }
        turns = _turns(ways, reps)
    rates = {name: [events / one for one in taken] for name, taken in turns}
    name = f"{what}: events read, {parts} partition{'s' * (parts > 1)}"
    full = parts >= (os.cpu_count() or 1)
    spark_rates, columns, unit = rates["spark"], rates["columns"], "events/s"
    figures = [
        Figure.of(name, spark_rates, columns, unit, target),
        Figure.of(f"{name}, beside its own Arrow batches", spark_rates, rates["arrow"], unit),
        Figure.of(f"{name}, Spark reading nothing", rates["ready"], columns, unit),
    ]
    if full:
        pairs = zip(rates["ready"], rates["arrow"], strict=True)
        added = [1 / (1 / ready + 1 / arrow) for ready, arrow in pairs]
        figures.append(Figure.of(f"{name}, both one after the other", spark_rates, added, unit))
    return figures


def _turns(ways: Mapping[str, Callable[[], None]], reps: int) -> Iterable[tuple[str, list[float]]]:
    """Time every way in turns; the first turns are not counted."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(-_WARM_UPS, reps):
        for name, run in ways.items():
            seconds = _seconds(run)
            if turn >= 0:
                taken[name].append(seconds)
    return taken.items()


def _through(spark: SparkSession, source: str, given: dict[str, str]) -> Callable[[], None]:
    def run() -> None:
        frame = spark.read.format(source).options(**given).load()
        frame.write.format("noop").mode("overwrite").save()

    return run


def read_arrow(given: dict[str, str], piece: Piece) -> int:
    """Read a piece into Arrow batches, as a task does."""
    options = EventsOptions.read(given)
    reading = Reading(
        target=options.target,
        columns=tuple(EVENTS),
        fetch_size=options.fetch_size,
        fail_on_loss=True,
    )
    return sum(batch.num_rows for batch in reading.read(piece))


def read_columns(given: dict[str, str], piece: Piece) -> int:
    """Read a piece into columns and leave them."""
    bulk = open_bulk(given["url"])
    at, rows = piece.after.cursor, 0
    while (page := bulk.read_page(piece.queue, at, piece.until.cursor, 2000)).seen:
        at, rows = page.reached, rows + len(page.columns["number"])
    bulk.close()
    return rows


def _spread(
    pool: ProcessPoolExecutor,
    read: Callable[[dict[str, str], Piece], int],
    given: dict[str, str],
) -> Callable[[], None]:
    def run() -> None:
        # As Spark does: the second process must be told where it begins, too.
        pieces = _pieces(given)
        done = [pool.submit(read, given, piece) for piece in pieces]
        assert sum(one.result() for one in done) >= sum(piece.planned for piece in pieces)

    return run


def _pieces(given: dict[str, str]) -> list[Piece]:
    bulk = open_bulk(given["url"])
    planner = Planner(EventsOptions.read(given), bulk, slots=1)
    pieces = planner.pieces({}, planner.plan({}))
    bulk.close()
    return pieces


def _seconds(run: Callable[[], None]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _fill(url: str, jobs: int) -> None:
    bulk = open_bulk(url)
    bulk.write_jobs("bench", ["job-0"], [b"{}"])
    keep_all(url, "bench")
    for first in range(1, jobs, _CHUNK):
        ids = [f"job-{number}" for number in range(first, min(first + _CHUNK, jobs))]
        bulk.write_jobs("bench", ids, [b'{"to":"somebody@example.org"}'] * len(ids))
    bulk.close()


async def _work(url: str, jobs: int) -> None:
    left, done = jobs, asyncio.Event()

    async def work(job: JobContext[Any]) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    async with Queue[Any, Any]("bench", url) as queue, Worker(queue, work, concurrency=100):
        await done.wait()
