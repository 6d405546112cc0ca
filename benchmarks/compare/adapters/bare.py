"""A bare asyncio loop: a task per job and no queue, to say what a queue in memory costs."""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.compare.adapters.loops import AsyncAdapter, main
from benchmarks.compare.adapters.measure import Data, payloads


class Bare(AsyncAdapter):
    """Tasks of this process."""

    async def add(self, data: Data) -> None:
        """Run it in a task: there is no line to stand in."""
        await asyncio.ensure_future(_same(data))

    async def call(self, data: Data) -> Any:
        """Run it in a task and wait."""
        return await asyncio.ensure_future(_same(data))

    async def work(self) -> None:
        """Run all of them, so many at once."""
        many, concurrency = payloads(0, self.given.jobs), self.given.concurrency
        for first in range(0, len(many), concurrency):
            await asyncio.gather(*map(self.handle, many[first : first + concurrency]))
        await asyncio.Event().wait()


async def _same(data: Data) -> int:
    return int(data["n"])


if __name__ == "__main__":
    main(Bare)
