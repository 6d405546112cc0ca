"""From a real queue to figures: they agree with what the store itself counts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import Server
from tests.spark import reference
from tests.spark.histories import Told, frame_of, rows_of
from toril import JobContext, JobOptions, NewJob, Queue, Reject, Worker
from toril.errors import InvalidOption
from toril.event import Cursor
from toril.spark.analytics.pipeline import analyze
from toril.spark.analytics.silver import silver_attempts, silver_jobs
from toril.storage import open_bulk
from toril.storage.protocol import Counts

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

Data = dict[str, Any]


async def handle(job: JobContext[Data]) -> int:
    """Do what the job says."""
    if job.name == "flaky" and job.attempt < 2:
        raise ConnectionError(f"peer {job.data['n']} hung up")
    if job.name == "bad":
        raise Reject(f"order {job.data['n']} is void")
    return int(job.data["n"])


def some_jobs(first: int) -> list[NewJob[Data]]:
    """Jobs of every kind."""
    plain = [NewJob(name="plain", data={"n": n}, id=f"p{first}-{n}") for n in range(20)]
    again = JobOptions(backoff=0.01)
    flaky = [
        NewJob(name="flaky", data={"n": n}, id=f"f{first}-{n}", options=again) for n in range(5)
    ]
    bad = [NewJob(name="bad", data={"n": n}, id=f"b{first}-{n}") for n in range(3)]
    soon = [NewJob(name="plain", data={"n": 1}, id=f"d{first}", options=JobOptions(delay=0.05))]
    late = [NewJob(name="plain", data={"n": 1}, id=f"l{first}", options=JobOptions(delay=3600))]
    return [*plain, *flaky, *bad, *soon, *late]


async def work(url: str, name: str, first: int, kept: int | None = None) -> Counts:
    """Add jobs, cancel one, work until only the late ones are left, and count."""
    async with Queue[Data, int](name, url) as queue:
        if kept is not None:
            await queue.tune(events_kept=kept)
        await queue.add_bulk(some_jobs(first))
        await queue.cancel(f"p{first}-19")
        async with Worker(queue, handle, concurrency=5):
            while True:
                counts = await queue.storage.counts(name)
                if counts.completed + counts.failed == 28 * (first + 1):
                    return counts
                await asyncio.sleep(0.01)


def told(row: Row, *names: str) -> tuple[int, ...]:
    """Some totals."""
    return tuple(row[name] for name in names)


async def test_figures_agree_with_the_store_even_after_events_were_lost(
    spark: SparkSession, server: Server, queue: str, tmp_path: Path
) -> None:
    counts = await work(server.url, queue, 0)
    first = analyze(spark, str(tmp_path), queues=[queue], url=server.url, sla_ms=60_000)
    (totals,) = first.gold.totals.collect()
    assert told(totals, "completed", "failed") == (counts.completed, counts.failed) == (25, 3)
    assert told(totals, "added", "cancelled", "unfinished") == (30, 1, counts.delayed)
    assert told(totals, "retried", "lost", "reconciled") == (5, 0, 0)

    counts = await work(server.url, queue, 1, kept=40)
    second = analyze(spark, str(tmp_path), queues=[queue], url=server.url, fail_on_data_loss=False)
    (totals,) = second.gold.totals.collect()
    assert told(totals, "completed", "failed") == (counts.completed, counts.failed) == (50, 6)
    assert totals["unfinished"] == counts.delayed == 2
    assert totals["lost"] == second.bronze.lost > 0
    assert totals["reconciled"] > 0


@pytest.mark.parametrize("scheme", ["", "bullmq+"])
async def test_silver_of_a_real_queue_is_what_a_reader_of_its_log_would_say(
    spark: SparkSession, server: Server, queue: str, scheme: str
) -> None:
    url = scheme + server.url
    counts = await work(url, queue, 0)
    events = read_events(url, queue)
    frame = frame_of(spark, events)
    jobs = rows_of(silver_jobs(frame))
    assert jobs == reference.jobs(events)
    assert rows_of(silver_attempts(frame)) == reference.attempts(events)
    states = [str(row[7]) for row in jobs]
    assert {state: states.count(state) for state in set(states)} == {
        "completed": counts.completed,
        "failed": counts.failed,
        "delayed": counts.delayed,
        "cancelled": 1,
    }
    assert {row[8] for row in jobs if str(row[1]).startswith("f")} == {2}


def read_events(url: str, queue: str) -> list[Told]:
    """Read all events of a queue."""
    bulk = open_bulk(url)
    try:
        columns = bulk.read_events(queue, Cursor.START, limit=10_000)
    finally:
        bulk.close()
    names = list(columns)
    rows = zip(*(columns[name] for name in names), strict=True)  # type: ignore[literal-required]
    return [{"queue": queue, **dict(zip(names, row, strict=True))} for row in rows]


def test_a_wrong_promise_is_refused_before_anything_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(InvalidOption, match="sla_ms=0"):
        analyze(spark, str(tmp_path), queues=["q"], url="redis://127.0.0.1:1", sla_ms=0)
    assert not list(tmp_path.iterdir())
