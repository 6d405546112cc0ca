"""A user's program: what it prints does not depend on the storage it is given."""

from __future__ import annotations

import asyncio
import json
import sys

from toril import Job, JobContext, JobFailed, Queue, Reject


async def work(job: JobContext[int]) -> int:
    """Square the number; refuse the seventh."""
    if job.data == 7:
        raise Reject("seven is refused")
    await job.log(f"squared {job.data}")
    return job.data**2


async def main(url: str) -> None:
    """Hand in, look, tend, work."""
    queue = Queue[int, int]("program", url)
    said: dict[str, object] = {}
    said["first"] = (await queue.enqueue("early", 2, priority=3)).status
    said["again"] = (await queue.enqueue("early", 2)).status
    said["later"] = (await queue.enqueue("later", 3, delay=3600)).existing_state
    said["cancelled"] = (await queue.cancel("later")).status
    queue.execute(work, concurrency=4)
    async with queue:
        numbers = range(20)
        waits = (queue.enqueue_and_wait(f"n-{n}", n, attempts=2) for n in numbers)
        answers = await asyncio.gather(*waits, return_exceptions=True)
        said["answers"] = [str(a) if isinstance(a, JobFailed) else a for a in answers]
        said["early"] = await queue.wait_until_finished("early")
        said["cached"] = (await queue.enqueue("n-5", 5)).result
        said["logs"] = list(await queue.logs("n-5"))
        counts = await queue.get_job_counts()
        said["counts"] = [counts.completed, counts.failed, counts.total]
        failed: list[Job[int, int]] = list(await queue.get_jobs("failed"))
        said["failed"] = [(job.id, job.attempts_made, str(job.error)) for job in failed]
    print(json.dumps(said))


asyncio.run(main(sys.argv[1]))
