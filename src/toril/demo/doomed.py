"""A worker process that will be killed: `python -m toril.demo.doomed URL`."""

from __future__ import annotations

import asyncio
import logging
import sys

from toril.demo.jobs import DOOMED, HANDLERS, HELD, LEASE_S, QUEUE, Data
from toril.queue import Queue
from toril.worker import Worker


async def main(url: str) -> None:
    """Work until somebody kills this process."""
    queue = Queue[Data, int | None](QUEUE, url)
    await Worker(queue, HANDLERS, concurrency=HELD, lease=LEASE_S, worker_id=DOOMED).run()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # the trouble is on purpose
    asyncio.run(main(sys.argv[1]))
