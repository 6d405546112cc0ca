"""One ordinary worker without Spark, in a process of its own, until its input ends.

python -m benchmarks.spark.fleet_peer <url> <queue> <concurrency>
"""

from __future__ import annotations

import asyncio
import sys

import uvloop

from benchmarks.spark.fleet_work import work
from toril import Queue, Worker
from toril.garbage import spare_collections


async def main(url: str, queue: str, concurrency: str) -> None:
    """Work until the parent closes the pipe."""
    spare_collections()  # as `toril worker` does, and a fleet's task
    worker = Worker(Queue(queue, url), work, concurrency=int(concurrency))
    async with worker:
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
