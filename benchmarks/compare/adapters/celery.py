"""celery with the solo pool: one process, one job at a time, no copies between processes."""

from __future__ import annotations

from typing import Any

from celery import Celery

from benchmarks.compare.adapters.measure import Data
from benchmarks.compare.adapters.threads import ThreadAdapter, main


class CeleryApp(ThreadAdapter):
    """A task, results kept in Redis."""

    def open(self) -> None:
        """Connect."""
        given = self.given
        self.app = Celery("bench", broker=given.where, backend=given.where)
        self.app.conf.update(
            task_default_queue=given.queue,
            worker_prefetch_multiplier=given.concurrency,
            worker_hijack_root_logger=False,
            worker_redirect_stdouts=False,  # the figures go there
            broker_connection_retry_on_startup=True,
        )

        def job(data: Data) -> int:
            return self.handle(data)

        self.job = self.app.task(name="job")(job)

    def add(self, data: Data) -> None:
        """Hand in one job."""
        self.job.delay(data)

    def add_late(self, data: Data, delay_s: float) -> None:
        """Hand in a job that is due later."""
        self.job.apply_async((data,), countdown=delay_s)

    def call(self, data: Data) -> Any:
        """Hand in a job and wait for its result."""
        return self.job.delay(data).get(timeout=60)

    def work(self) -> None:
        """Run a worker without what it says to other workers."""
        quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR")
        self.app.worker_main(["worker", "--pool=solo", "--concurrency=1", *quiet])


if __name__ == "__main__":
    main(CeleryApp)
