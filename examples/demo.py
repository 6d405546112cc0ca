"""The main job, end to end: thousands of jobs, some trouble on purpose, and a sum that fits.

Emails, thumbnails that somebody waits for, a peer that fails before it answers, a job nobody can
do, reminders for later, reports by priority, a cancellation, and a worker that dies on the way.
"""

import asyncio
import logging
import statistics
import sys
import time
from collections import Counter

from toril import JobContext, JobFailed, JobOptions, NewJob, Queue, Worker

Data = dict[str, int]

EMAILS, THUMBNAILS, FLAKY, REMINDERS, REPORTS = 4000, 300, 200, 100, 60
TOTAL = EMAILS + THUMBNAILS + FLAKY + REMINDERS + REPORTS + 1  # one that is poison
WIDTH = 30

starts: Counter[tuple[str, int]] = Counter()  # by job and attempt
report_order: list[int] = []
latencies: list[float] = []
dying = asyncio.Event()


async def email(job: JobContext[Data]) -> None:
    starts[job.id, job.attempt] += 1
    if job.worker_id == "doomed" and len(starts) > 1000:
        dying.set()
    await asyncio.sleep(0.02)


async def thumbnail(job: JobContext[Data]) -> int:
    await asyncio.sleep(0.005)
    return job.data["width"] // 2


async def flaky(job: JobContext[Data]) -> None:
    if job.attempt < 3:
        raise ConnectionError("the peer hung up")


async def poison(job: JobContext[Data]) -> None:
    raise ZeroDivisionError("this job can never work")


async def report(job: JobContext[Data]) -> None:
    report_order.append(job.data["priority"])


def new_jobs() -> list[NewJob[Data]]:
    later, soon_again = JobOptions(delay=1), JobOptions(backoff=0.2)
    jobs = [NewJob(name="email", data={"number": n}) for n in range(EMAILS)]
    jobs += [NewJob(name="flaky", data={}, options=soon_again) for _ in range(FLAKY)]
    jobs += [NewJob(name="email", data={}, options=later) for _ in range(REMINDERS)]
    jobs += [NewJob(name="poison", data={}, id="poison", options=soon_again)]
    for priority in (3, 1, 2):  # 1 is the most urgent
        new = NewJob(
            name="report", data={"priority": priority}, options=JobOptions(priority=priority)
        )
        jobs += [new] * (REPORTS // 3)
    return jobs


async def ask(queue: Queue[Data, int | None], number: int) -> bool:
    """Want a thumbnail now, ahead of the line; tell whether it is the right one."""
    begun = time.perf_counter()
    data = {"width": 2 * number}
    width = await queue.enqueue_and_wait(f"thumb-{number}", data, name="thumbnail", lifo=True)
    latencies.append(time.perf_counter() - begun)
    return width == number


async def show_progress(queue: Queue[Data, int | None]) -> None:
    """Redraw one line on a terminal; elsewhere print a line per fifth."""
    shown = 0
    while True:
        counts = await queue.get_job_counts()
        share = (counts.completed + counts.failed) / TOTAL
        bar = "#" * int(share * WIDTH)
        line = f"[{bar:<{WIDTH}}] {share:4.0%}  {counts.active:3} running  {counts.delayed:3} later"
        if sys.stdout.isatty():
            print(f"\r{line}", end="\n" if share == 1 else "", flush=True)
        elif int(share * 5) > shown:
            shown = int(share * 5)
            print(line, flush=True)
        if share == 1:
            return
        await asyncio.sleep(0.05)


async def main() -> int:
    queue = Queue[Data, int | None]("demo", storage="memory:")
    handlers = {f.__name__: f for f in (email, thumbnail, flaky, poison, report)}
    begun = time.perf_counter()
    handed_in = await queue.add_bulk(new_jobs())
    handing_in = time.perf_counter() - begun
    await queue.enqueue("second-thoughts", {}, delay=60)

    doomed = Worker(queue, handlers, concurrency=50, worker_id="doomed")
    running = asyncio.create_task(doomed.run())
    async with queue, Worker(queue, handlers, concurrency=50, worker_id="steady"):
        cancelled = await queue.cancel("second-thoughts")
        progress = asyncio.create_task(show_progress(queue))
        await dying.wait()
        running.cancel()  # the worker dies; what it was doing goes back to the queue
        await asyncio.wait([running])
        right = await asyncio.gather(*(ask(queue, n) for n in range(THUMBNAILS)))
        await asyncio.wait_for(progress, 20)
        seconds = time.perf_counter() - begun
        counts = await queue.get_job_counts()
        try:
            await queue.wait_until_finished("poison")
            complaint = "none"
        except JobFailed as error:
            complaint = str(error.original_error)

    handed_back = sum(count - 1 for count in starts.values())
    print(f"\n{'state':<12}{'jobs':>6}\n{'-' * 18}")
    for state in ("waiting", "prioritized", "delayed", "active", "completed", "failed"):
        print(f"{state:<12}{getattr(counts, state):>6}")
    print(f"{'total':<12}{counts.total:>6}\n")
    cuts = statistics.quantiles(latencies, n=100)
    print(f"handed in    {len(handed_in)} jobs in {handing_in * 1000:.0f} ms")
    print(f"worked       {TOTAL} jobs in {seconds:.2f} s, {TOTAL / seconds:,.0f} a second")
    print(f"thumbnails   p50 {cuts[49] * 1000:.0f} ms, p99 {cuts[98] * 1000:.0f} ms")
    print(f"handed back  {handed_back} jobs of the worker that died, each finished by another")
    print(f"poison       {complaint}\n")

    checks = {
        "every job is accounted for": counts.total == TOTAL and counts.completed == TOTAL - 1,
        "only the poison job failed": counts.failed == 1 and "never work" in complaint,
        "each thumbnail is the right one": all(right),
        "reports ran by priority": report_order == sorted(report_order),
        "the cancelled job never ran": cancelled.status == "cancelled",
        "the dead worker lost nothing": 0 < handed_back <= 50,
    }
    for what, holds in checks.items():
        print(f"{'ok ' if holds else 'BAD'} {what}")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    logging.getLogger("toril").setLevel(logging.CRITICAL)  # the trouble is on purpose
    sys.exit(asyncio.run(main()))
