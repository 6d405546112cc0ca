"""taskiq on a Redis stream, results kept by its Redis backend and polled, JSON by orjson."""

from __future__ import annotations

import asyncio
from typing import Any

from taskiq.api import run_receiver_task
from taskiq.serializers import ORJSONSerializer
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from benchmarks.compare.adapters.loops import AsyncAdapter, main
from benchmarks.compare.adapters.measure import Data


class Taskiq(AsyncAdapter):
    """Delayed jobs need a scheduler process of their own, so there are none."""

    async def open(self) -> None:
        """Connect; the group reads the stream from its beginning."""
        given = self.given
        backend: Any = RedisAsyncResultBackend(
            given.where, result_ex_time=3600, serializer=ORJSONSerializer()
        )
        self.broker = RedisStreamBroker(given.where, queue_name=given.queue, consumer_id="0")
        self.broker = self.broker.with_result_backend(backend)
        self.broker = self.broker.with_serializer(ORJSONSerializer())

        async def job(data: Data) -> int:
            return await self.handle(data)

        self.job = self.broker.register_task(job, task_name="job")
        self.broker.is_worker_process = given.verb in ("drain", "serve")
        await self.broker.startup()

    async def add(self, data: Data) -> None:
        """Hand in one job."""
        await self.job.kiq(data)

    async def call(self, data: Data) -> Any:
        """Hand in a job and wait for its result."""
        task = await self.job.kiq(data)
        return (await task.wait_result(check_interval=self.given.poll_s, timeout=60)).return_value

    async def work(self) -> None:
        """Run a worker until cancelled; parameters are not parsed again, as they are plain."""
        concurrency = self.given.concurrency
        await run_receiver_task(
            self.broker,
            max_async_tasks=concurrency,
            max_prefetch=concurrency,
            validate_params=False,
        )
        await asyncio.Event().wait()


if __name__ == "__main__":
    main(Taskiq)
