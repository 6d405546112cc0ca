"""How many callers wait for results through few calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from toril import (
    JobContext,
    ManualClock,
    MemoryStorage,
    Queue,
    StorageClosed,
    StorageUnavailable,
    Worker,
)
from toril.storage.protocol import Ending

Ctx = JobContext[object]


class Counted(MemoryStorage):
    def __init__(self, clock: ManualClock | None = None) -> None:
        super().__init__(clock=clock)
        self.asked = 0
        self.fails = 0

    async def finished(self, queue: str, ids: Sequence[str], block_ms: int) -> Sequence[Ending]:
        self.asked += 1
        if self.fails:
            self.fails -= 1
            raise StorageUnavailable("no answer")
        return await super().finished(queue, ids, block_ms)


async def double(job: Ctx) -> object:
    return 2 * int(str(job.data))


async def test_a_thousand_callers_get_their_own_results() -> None:
    storage = Counted()
    queue: Queue[object, object] = Queue("many", storage)
    async with Worker(queue, double, concurrency=50):
        results = await asyncio.gather(*(queue.enqueue_and_wait(f"j{n}", n) for n in range(1000)))
    assert results == [2 * n for n in range(1000)]
    assert storage.asked <= 200, "each caller asked for itself"
    await queue.stop()


async def test_callers_for_one_id_share_one_run_and_one_question() -> None:
    storage = Counted()
    queue: Queue[object, object] = Queue("one", storage)
    runs: list[str] = []

    async def handler(job: Ctx) -> object:
        runs.append(job.id)
        return "shared"

    async with Worker(queue, handler):
        results = await asyncio.gather(*(queue.enqueue_and_wait("j", n) for n in range(50)))
    assert results == ["shared"] * 50
    assert runs == ["j"]
    await queue.stop()


async def test_a_storage_that_does_not_answer_is_asked_again() -> None:
    clock = ManualClock()
    storage = Counted(clock)
    storage.fails = 3
    queue: Queue[object, object] = Queue("flaky", storage)
    async with Worker(queue, double):
        waiting = asyncio.create_task(queue.enqueue_and_wait("j", 4))
        await clock.advance(2)
        assert await waiting == 8
    await queue.stop()


async def test_a_caller_who_gives_up_leaves_nothing_behind() -> None:
    clock = ManualClock()
    storage = Counted(clock)
    queue: Queue[object, object] = Queue("lonely", storage)
    waiting = asyncio.create_task(queue.enqueue_and_wait("j", 4, timeout=None))
    await clock.settle()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await clock.advance(6)
    asked = storage.asked
    await clock.advance(60)
    assert storage.asked == asked, "still asking for a job nobody waits for"
    await queue.stop()
    assert clock.pending == 0


async def test_closing_the_queue_tells_those_who_wait() -> None:
    queue: Queue[object, object] = Queue("closing", "memory:")
    waiting = asyncio.create_task(queue.enqueue_and_wait("j", 4, timeout=None))
    for _ in range(10):
        await asyncio.sleep(0)
    await queue.stop()
    with pytest.raises(StorageClosed, match="the job goes on"):
        await waiting
