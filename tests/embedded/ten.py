"""Ten jobs on the default storage: hold them until told to stop, or finish them.

hold: hand in ten jobs, begin them all, and end in order at Ctrl-C
finish: work until all ten, and those named, have their result and the input ends
ask: hand in one more and wait for somebody else to do it
"""

from __future__ import annotations

import asyncio
import signal
import sys

from toril import JobContext, Queue


def say(word: object) -> None:
    """Tell the test."""
    print(word, flush=True)


async def hold(queue: Queue[int, int]) -> None:
    """Begin all ten; end at Ctrl-C."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)

    async def never(job: JobContext[int]) -> int:
        say(f"began {job.id}")
        await asyncio.Event().wait()
        return -1

    for n in range(10):
        await queue.enqueue(f"job-{n}", n)
    queue.execute(never, concurrency=10, lease=1, shutdown_timeout=0)
    async with queue:
        await stop.wait()
    say("stopped")


async def finish(queue: Queue[int, int]) -> None:
    """Do all ten, whoever began them."""
    queue.execute(lambda job: job.data * 10, concurrency=10, lease=1, reap_interval=0.2)
    async with queue:
        for job_id in (*(f"job-{n}" for n in range(10)), *sys.argv[2:]):
            say(await queue.wait_until_finished(job_id))
        await asyncio.to_thread(sys.stdin.read)


async def ask(queue: Queue[int, int]) -> None:
    """Wait for another process to do a job."""
    say((await queue.enqueue("asked", 5)).status)
    say(await queue.wait_until_finished("asked"))
    await queue.stop()


asyncio.run({"hold": hold, "finish": finish, "ask": ask}[sys.argv[1]](Queue[int, int]("ten")))
