"""Run jobs of every fate through two queues, and remember what must come of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from toril import JobContext, JobOptions, NewJob, Queue, Worker
from toril.storage.protocol import Counts

Data = dict[str, int]
HOUR = 3600.0


@dataclass
class Story:
    """What happened to one queue, told by its handlers and by its store."""

    added: int = 0
    cancelled: int = 0
    raised: Counter[str] = field(default_factory=Counter)
    retried: int = 0
    counts: Counts | None = None


async def run_mixed(url: str, names: list[str], number: int) -> dict[str, Story]:
    """Add `number` jobs to all queues together and work them, until only the latest are left."""
    stories = {name: Story() for name in names}
    for name, story in stories.items():
        await _run(url, name, number // len(names), story)
    return stories


async def _run(url: str, name: str, number: int, story: Story) -> None:
    async def handle(job: JobContext[Data]) -> int:
        kind = job.data["number"] % 20
        if kind == 0 or (kind == 1 and job.attempt == 1):
            story.raised["order" if kind == 0 else "peer"] += 1
            story.retried += job.attempt < job.max_attempts
            if kind == 0:
                raise ValueError(f"order {job.data['number']} has no weight")
            raise ConnectionError("the peer at 10.0.0.7 hung up")
        await asyncio.sleep(0)
        return job.data["number"]

    queue = Queue[Data, int](name, storage=url)
    async with queue:
        await queue.tune(events_kept=10 * number)
        for start in range(0, number, 1000):
            jobs = [_job(one) for one in range(start, min(start + 1000, number))]
            story.added += len(await queue.add_bulk(jobs))
        late = [one for one in range(number) if one % 100 == 5]
        for one in late:
            story.cancelled += (await queue.cancel(f"job-{one}")).status == "cancelled"
        left = len([one for one in range(number) if one % 100 == 4])
        async with Worker(queue, handle, concurrency=100, worker_id=f"worker-of-{name}"):
            await asyncio.wait_for(_worked(queue, left), 600)
        story.counts = await queue.get_job_counts()


def _job(number: int) -> NewJob[Data]:
    options = JobOptions(attempts=2, backoff=0.05)
    match number % 20:
        case 2:
            options = JobOptions(priority=1 + number % 3)
        case 3:
            options = JobOptions(delay=0.2)
    if number % 100 in (4, 5):
        options = JobOptions(delay=HOUR)
    name = "order" if number % 20 == 0 else "email"
    return NewJob(name=name, data={"number": number}, id=f"job-{number}", options=options)


async def _worked(queue: Queue[Data, int], left: int) -> None:
    while True:
        counts = await queue.get_job_counts()
        if counts.waiting + counts.prioritized + counts.active == 0 and counts.delayed == left:
            return
        await asyncio.sleep(0.05)
