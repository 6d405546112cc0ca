"""A stage for engine tests: memory storage, manual clock, no sleeping."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator

import pytest

from toril import ManualClock, MemoryStorage, Queue, State


class Stage:
    """A queue on a memory storage whose clock stands still until it is moved."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.storage = MemoryStorage(clock=self.clock)
        self.queue: Queue[object, object] = Queue("stage", self.storage)

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    async def state(self, job_id: str) -> State | None:
        status = await self.queue.get_status(job_id)
        return None if status is None else status.state

    async def kinds(self, job_id: str) -> list[str]:
        from toril import Cursor

        events = await self.storage.events("stage", Cursor.START, limit=10_000)
        return [str(event.kind) for event in events if event.job_id == job_id]


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """Give a stage; afterwards no task and no thread of ours may be left."""
    before = asyncio.all_tasks()
    stage = Stage()
    yield stage
    await stage.queue.stop()
    await stage.clock.settle()
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not left, f"leaked tasks: {left}"
    threads = [t.name for t in threading.enumerate() if t.name.startswith("toril-heart")]
    assert not threads, f"leaked threads: {threads}"
    gc.collect()
