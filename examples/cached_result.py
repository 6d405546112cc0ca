"""Run each job once and answer from the cache for as long as the result is kept."""

import asyncio
from datetime import timedelta

from toril import JobContext, Queue, content_id

runs = 0


async def square(job: JobContext[int]) -> int:
    global runs
    runs += 1
    return job.data**2


async def main() -> None:
    queue = Queue[int, int]("squares", storage="memory:")
    queue.execute(square)
    async with queue:
        job_id = content_id(12)  # the same data gives the same id
        for _ in range(3):
            print("answer:", await queue.enqueue_and_wait(job_id, 12, result_ttl=60))
        print("runs:", runs)

        status = await queue.get_status(job_id)
        if status is not None and status.state == "completed":
            print("cached:", await queue.get_result(job_id))

        again = await queue.enqueue(job_id, 12)
        print("handed in again:", again.status, again.result)

        print("kept for a day:", await queue.update_result_ttl(job_id, timedelta(days=1)))
        print("unknown id:", await queue.get_result("no-such-job", default=-1))


asyncio.run(main())
