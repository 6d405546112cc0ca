"""Take back a job that waits, and ask a running one to stop."""

import asyncio

from toril import JobCancelled, JobContext, Queue

started = asyncio.Event()


async def count(job: JobContext[int]) -> int:
    started.set()
    try:
        await asyncio.sleep(job.data)
    except asyncio.CancelledError:
        print(job.id, "cleans up")
        raise
    return job.data


async def main() -> None:
    queue = Queue[int, int]("counts", storage="memory:")
    queue.execute(count, lease=1)  # a running job hears of a cancel within a third of the lease
    async with queue:
        await queue.enqueue("long", 3600)
        await queue.enqueue("next", 0)
        await started.wait()

        print("next:", (await queue.cancel("next")).status)
        print("long:", (await queue.cancel("long")).status, "so nothing changed")
        print("long:", (await queue.cancel("long", running=True)).status)
        try:
            await queue.wait_until_finished("long", timeout=5)
        except JobCancelled as error:
            print("told:", error)

        print("done:", await queue.enqueue_and_wait("quick", 0))
        print("quick:", (await queue.cancel("quick")).status)
        print("other:", (await queue.cancel("other")).status)


asyncio.run(main())
