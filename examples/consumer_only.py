"""Work the jobs that others hand in, five at once."""

import asyncio
from typing import TypedDict

from toril import JobContext, Queue, Worker


class Email(TypedDict):
    address: str


sent: dict[str, str] = {}


async def send(job: JobContext[Email]) -> None:
    """May run twice for one job, so the job's id is the key under which the email goes out."""
    sent.setdefault(job.id, job.data["address"])


async def main() -> None:
    # All that name "memory:mail" in this process share it.
    elsewhere = Queue[Email, None]("emails", storage="memory:mail")
    for who in ("ada", "bob", "cleo"):
        await elsewhere.enqueue(f"welcome-{who}", {"address": f"{who}@example.com"})

    queue = Queue[Email, None]("emails", storage="memory:mail")
    worker = Worker(queue, send, concurrency=5, worker_id="worker-1")
    finished = asyncio.Event()

    @worker.on("completed")
    def on_completed(job: JobContext[Email], result: None) -> None:
        print(f"{job.worker_id} sent {job.id} to {job.data['address']}")
        if len(sent) == 3:
            finished.set()

    @worker.on("error")
    def on_error(error: BaseException) -> None:
        print("trouble:", error)

    async with worker:  # a service would `await worker.run()`
        await finished.wait()
    print("sent:", len(sent))


asyncio.run(main())
