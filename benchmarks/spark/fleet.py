"""A fleet beside the same workers in as many processes without Spark.

Start-up is excluded: the queue is paused until all workers are there, and the time runs from the
first job's start to the last job's end by the server's clock. Run it alone with
`python -m benchmarks.spark.fleet`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from benchmarks.spark.figure import Figure
from benchmarks.spark.fleet_work import work
from tests.servers import Server, valkey_binary
from toril import State, SyncQueue
from toril.spark import SparkWorkerFleet, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS: Final = 240_000
PROCESSES: Final = 2
CONCURRENCY: Final = 100
_BULK: Final = 1000

Held = SyncQueue[Any, Any]


def measure(spark: SparkSession, reps: int) -> list[Figure]:
    """Drain the same queue both ways, in turns, on the lean layout and on BullMQ's."""
    figures: list[Figure] = []
    with Server(valkey_binary(), "--appendonly", "no") as server:
        for layout, url in (("redis", server.url), ("bullmq", f"bullmq+{server.url}")):
            ours: list[float] = []
            plain: list[float] = []
            for rep in range(reps):
                ways = [(ours, _with_spark(spark, url)), (plain, _without_spark(url))]
                for rates, way in ways[:: -1 if rep % 2 else 1]:
                    rates.append(_rate(url, f"{layout}-{rep}-{len(ours)}-{len(plain)}", way))
            figures.append(
                Figure.of(
                    f"fleet of {PROCESSES} tasks, {JOBS:,} jobs on {layout}",
                    *(ours, plain, "jobs/s", "≥ 0.9 of the same workers without Spark"),
                )
            )
    return figures


Way = Callable[[Held], Any]


def _rate(url: str, name: str, way: Way) -> float:
    """Fill a queue, let it be drained, and tell the jobs a second."""
    with SyncQueue[Any, Any](name, url) as queue:
        for first in range(0, JOBS, _BULK):
            queue.add_many("job", [{"n": n} for n in range(first, first + _BULK)])
        queue.pause()
        with contextmanager(way)(queue):
            queue.resume()
            _until(lambda: queue.get_job_counts().completed == JOBS)
        (newest,) = queue.get_jobs(State.COMPLETED, 0, 1)
        (oldest,) = queue.get_jobs(State.COMPLETED, JOBS - 1, JOBS)
        queue.obliterate()
    assert newest.finished_at is not None
    assert oldest.processed_at is not None
    return JOBS / (newest.finished_at - oldest.processed_at).total_seconds()


def _with_spark(spark: SparkSession, url: str) -> Callable[[Held], Iterator[None]]:
    def way(queue: Held) -> Iterator[None]:
        fleet = SparkWorkerFleet(
            spark, queue.name, work, tasks=PROCESSES, concurrency=CONCURRENCY, url=url
        )
        with fleet.start():
            _until(lambda: len(queue.get_workers()) == PROCESSES)
            yield

    return way


def _without_spark(url: str) -> Callable[[Held], Iterator[None]]:
    def way(queue: Held) -> Iterator[None]:
        command = [sys.executable, "-m", "benchmarks.spark.fleet_peer", url, queue.name]
        peers = [
            subprocess.Popen([*command, str(CONCURRENCY)], stdin=subprocess.PIPE)
            for _ in range(PROCESSES)
        ]
        try:
            _until(lambda: len(queue.get_workers()) == PROCESSES)
            yield
        finally:
            for peer in peers:
                peer.communicate()

    return way


def _until(reached: Callable[[], bool], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > end:
            raise TimeoutError(f"did not come in {seconds:g} s")
        time.sleep(0.2)


if __name__ == "__main__":
    for one in measure(open_session(f"local[{PROCESSES},4]"), 3):
        print(f"{one.name}: {one.ours:,.0f} {one.unit},", end=" ")
        print(f"{one.compared} of {one.other:,.0f} (target {one.target})")
