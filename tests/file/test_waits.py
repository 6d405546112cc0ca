"""A wait ends on time, also where sums of times are not exact."""

from __future__ import annotations

import asyncio
from pathlib import Path

from toril.clock import ManualClock
from toril.storage.file import FileStorage


def uneven_ms() -> int:
    """A time in ms from which 5 s later is, in floating point, a hair before now plus 5 s."""
    return next(ms for ms in range(100_000) if ms / 1000 + 5.0 > (ms + 5_000) / 1000)


async def test_a_wait_ends_although_its_times_do_not_add_up(tmp_path: Path) -> None:
    clock = ManualClock()
    storage = FileStorage(tmp_path / "store", durability="memory", clock=clock)
    await storage.open()
    try:
        clock.shift(uneven_ms())
        wait = asyncio.ensure_future(storage.wait(["q"], 5_000))
        await asyncio.sleep(0)
        await storage.counts("q")  # answered in order: after it the wait has looked, and sleeps
        await clock.settle()
        clock.shift(5_000)
        async with asyncio.timeout(5):
            await wait
    finally:
        await storage.close()
