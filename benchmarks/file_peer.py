"""One workload of toril on a file storage, in a process of its own; prints one line of JSON.

python -m benchmarks.file_peer life|serve <directory> <jobs> <callers> <durability>
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any, Final

from benchmarks.compare.adapters.measure import payload
from toril import FileStorage, JobContext, Queue

POLL_S: Final = 3600.0
"""Far away, so that what is measured is the wake-up."""

Data = dict[str, Any]


async def life(directory: str, jobs: int, callers: int, durability: str) -> None:
    """Add, run, done: callers hand in one job at a time, a worker beside them runs them."""
    queue: Queue[Data, int] = Queue("life", FileStorage(directory, durability=durability))
    done, over = 0, asyncio.Event()

    async def handler(job: JobContext[Data]) -> int:
        return int(job.data["n"])

    def count(_job: object, _result: object) -> None:
        nonlocal done
        done += 1
        if done == jobs:
            over.set()

    worker = queue.execute(handler, concurrency=callers)
    worker.hooks.on("completed", count)

    async def caller(lane: int) -> None:
        for number in range(lane, jobs, callers):
            await queue.enqueue(f"job-{number}", payload(number))

    async with queue:
        begun = time.perf_counter()
        await asyncio.gather(*(caller(lane) for lane in range(callers)), over.wait())
        seconds = time.perf_counter() - begun
        counts = await queue.storage.counts("life")
    assert counts.completed == jobs, counts
    print(json.dumps({"jobs": jobs, "seconds": seconds}))


async def serve(directory: str, _jobs: int, callers: int, durability: str) -> None:
    """Work until stdin ends; a handler tells when it started, on the machine's own clock."""
    storage = FileStorage(directory, durability=durability, poll=POLL_S)
    queue: Queue[Data, int] = Queue("serve", storage)

    async def handler(_job: JobContext[Data]) -> int:
        return time.monotonic_ns() // 1000

    queue.execute(handler, concurrency=callers)
    async with queue:
        print(json.dumps({"ready": True}), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    verb, where, jobs_, callers_, durability_ = sys.argv[1:]
    asyncio.run({"life": life, "serve": serve}[verb](where, int(jobs_), int(callers_), durability_))
