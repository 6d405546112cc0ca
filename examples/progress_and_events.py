"""Watch a job from outside: its progress, its log, and every event of the queue."""

import asyncio

from toril import Cursor, EventKind, JobContext, Queue


async def cook(job: JobContext[list[str]]) -> str:
    for done, step in enumerate(job.data, start=1):
        await job.log(f"{step} done")
        await job.progress({"done": done, "of": len(job.data)})
    return "served"


async def watch(queue: Queue[list[str], str]) -> None:
    """Follow the events; a cursor says where to go on, also after a restart."""
    async for event in queue.events(after=Cursor.START):
        detail = event.value if event.kind is EventKind.PROGRESS else ""
        print(f"{event.kind:<9} {event.job_id} {detail}".rstrip())
        if event.kind is EventKind.COMPLETED:
            return


async def main() -> None:
    queue = Queue[list[str], str]("kitchen", storage="memory:")
    queue.execute(cook)
    async with queue:
        watching = asyncio.create_task(watch(queue))
        await queue.enqueue("paella", ["rice", "saffron"])
        await watching

        job = await queue.get_job("paella")
        assert job is not None
        print("log:", ", ".join(await queue.logs("paella")))
        print("last progress:", job.progress)
        print("result:", job.result)


asyncio.run(main())
