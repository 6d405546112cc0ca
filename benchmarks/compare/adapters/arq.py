"""arq: a worker that reads the queue often, for its default is twice a second."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func

from benchmarks.compare.adapters.loops import AsyncAdapter, main
from benchmarks.compare.adapters.measure import Data

POLL_S = 0.002


class Arq(AsyncAdapter):
    """Functions by name, arguments by pickle, results polled."""

    async def open(self) -> None:
        """Connect."""
        settings = RedisSettings.from_dsn(self.given.where)
        self.pool = await create_pool(settings, default_queue_name=self.given.queue)

    async def add(self, data: Data) -> None:
        """Hand in one job."""
        await self.pool.enqueue_job("job", data)

    async def add_late(self, data: Data, delay_s: float) -> None:
        """Hand in a job that is due later."""
        await self.pool.enqueue_job("job", data, _defer_by=timedelta(seconds=delay_s))

    async def call(self, data: Data) -> Any:
        """Hand in a job and wait for its result."""
        job = await self.pool.enqueue_job("job", data)
        return await job.result(timeout=60, poll_delay=self.given.poll_s)

    async def work(self) -> None:
        """Run a worker until cancelled."""
        worker = Worker(
            functions=[func(self._job, name="job")],
            redis_pool=self.pool,
            queue_name=self.given.queue,
            max_jobs=self.given.concurrency,
            poll_delay=POLL_S,
            queue_read_limit=self.given.concurrency,
            handle_signals=False,
            log_results=False,
        )
        await worker.async_run()

    async def _job(self, _context: Any, data: Data) -> int:
        return await self.handle(data)


if __name__ == "__main__":
    main(Arq)
