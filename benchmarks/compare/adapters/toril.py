"""toril on any of its storages; `TORIL_BENCH_PLAIN=1` does without the extra `fast`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.compare.adapters.loops import AsyncAdapter, main
from benchmarks.compare.adapters.measure import Data, payloads

if os.environ.get("TORIL_BENCH_PLAIN"):
    sys.modules.update({"orjson": None, "uvloop": None})  # type: ignore[dict-item]

from toril import JobContext, Queue
from toril.garbage import spare_collections


class Toril(AsyncAdapter):
    """One API on every storage. The memory storage lives in this process, jobs and worker too."""

    queue: Queue[Data, int]

    async def open(self) -> None:
        """Connect."""
        given = self.given
        self.queue = Queue(given.queue, storage=given.where)
        if not given.where.startswith("memory:"):
            await self.queue.start()
        elif given.verb == "drain":
            await self.queue.add_many("job", payloads(0, given.jobs))
        elif given.verb == "call":
            await self._start()

    async def add(self, data: Data) -> None:
        """Hand in one job."""
        await self.queue.add("job", data)

    async def add_many(self, many: Sequence[Data]) -> None:
        """Hand in up to a thousand."""
        await self.queue.add_many("job", many)

    async def add_late(self, data: Data, delay_s: float) -> None:
        """Hand in a job that is due later."""
        await self.queue.add("job", data, delay=delay_s)

    async def call(self, data: Data) -> Any:
        """Hand in a job and wait for its result."""
        return await self.queue.enqueue_and_wait(f"call-{data['n']}", data)

    async def work(self) -> None:
        """Run a worker until cancelled."""
        await self._start()
        await asyncio.Event().wait()

    async def _start(self) -> None:
        spare_collections()  # as `toril worker` does
        self.queue.execute(self._job, concurrency=self.given.concurrency)
        await self.queue.start()

    async def rest(self) -> None:
        """Record the last results."""
        await self.queue.stop()

    async def check(self) -> None:
        """See that the results are there; the memory storage went with its queue."""
        if self.given.where.startswith("memory:"):
            return
        async with Queue[Data, int](self.given.queue, storage=self.given.where) as queue:
            counts = await queue.storage.counts(queue.name)
        assert counts.completed >= self.given.jobs, counts

    async def _job(self, job: JobContext[Data]) -> int:
        return await self.handle(job.data)


if __name__ == "__main__":
    main(Toril)
