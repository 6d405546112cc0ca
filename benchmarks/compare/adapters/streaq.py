"""streaq: a pipeline for bulk, JSON instead of pickle."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from streaq import Worker

from benchmarks.compare.adapters.loops import AsyncAdapter, main
from benchmarks.compare.adapters.measure import Data


class Streaq(AsyncAdapter):
    """Its worker object is the client too."""

    async def open(self) -> None:
        """Connect, unless the worker is to run, which connects by itself."""
        given = self.given
        self.worker = Worker(
            redis_url=given.where,
            redis_kwargs={"max_connections": 4 * given.concurrency + 64},  # a waiter holds two
            queue_name=given.queue,
            concurrency=given.concurrency,
            serializer=json.dumps,
            deserializer=json.loads,
            handle_signals=False,
        )
        self.job = self.worker.task(name="job", ttl=3600)(self._job)
        if given.verb not in ("drain", "serve"):
            await self.worker.__aenter__()

    async def add(self, data: Data) -> None:
        """Hand in one job."""
        await self.job.enqueue(data)

    async def add_many(self, many: Sequence[Data]) -> None:
        """Hand in up to a thousand."""
        await self.worker.enqueue_many([self.job.enqueue(data) for data in many])

    async def add_late(self, data: Data, delay_s: float) -> None:
        """Hand in a job that is due later."""
        await self.job.enqueue(data).start(delay=timedelta(seconds=delay_s))

    async def call(self, data: Data) -> Any:
        """Hand in a job and wait for its result."""
        task = await self.job.enqueue(data)
        return await task.result(60)

    async def work(self) -> None:
        """Run a worker until cancelled."""
        await self.worker.run_async()
        await asyncio.Event().wait()

    async def _job(self, data: Data) -> int:
        return await self.handle(data)


if __name__ == "__main__":
    main(Streaq)
