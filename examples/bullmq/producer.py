"""The Python half: add jobs to a BullMQ queue and wait for what Node makes of them.

TORIL_URL=bullmq+redis://127.0.0.1:6379 python producer.py
"""

import asyncio
import os

from toril import JobFailed, Queue

URL = os.environ.get("TORIL_URL", "bullmq+redis://127.0.0.1:6379")


async def main() -> None:
    async with Queue[dict[str, str], str]("greetings", URL) as queue:
        for name in ("Ada", "Grace", "🐂"):
            job = await queue.add("greet", {"name": name})
            print(await queue.wait_until_finished(job.id))
        job = await queue.add("greet", {"name": ""}, attempts=1)
        try:
            await queue.wait_until_finished(job.id)
        except JobFailed as error:
            print("failed:", error.original_error)
        done = await queue.get_job_counts()
        print(f"completed {done.completed}, failed {done.failed}")


asyncio.run(main())
