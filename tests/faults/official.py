"""The official Python client of BullMQ, driven like our crew; runs in a venv of its own.

python -m tests.faults.official add --url … --history … --count 60
python -m tests.faults.official work --url … --history …
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
from pathlib import Path
from typing import Any

from tests.faults.history import History

QUEUE = "official"


async def add(bullmq: Any, args: argparse.Namespace, history: History) -> None:
    """Add jobs one by one."""
    queue = bullmq.Queue(QUEUE, {"connection": args.url})
    for number in range(args.count):
        label = f"add-{number:04}"
        history.write("enqueue", "invoke", label)
        try:
            await queue.add("job", {"label": label})
        except Exception as error:
            history.write("enqueue", "info", label, error=repr(error))
        else:
            history.write("enqueue", "ok", label)
        await asyncio.sleep(0.01)
    await queue.close()


async def work(bullmq: Any, args: argparse.Namespace, history: History) -> None:
    """Work until killed."""

    async def handle(job: Any, token: str) -> str:
        label = job.data.get("label") if isinstance(job.data, dict) else job.id
        history.write("run", "invoke", label, token=token)
        return token

    options = {"connection": args.url, "lockDuration": 1000, "stalledInterval": 1000}
    bullmq.Worker(QUEUE, handle, options)
    history.write("worker", "invoke")
    await asyncio.Event().wait()


def main() -> None:
    """Run one of the programs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=["add", "work"])
    parser.add_argument("--url", required=True)
    parser.add_argument("--history", required=True)
    parser.add_argument("--count", type=int, default=1)
    args = parser.parse_args()
    history = History(Path(args.history), args.program)
    bullmq = importlib.import_module("bullmq")
    asyncio.run({"add": add, "work": work}[args.program](bullmq, args, history))


if __name__ == "__main__":
    main()
