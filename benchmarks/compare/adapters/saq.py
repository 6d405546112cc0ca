"""saq: JSON by orjson, results polled, for `Job.refresh` misses those that are too quick."""

from __future__ import annotations

import math
import time
from typing import Any

import orjson
from saq import Queue, Worker

from benchmarks.compare.adapters.loops import AsyncAdapter, main
from benchmarks.compare.adapters.measure import Data


class Saq(AsyncAdapter):
    """Functions by name. Delayed jobs are due at whole seconds and looked for once a second."""

    async def open(self) -> None:
        """Connect; one operation per slot of the worker may be under way."""
        self.queue = Queue.from_url(
            self.given.where,
            name=self.given.queue,
            dump=lambda value: orjson.dumps(value).decode(),
            load=orjson.loads,
            max_concurrent_ops=max(20, self.given.concurrency),
        )
        await self.queue.connect()

    async def add(self, data: Data) -> None:
        """Hand in one job."""
        await self.queue.enqueue("job", data=data)

    async def add_late(self, data: Data, delay_s: float) -> None:
        """Hand in a job that is due later."""
        await self.queue.enqueue("job", data=data, scheduled=math.ceil(time.time() + delay_s))

    async def call(self, data: Data) -> Any:
        """Hand in a job and wait for its result."""
        return await self.queue.apply("job", data=data, timeout=60, poll_interval=self.given.poll_s)

    async def work(self) -> None:
        """Run a worker until cancelled."""
        functions = [("job", self._job)]
        await Worker(self.queue, functions, concurrency=self.given.concurrency).start()

    async def _job(self, _context: Any, *, data: Data) -> int:
        return await self.handle(data)


if __name__ == "__main__":
    main(Saq)
