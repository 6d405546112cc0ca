"""Stop on SIGTERM or Ctrl-C: running jobs finish, what takes too long is handed back."""

import asyncio
import os
import signal

from toril import JobContext, Queue


async def work(job: JobContext[float]) -> None:
    print(job.id, "starts")
    await asyncio.sleep(job.data)
    print(job.id, "ends")


async def serve(queue: Queue[float, None]) -> None:
    """Work until the process is told to end."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    await queue.start()
    await told.wait()
    print("stopping")
    await queue.stop()  # takes no more jobs, waits for the running ones up to shutdown_timeout


async def main() -> None:
    queue = Queue[float, None]("work", storage="memory:")
    queue.execute(work, concurrency=2, shutdown_timeout=0.5)
    await queue.enqueue("short", 0.2)
    await queue.enqueue("long", 3600)
    await queue.enqueue("later", 0)

    asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGTERM)
    await serve(queue)

    for job_id in ("short", "long", "later"):
        status = await queue.get_status(job_id)
        assert status is not None
        print(f"{job_id}: {status.state}, attempts counted: {status.attempts}")


asyncio.run(main())
