"""Queue work while offline and drain it later: no server, only a directory.

    offline_cli.py add "buy milk" "call home"     offline_cli.py status     offline_cli.py drain

Without arguments it shows itself, each step in a process of its own.
"""

import asyncio
import os
import subprocess
import sys
import tempfile

from toril import JobContext, Queue, Worker, content_id


async def upload(job: JobContext[str]) -> str:
    print("uploaded:", job.data)  # here the program would need the network
    return job.data.upper()


async def main(command: str, *notes: str) -> None:
    async with Queue[str, str]("outbox", f"file:{os.environ['OUTBOX']}") as queue:
        for note in notes:
            result = await queue.enqueue(content_id(note), note)
            print(f"{result.status}: {note}")
        if command == "drain":
            waiting = await queue.get_jobs("waiting")
            async with Worker(queue, upload):
                for job in waiting:
                    await queue.wait_until_finished(job.id)
        counts = await queue.get_job_counts()
        print(f"waiting {counts.waiting}, done {counts.completed}", flush=True)


if len(sys.argv) > 1:
    asyncio.run(main(*sys.argv[1:]))
else:
    with tempfile.TemporaryDirectory() as home:
        for step in (["add", "buy milk", "call home"], ["add", "buy milk"], ["drain"], ["status"]):
            subprocess.run(
                [sys.executable, __file__, *step], env={**os.environ, "OUTBOX": f"{home}/box"}
            )
