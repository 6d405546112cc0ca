"""Who waits for a job hears of its end from the events, and asks only where they may have gaps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from tests.bullmq.unit.test_storage import bench_on, store
from tests.servers import Server
from toril.job import KEEP_NONE, Terms
from toril.outcome import Completed
from toril.storage.protocol import Ending, EndingKind
from toril.testing import Bench

LONG_MS = 60_000


@pytest.fixture
async def bench(server: Server) -> AsyncIterator[Bench]:
    """A bench on an open storage."""
    made = await bench_on(server.url)
    yield made
    await made.storage.close()


async def asked(bench: Bench) -> int:
    """How often the server was asked for endings."""
    stats: Any = await store(bench).client.call("", "INFO", "commandstats")
    lines = dict(line.split(":", 1) for line in stats.decode().splitlines() if ":" in line)
    scores = lines.get("cmdstat_zscore", "calls=0,")
    return int(scores.split("=")[1].split(",")[0])


def waiting_for(bench: Bench, *ids: str) -> asyncio.Task[Sequence[Ending]]:
    """Wait for jobs on the side."""
    return asyncio.create_task(_finished(bench, ids))


async def _finished(bench: Bench, ids: Sequence[str]) -> Sequence[Ending]:
    return await bench.storage.finished(bench.queue, ids, LONG_MS)


async def test_the_result_of_a_job_just_handed_in_comes_without_a_question(bench: Bench) -> None:
    before = await asked(bench)
    await bench.add("a", reply=True)
    task = waiting_for(bench, "a")
    await bench.complete(await bench.take(), b'"heard"')
    (ending,) = await asyncio.wait_for(task, 10)
    assert (ending.kind, ending.result) == (EndingKind.COMPLETED, b'"heard"')
    assert await asked(bench) == before


async def test_a_job_that_ended_before_anybody_waited_is_known_too(bench: Bench) -> None:
    await bench.add("a", "b", reply=True)
    jobs = await bench.take_many(2)
    first = waiting_for(bench, "b")
    await bench.complete(jobs[0], b'"early"')
    await bench.complete(jobs[1], b'"late"')
    assert [one.result for one in await asyncio.wait_for(first, 10)] == [b'"late"']
    (ending,) = await asyncio.wait_for(waiting_for(bench, "a"), 10)
    assert ending.result == b'"early"'


async def test_several_jobs_of_one_wait_end_together(bench: Bench) -> None:
    ids = [f"job-{number:02}" for number in range(40)]
    await bench.add(*ids, reply=True)
    jobs = await bench.take_many(40)
    left = set(ids)
    task = waiting_for(bench, *ids)
    await bench.settle(*(Completed(lease=job.lease, result=b"1") for job in jobs))
    while left:
        left -= {ending.id for ending in await asyncio.wait_for(task, 10)}
        task = waiting_for(bench, *left)
    task.cancel()


async def test_an_old_result_is_not_taken_for_that_of_a_job_handed_in_anew(bench: Bench) -> None:
    terms = Terms(keep_completed=KEEP_NONE)
    await bench.add("other", reply=True)
    other = await bench.take()
    listening = waiting_for(bench, "other")
    for run in (b"1", b"2", b"3"):
        await bench.add("a", reply=True, terms=terms)
        task = waiting_for(bench, "a")
        await bench.complete(await bench.take(), run)
        assert [one.result for one in await asyncio.wait_for(task, 10)] == [run]
    await bench.complete(other, b"0")
    assert [one.result for one in await asyncio.wait_for(listening, 10)] == [b"0"]


async def test_a_failure_is_told_with_its_kind(bench: Bench) -> None:
    await bench.add("a", reply=True)
    task = waiting_for(bench, "a")
    await bench.fail(await bench.take())
    (ending,) = await asyncio.wait_for(task, 10)
    assert ending.kind is EndingKind.FAILED
    assert ending.failure is not None
    assert ending.failure.kind == "ValueError"


async def test_the_marker_of_the_last_job_wakes_nobody_who_is_about_to_wait(bench: Bench) -> None:
    storage = store(bench)
    marker = storage.keys(bench.queue).of("marker")
    await bench.add("a", "b")
    await bench.take()
    await storage.own("outlook", bench.queue)
    assert await storage.client.exists(marker), "there is another job"
    await bench.take()
    assert await storage.client.exists(marker), "as Node leaves it"
    await storage.own("outlook", bench.queue)
    assert not await storage.client.exists(marker)
    waiting = asyncio.create_task(storage.wait([bench.queue], LONG_MS))
    await bench.add("c")
    await asyncio.wait_for(waiting, 10)
