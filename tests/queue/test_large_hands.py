"""Workers that hold more jobs than one call to their storage brings."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.servers import Server, valkey_binary
from toril import JobContext, NewJob, Queue, Worker

JOBS, HAND = 2500, 700


@pytest.mark.parametrize("place", ["memory", "file", "redis", "bullmq"])
async def test_a_large_hand_is_kept_full_without_waiting_for_word(
    tmp_path: Path, place: str
) -> None:
    with Server(valkey_binary()) as server:
        url = {
            "memory": "memory:",
            "file": f"file:{tmp_path}",
            "redis": server.url,
            "bullmq": f"bullmq+{server.url}",
        }[place]
        queue = Queue[int, None]("q", url)
        running, left = 0, JOBS
        full, over = asyncio.Event(), asyncio.Event()

        async def work(job: JobContext[int]) -> None:
            nonlocal running, left
            running += 1
            if running == HAND:
                full.set()
            await full.wait()
            left -= 1
            if not left:
                over.set()

        async with queue:
            await queue.add_bulk([NewJob(name="job", data=n) for n in range(JOBS)])
            # Whoever waited for word, with none under way, would wait for longer than a test may.
            async with Worker(queue, work, concurrency=HAND, block_timeout=600):
                await over.wait()
        assert running == JOBS
