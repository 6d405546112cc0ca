"""Events read through Spark, beside the same reading and the same Arrow batches without it.

Both sides read the same pieces with the same code, each piece in a process of its own; what
differs is Spark: planning, tasks, and the way from a Python worker into the JVM. Runs alternate,
and medians are told. Columns alone, without Arrow, are told as well, against nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from typing import TYPE_CHECKING, Final

from benchmarks.spark.figure import Figure
from tests.servers import Server, valkey_binary
from tests.spark.making import keep_all
from toril.spark.events_options import NAME, EventsOptions
from toril.spark.events_plan import Piece, Planner
from toril.spark.events_read import Reading
from toril.spark.register import register
from toril.spark.schema import EVENTS
from toril.storage import open_bulk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS: Final = 2
_JOBS: Final = {"redis": 1_500_000, "bullmq": 250_000}
"""Two events each; so many that the start of a query, some tenths of a second, does not decide."""

_CHUNK: Final = 50_000


def measure(spark: SparkSession, reps: int) -> list[Figure]:
    """Measure each kind of server storage on a server of its own."""
    register(spark)
    figures: list[Figure] = []
    for kind, jobs in _JOBS.items():
        with Server(valkey_binary()) as server:
            url = server.url if kind == "redis" else f"bullmq+{server.url}"
            _fill(url, jobs)
            figures += _compare(spark, kind, url, reps)
    return figures


def _compare(spark: SparkSession, kind: str, url: str, reps: int) -> list[Figure]:
    given = {"url": url, "queue": "bench", "partitions": str(PARTITIONS)}
    pieces = _pieces(given)
    events = sum(piece.planned for piece in pieces)
    frame = spark.read.format(NAME).options(**given)

    def through_spark() -> None:
        frame.load().write.format("noop").mode("overwrite").save()

    with ExitStack() as stack:
        pool = ProcessPoolExecutor(PARTITIONS, mp_context=get_context("spawn"))
        stack.enter_context(pool)
        alone = _spread(pool, read_arrow, given, pieces)
        plain = _spread(pool, read_columns, given, pieces)
        for warm_up in (through_spark, alone, plain):
            warm_up()
        ours, other, columns = [], [], []
        for _ in range(reps):
            ours.append(events / _seconds(through_spark))
            other.append(events / _seconds(alone))
            columns.append(events / _seconds(plain))
    name = f"{kind}: events read, {PARTITIONS} partitions"
    return [
        Figure(
            name=name,
            ours=statistics.median(ours),
            other=statistics.median(other),
            unit="events/s",
            target=">= 0.8 of Bulk into Arrow in as many processes",
        ),
        Figure(
            name=f"{name}, columns without Spark and Arrow",
            ours=statistics.median(columns),
            other=None,
            unit="events/s",
            target="",
        ),
    ]


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
    pieces: Sequence[Piece],
) -> Callable[[], None]:
    def run() -> None:
        done = [pool.submit(read, given, piece) for piece in pieces]
        assert sum(one.result() for one in done) >= sum(piece.planned for piece in pieces)

    return run


def _pieces(given: dict[str, str]) -> list[Piece]:
    bulk = open_bulk(given["url"])
    planner = Planner(EventsOptions.read(given), bulk, PARTITIONS)
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
