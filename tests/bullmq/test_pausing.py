"""Pause on one side, add on another, resume on a third: nothing is lost."""

from __future__ import annotations

from typing import Final, Literal

import pytest

from tests.bullmq.pair import Pair, Recorder
from toril import Worker

pytestmark = pytest.mark.node

Who = Literal["toril", "node", "next"]

# 5.62's own pause and resume overwrite a list that a 6.x client filled: a loss that nobody
# beside them can prevent. Everything else must lose nothing.
SAFE: Final[list[tuple[Who, Who, Who]]] = [
    (pauser, adder, resumer)
    for pauser in ("toril", "node", "next")
    for adder in ("toril", "node", "next")
    for resumer in ("toril", "node", "next")
    if resumer != "node" or "next" not in (pauser, adder)
]


async def pause(pair: Pair, who: Who) -> None:
    if who == "toril":
        await pair.queue.pause()
    else:
        await (pair.node if who == "node" else pair.next).pause()


async def resume(pair: Pair, who: Who) -> None:
    if who == "toril":
        await pair.queue.resume()
    else:
        await (pair.node if who == "node" else pair.next).resume()


async def add(pair: Pair, who: Who, job_id: str, **options: int) -> None:
    if who == "toril":
        await pair.queue.add("job", None, id=job_id, **options)  # type: ignore[arg-type]
    else:
        await (pair.node if who == "node" else pair.next).add("job", None, jobId=job_id, **options)


@pytest.mark.parametrize(("pauser", "adder", "resumer"), SAFE)
async def test_nothing_is_lost(pair: Pair, pauser: Who, adder: Who, resumer: Who) -> None:
    for who in ("toril", "node", "next"):
        await add(pair, who, f"before-{who}")
    await add(pair, "node", "urgent-before", priority=1)
    await pause(pair, pauser)
    assert await pair.queue.is_paused()
    await add(pair, adder, "while-1")
    await add(pair, adder, "while-2")
    await add(pair, adder, "urgent-while", priority=1)
    handler = Recorder()
    async with Worker(pair.queue, handler):
        await resume(pair, resumer)
        await handler.ran(7)
    before = {"before-toril", "before-node", "before-next", "urgent-before"}
    assert set(handler.ids) == before | {"while-1", "while-2", "urgent-while"}
    assert len(handler.ids) == 7
    assert (await pair.queue.get_job_counts()).ready == 0


@pytest.mark.parametrize("pauser", ["node", "next"])
async def test_toril_works_nothing_while_another_paused_the_queue(pair: Pair, pauser: Who) -> None:
    await add(pair, "node", "a")
    await pause(pair, pauser)
    await add(pair, "toril", "b")
    assert await pair.queue.is_paused()
    assert not (await pair.claim()).jobs
    handler = Recorder()
    async with Worker(pair.queue, handler):
        await pair.queue.resume()
        await handler.ran(2)
    assert sorted(handler.ids) == ["a", "b"]


@pytest.mark.parametrize("worker", ["node", "next"])
async def test_others_work_nothing_while_toril_paused_the_queue(pair: Pair, worker: Who) -> None:
    await pair.queue.pause()
    queue = pair.node if worker == "node" else pair.next
    node = await queue.work("echo")
    await add(pair, "toril", "a")
    assert await queue.claim("t") is None
    await pair.queue.resume()
    assert [run["id"] for run in await node.ran(1)] == ["a"]


async def test_pausing_twice_from_two_sides_keeps_every_job(pair: Pair) -> None:
    await add(pair, "node", "a")
    await pause(pair, "next")
    await add(pair, "node", "b")
    await pause(pair, "toril")
    await add(pair, "next", "c")
    await pause(pair, "toril")
    await resume(pair, "toril")
    handler = Recorder()
    async with Worker(pair.queue, handler):
        await handler.ran(3)
    assert sorted(handler.ids) == ["a", "b", "c"]


async def test_resuming_keeps_the_order_of_the_line(pair: Pair) -> None:
    for job_id in "abc":
        await add(pair, "node", job_id)
    await pause(pair, "toril")
    for job_id in "de":
        await add(pair, "node", job_id)
    await resume(pair, "toril")
    handler = Recorder()
    async with Worker(pair.queue, handler):
        await handler.ran(5)
    assert handler.ids == list("abcde")


async def test_all_three_work_one_queue(pair: Pair) -> None:
    old = await pair.node.work("echo", options={"concurrency": 3})
    new = await pair.next.work("echo", options={"concurrency": 3})
    handler = Recorder()
    async with Worker(pair.queue, handler, concurrency=3):
        for number in range(60):
            who: Who = ("toril", "node", "next")[number % 3]
            await add(pair, who, f"job-{number:02}")
        await pair.counted("completed", 60)
    runs = [*(run["id"] for run in await old.stop()), *(run["id"] for run in await new.stop())]
    assert sorted(runs + handler.ids) == [f"job-{number:02}" for number in range(60)]
