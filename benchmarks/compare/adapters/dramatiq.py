"""dramatiq: worker threads, results by its Redis backend."""

from __future__ import annotations

from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from benchmarks.compare.adapters.measure import Data, handler_kind
from benchmarks.compare.adapters.threads import ThreadAdapter, main, roomy

THREADS = 8
"""Its default; more make no-op jobs slower. Handlers that wait get one each."""


class Dramatiq(ThreadAdapter):
    """An actor, its results kept."""

    def open(self) -> None:
        """Connect."""
        url = roomy(self.given)
        self.broker = RedisBroker(url=url)
        self.broker.add_middleware(Results(backend=RedisBackend(url=url)))
        dramatiq.set_broker(self.broker)
        self.job = dramatiq.actor(
            self.handle, actor_name="job", queue_name=self.given.queue, store_results=True
        )

    def add(self, data: Data) -> None:
        """Hand in one job."""
        self.job.send(data)

    def add_late(self, data: Data, delay_s: float) -> None:
        """Hand in a job that is due later."""
        self.job.send_with_options(args=(data,), delay=round(delay_s * 1000))

    def call(self, data: Data) -> Any:
        """Hand in a job and wait for its result."""
        return self.job.send(data).get_result(block=True, timeout=60_000)

    def work(self) -> None:
        """Start a worker."""
        waits = handler_kind()[0] == "wait"
        threads = self.given.concurrency if waits else min(self.given.concurrency, THREADS)
        dramatiq.Worker(self.broker, worker_threads=threads).start()


if __name__ == "__main__":
    main(Dramatiq)
