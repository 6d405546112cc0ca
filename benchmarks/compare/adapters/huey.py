"""huey: consumer threads that block on the list; a job popped by a process that dies is lost."""

from __future__ import annotations

import logging
from typing import Any

from huey import RedisHuey
from huey.consumer import Consumer

from benchmarks.compare.adapters.measure import Data, handler_kind
from benchmarks.compare.adapters.threads import ThreadAdapter, main, roomy

THREADS = 4
"""More make no-op jobs slower. Handlers that wait get one each."""


class Huey(ThreadAdapter):
    """A task, its results kept and announced."""

    def open(self) -> None:
        """Connect."""
        logging.getLogger("huey").setLevel(logging.ERROR)
        self.huey = RedisHuey(self.given.queue, url=roomy(self.given), notify_result=True)

        def job(data: Data) -> int:
            return self.handle(data)

        self.job = self.huey.task(name="job")(job)

    def add(self, data: Data) -> None:
        """Hand in one job."""
        self.job(data)

    def add_late(self, data: Data, delay_s: float) -> None:
        """Hand in a job that is due later; due ones are looked for once a second."""
        self.job.schedule(args=(data,), delay=delay_s)

    def call(self, data: Data) -> Any:
        """Hand in a job and wait for its result."""
        return self.job(data).get(blocking=True, timeout=60)

    def work(self) -> None:
        """Start a consumer."""
        waits = handler_kind()[0] == "wait"
        threads = self.given.concurrency if waits else min(self.given.concurrency, THREADS)
        Consumer(self.huey, workers=threads, periodic=False, backoff=1.0, max_delay=0.1).start()


if __name__ == "__main__":
    main(Huey)
