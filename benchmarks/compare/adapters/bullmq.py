"""bullmq for Python, old and new; only the new one hears of events, so only it can wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import bullmq

from benchmarks.compare.adapters.loops import AsyncAdapter, main
from benchmarks.compare.adapters.measure import Data, Unsupported


class Bullmq(AsyncAdapter):
    """Queue and Worker as in Node; a result comes as an event."""

    async def open(self) -> None:
        """Connect."""
        given = self.given
        self._results: dict[str, asyncio.Future[Any]] = {}
        self._early: dict[str, Any] = {}
        self.connection = {"connection": given.where}
        if given.verb in ("drain", "serve"):
            return
        self.queue = bullmq.Queue(given.queue, self.connection)
        if given.verb == "call":
            if not hasattr(bullmq, "QueueEvents"):
                raise Unsupported("no way to wait for a result")
            self.events = bullmq.QueueEvents(given.queue, self.connection)
            self.events.on("completed", self._completed)
            await asyncio.sleep(0.5)  # it begins at the end of the stream

    async def add(self, data: Data) -> None:
        """Hand in one job."""
        await self.queue.add("job", data)

    async def add_many(self, many: Sequence[Data]) -> None:
        """Hand in up to a thousand."""
        await self.queue.addBulk([{"name": "job", "data": data} for data in many])

    async def add_late(self, data: Data, delay_s: float) -> None:
        """Hand in a job that is due later."""
        await self.queue.add("job", data, {"delay": round(delay_s * 1000)})

    async def call(self, data: Data) -> Any:
        """Hand in a job and wait for its result."""
        job = await self.queue.add("job", data)
        if job.id in self._early:
            return self._early.pop(job.id)
        self._results[job.id] = asyncio.get_running_loop().create_future()
        return await asyncio.wait_for(self._results[job.id], 60)

    def _completed(self, args: Any, _event_id: str) -> None:
        waiting = self._results.pop(args["jobId"], None)
        if waiting is None:
            self._early[args["jobId"]] = args["returnvalue"]
        else:
            waiting.set_result(args["returnvalue"])

    async def work(self) -> None:
        """Run a worker until cancelled."""
        options = {**self.connection, "concurrency": self.given.concurrency}
        self.worker = bullmq.Worker(self.given.queue, self._job, options)
        await asyncio.Event().wait()

    async def _job(self, job: Any, _token: str) -> int:
        return await self.handle(job.data)


if __name__ == "__main__":
    main(Bullmq)
