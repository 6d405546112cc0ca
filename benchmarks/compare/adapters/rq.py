"""rq: a worker that does not fork for each job, the fastest it has."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from redis import Redis
from rq import Queue, SimpleWorker
from rq.serializers import JSONSerializer

from benchmarks.compare.adapters.measure import Data
from benchmarks.compare.adapters.threads import ThreadAdapter, main, roomy

_running: list[ThreadAdapter] = []
"""The adapter of this process; a job names a function, which finds it here."""
JOB = "benchmarks.compare.adapters.rq.job"


def job(data: Data) -> int:
    """Run where the worker imports it."""
    return _running[0].handle(data)


class Rq(ThreadAdapter):
    """Functions by path."""

    def open(self) -> None:
        """Connect."""
        from benchmarks.compare.adapters import rq as imported

        imported._running.append(self)
        self.redis = Redis.from_url(roomy(self.given))
        self.queue = Queue(self.given.queue, connection=self.redis, serializer=JSONSerializer)

    def add(self, data: Data) -> None:
        """Hand in one job."""
        self.queue.enqueue(JOB, data, result_ttl=3600)

    def add_many(self, many: Sequence[Data]) -> None:
        """Hand in up to a thousand."""
        prepare = Queue.prepare_data
        self.queue.enqueue_many([prepare(JOB, (data,), result_ttl=3600) for data in many])

    def call(self, data: Data) -> Any:
        """Hand in a job and wait for its result."""
        result = self.queue.enqueue(JOB, data, result_ttl=3600).latest_result(timeout=60)
        return result.return_value

    def work(self) -> None:
        """Run a worker."""
        logging.disable(logging.CRITICAL)
        worker = SimpleWorker([self.queue], connection=self.redis, serializer=JSONSerializer)
        worker.work(logging_level="ERROR")


if __name__ == "__main__":
    main(Rq)
