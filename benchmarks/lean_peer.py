"""One workload of toril on a Redis URL, in a process of its own; prints one line of JSON.

python -m benchmarks.lean_peer add|drain|call|serve|load <url> <queue> <jobs> <concurrency>
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import uvloop

from toril import JobContext, NewJob, Queue, Worker

BULK: Final = 1000
WARM_UP: Final = 1000
LOAD_WORKERS: Final = 10

Figures = dict[str, Any]
Data = dict[str, Any]
Mails = Queue[Data, int]


def payload(number: int) -> Data:
    """About a hundred bytes of JSON, the same as in `node/bullmq.mjs`."""
    return {
        "to": f"user-{number:06d}@example.com",
        "subject": "Your invoice",
        "amount": 12.5,
        "tags": ["a", "b"],
        "n": number,
    }


def say(figures: Figures) -> None:
    print(json.dumps(figures), flush=True)


def cpu_us() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (used.ru_utime + used.ru_stime) * 1e6


def stopwatch() -> Callable[[], Figures]:
    """Start one; calling it tells the time and the CPU time since."""
    cpu, begun = cpu_us(), time.perf_counter()
    return lambda: {"seconds": time.perf_counter() - begun, "cpu_us": cpu_us() - cpu}


def rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def new_jobs(count: int) -> list[NewJob[Data]]:
    return [NewJob(name="job", data=payload(number)) for number in range(count)]


async def add(url: str, name: str, jobs: int, _concurrency: int) -> None:
    """W2: hand in many jobs."""
    async with Mails(name, storage=url) as queue:
        new = new_jobs(jobs)
        await queue.add_bulk(new[:WARM_UP])
        stop = stopwatch()
        for first in range(WARM_UP, jobs, BULK):
            await queue.add_bulk(new[first : first + BULK])
        say({"jobs": jobs - WARM_UP, **stop()})


async def drain(url: str, name: str, jobs: int, concurrency: int) -> None:
    """W3: work the jobs that wait."""
    queue = Mails(name, storage=url)
    done, over = 0, asyncio.Event()
    stop = stopwatch()

    async def handler(job: JobContext[Data]) -> int:
        nonlocal done, stop
        done += 1
        if done == WARM_UP:
            stop = stopwatch()
        if done == jobs:
            over.set()
        return int(job.data["n"])

    queue.execute(handler, concurrency=concurrency)
    async with queue:
        await over.wait()
    figures = stop()  # stopping recorded the last results
    async with queue:
        counts = await queue.storage.counts(name)
    assert counts.completed == jobs, counts
    say({"jobs": jobs - WARM_UP, **figures})


async def call(url: str, name: str, jobs: int, concurrency: int) -> None:
    """W4: hand in a job, wait for its result, `concurrency` callers at once."""
    latencies: list[float] = []

    async def caller(queue: Mails, label: str, numbers: range) -> None:
        for number in numbers:
            begun = time.perf_counter()
            await queue.enqueue_and_wait(f"{label}-{number}", payload(number))
            latencies.append((time.perf_counter() - begun) * 1000)

    async def everybody(queue: Mails, label: str, count: int) -> None:
        lanes = (range(first, count, concurrency) for first in range(concurrency))
        await asyncio.gather(*(caller(queue, label, lane) for lane in lanes))

    async with Mails(name, storage=url) as queue:
        await everybody(queue, "warm", min(WARM_UP, jobs))
        latencies.clear()
        stop = stopwatch()
        await everybody(queue, "call", jobs)
        say({"jobs": jobs, **stop(), "latencies": latencies})


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
        await queue.add_bulk(new_jobs(jobs))
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
    verb, url, name, jobs, concurrency = sys.argv[1:]
    verbs = {"add": add, "drain": drain, "call": call, "serve": serve, "load": load}
    work = verbs[verb](url, name, int(jobs), int(concurrency))
    if os.environ.get("TORIL_BENCH_LOOP") == "asyncio":
        asyncio.run(work)
    else:
        uvloop.run(work)  # of the extra `fast`, as orjson


if __name__ == "__main__":
    main()
