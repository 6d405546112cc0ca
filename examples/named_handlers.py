"""Give each kind of job in one queue its own handler: `async def`, or plain and in a thread."""

import asyncio
import threading
from typing import TypedDict

from toril import JobContext, JobFailed, Queue


class Upload(TypedDict):
    file: str


async def scan(job: JobContext[Upload]) -> str:
    await asyncio.sleep(0.01)
    return f"{job.data['file']} is clean"


def resize(job: JobContext[Upload]) -> str:
    aside = threading.current_thread() is not threading.main_thread()
    return f"{job.data['file']} is small, made in a thread: {aside}"


async def main() -> None:
    queue = Queue[Upload, str]("uploads", storage="memory:")
    queue.execute({"scan": scan, "resize": resize}, concurrency=4)
    async with queue:
        jobs = [await queue.add(name, {"file": "bull.png"}) for name in ("scan", "resize")]
        for job in jobs:
            print(f"{job.name}:", await queue.wait_until_finished(job.id))

        typo = await queue.add("rezise", {"file": "bull.png"})
        try:
            await queue.wait_until_finished(typo.id)
        except JobFailed as error:
            print("rezise:", error.original_error.reason)


asyncio.run(main())
