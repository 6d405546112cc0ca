"""Workloads of toril alone, in a process of its own; prints lines of JSON.

python -m benchmarks.upkeep_peer serve|load <url> <queue> <jobs> <concurrency>
"""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Final

from benchmarks.compare.adapters.loops import run_loop
from benchmarks.compare.adapters.measure import Data, Given, payloads, say, stopwatch
from toril import JobContext, Queue, Worker

LOAD_WORKERS: Final = 10

Mails = Queue[Data, int]


def rss_mb() -> float:
    """The memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


async def serve(url: str, name: str, jobs: int, concurrency: int) -> None:
    """Work until stdin ends. A handler tells when it started, on the machine's own clock.

    A name with a comma stands for several queues, each with a worker and connections of its own.
    """

    async def handler(_job: JobContext[Data]) -> int:
        return time.monotonic_ns() // 1000

    queues = [Mails(one, storage=url) for one in name.split(",")]
    for queue in queues:
        queue.execute(handler, concurrency=concurrency)
        await queue.start()
    stop = stopwatch()
    say({"ready": True})
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    say({"jobs": jobs, **stop()})
    for queue in queues:
        await queue.stop()


async def load(url: str, name: str, jobs: int, concurrency: int) -> None:
    """The seed's load test: ten workers in one process, and what they leave behind."""
    done, over = 0, asyncio.Event()

    async def handler(job: JobContext[Data]) -> int:
        nonlocal done
        done += 1
        if done == jobs:
            over.set()
        return int(job.data["n"])

    async with Mails(name, storage=url) as queue:
        await queue.add_many("job", payloads(0, jobs))
        workers = [Worker(queue, handler, concurrency=concurrency) for _ in range(LOAD_WORKERS)]
        gc.collect()
        before = (rss_mb(), len(asyncio.all_tasks()), threading.active_count())
        stop = stopwatch()
        await asyncio.gather(*(worker.start() for worker in workers))
        await over.wait()
        await asyncio.gather(*(worker.stop() for worker in workers))
        figures = stop()
        gc.collect()
        after = (rss_mb(), len(asyncio.all_tasks()), threading.active_count())
        counts = await queue.storage.counts(name)
        assert counts.completed == jobs, counts
    say({"jobs": jobs, **figures, "before": before, "after": after})


def main() -> None:
    given = Given.read()
    verb = {"serve": serve, "load": load}[given.verb]
    run_loop(verb(given.where, given.queue, given.jobs, given.concurrency))


if __name__ == "__main__":
    main()
