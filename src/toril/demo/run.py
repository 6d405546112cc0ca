"""Run the demo: hand in, work, kill a worker, wait, and see whether the sums fit."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from toril.context import JobContext
from toril.demo.jobs import (
    HANDLERS,
    HELD,
    LEASE_S,
    QUEUE,
    REPORTS,
    REPORTS_QUEUE,
    THUMBNAILS,
    TOTAL,
    Data,
    new_jobs,
    reports,
)
from toril.errors import JobFailed, TorilError
from toril.queue import Queue
from toril.storage import open_storage
from toril.storage.protocol import Counts
from toril.worker import Worker

Report = Callable[[int, int], None]
DemoQueue = Queue[Data, int | None]

_EVENTS_KEPT: Final = 200_000
_LIMIT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the demo saw; every check must hold."""

    counts: Counts
    seconds: float
    handed_in_s: float
    wait_p50_s: float
    wait_p99_s: float
    recovered: int
    complaint: str
    checks: Mapping[str, bool]


async def run(url: str, report: Report) -> Outcome:
    """Run all of it on one storage; `report` is told how many jobs have ended."""
    storage = open_storage(url)
    await storage.open()
    try:
        queue, second = DemoQueue(QUEUE, storage), Queue[Data, None](REPORTS_QUEUE, storage)
        async with queue, second:
            return await _run(queue, second, url, report)
    finally:
        await storage.close()


async def _run(queue: DemoQueue, second: Queue[Data, None], url: str, report: Report) -> Outcome:
    for one in (queue, second):
        await one.tune(events_kept=_EVENTS_KEPT)
    stalled: list[str] = []
    order: list[int] = []
    all_reported = asyncio.Event()
    begun = time.perf_counter()
    await queue.add_bulk(new_jobs())
    await second.add_bulk(reports())
    handed_in_s = time.perf_counter() - begun
    await queue.enqueue("second-thoughts", {}, delay=3600)
    cancelled = await queue.cancel("second-thoughts")

    async def note(job: JobContext[Data]) -> None:
        order.append(job.data["priority"])
        if len(order) == REPORTS:
            all_reported.set()

    steady = Worker(queue, HANDLERS, concurrency=50, worker_id="steady", reap_interval=LEASE_S / 2)
    steady.on("stalled")(stalled.append)
    doomed = await _start_doomed(url)
    try:
        await asyncio.wait_for(_hands_full(doomed), _LIMIT_S)
    finally:
        doomed.kill()  # without a word, with its hands full
        await doomed.wait()
    async with steady, Worker(second, note, worker_id="by-priority"):
        asked = [asyncio.create_task(_ask(queue, n)) for n in range(THUMBNAILS)]
        counts = await asyncio.wait_for(_until_done(queue, report), _LIMIT_S)
        answers = await asyncio.gather(*asked)
        await asyncio.wait_for(all_reported.wait(), _LIMIT_S)
        complaint = await _complaint(queue)
    seconds = time.perf_counter() - begun
    cuts = statistics.quantiles([took for _, took in answers], n=100)
    return Outcome(
        counts=counts,
        seconds=seconds,
        handed_in_s=handed_in_s,
        wait_p50_s=cuts[49],
        wait_p99_s=cuts[98],
        recovered=len(stalled),
        complaint=complaint,
        checks={
            "every job is accounted for": counts.total == TOTAL and counts.completed == TOTAL - 1,
            "only the poison job failed": counts.failed == 1 and "never work" in complaint,
            "each thumbnail is the right one": all(right for right, _ in answers),
            "reports ran by priority": order == sorted(order),
            "the cancelled job never ran": cancelled.status == "cancelled",
            "the killed worker lost nothing": len(set(stalled)) == HELD,
        },
    )


async def _start_doomed(url: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "toril.demo.doomed", url, stdout=PIPE, start_new_session=True
    )


async def _hands_full(process: Process) -> None:
    assert process.stdout is not None
    if await process.stdout.readline() != b"full\n":
        raise TorilError("the worker process of the demo ended before it was killed")


async def _ask(queue: DemoQueue, number: int) -> tuple[bool, float]:
    """Want a thumbnail now, ahead of the line."""
    begun = time.perf_counter()
    width = await queue.enqueue_and_wait(
        f"thumb-{number}", {"width": 2 * number}, name="thumbnail", lifo=True, timeout=_LIMIT_S
    )
    return width == number, time.perf_counter() - begun


async def _until_done(queue: DemoQueue, report: Report) -> Counts:
    while True:
        counts = await queue.get_job_counts()
        done = counts.completed + counts.failed
        report(done, TOTAL)
        if done == TOTAL:
            return counts
        await asyncio.sleep(0.05)


async def _complaint(queue: DemoQueue) -> str:
    try:
        await queue.wait_until_finished("poison")
    except JobFailed as error:
        return str(error.original_error)
    return "none"
