"""Tell the ways a job can go wrong apart, and keep what failed in a dead letter queue."""

import asyncio

from toril import JobContext, JobFailed, Queue, RetriesExhausted, WaitTimeout

storage = "memory:shop"
dead_letters = Queue[object, None]("dead-letters", storage=storage)
orders = Queue[dict[str, int], str]("orders", storage=storage)
buried = asyncio.Event()


async def ship(job: JobContext[dict[str, int]]) -> str:
    if "weight" not in job.data:
        raise KeyError("weight")
    await asyncio.sleep(job.data["weight"])
    return "shipped"


@orders.on("failed")
async def bury(job: JobContext[dict[str, int]], error: Exception) -> None:
    if isinstance(error, RetriesExhausted):
        await dead_letters.enqueue(job.id, error.payload)
        buried.set()


async def main() -> None:
    orders.execute(ship, shutdown_timeout=0)
    async with dead_letters, orders:
        try:
            await orders.enqueue_and_wait("order-1", {"item": 7}, attempts=2, backoff=0.05)
        except JobFailed as error:
            print("failed:", error.original_error)
        await buried.wait()
        (letter,) = await dead_letters.get_jobs("waiting")
        print("dead letter:", letter.id, letter.data)

        try:
            await orders.enqueue_and_wait("order-2", {"weight": 3600}, timeout=0.1)
        except WaitTimeout:
            status = await orders.get_status("order-2")
            print("late, and still", status and status.state)

        again = await orders.enqueue("order-2", {"weight": 3600})
        print("a duplicate is no error:", again.status, again.existing_state)


asyncio.run(main())
