"""What a worker says on a terminal: each job, and when there are too many, one line a second."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Final

from toril.cli.output import Output
from toril.metrics import JobMetrics, JobsProcessed, MetricsCollector

MOST: Final = 50
"""So many lines about jobs in one second; then a summary takes their place."""


class Tally:
    """Counts what workers did, and hands everything on to the collector inside."""

    def __init__(self, inner: MetricsCollector) -> None:
        self._inner = inner
        self.completed = 0
        self.failed = 0
        self.retried = 0
        self.stalled = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def increment_jobs_processed(self, queue: str, status: JobsProcessed) -> None:
        """Count an attempt by its status."""
        if status == "completed":
            self.completed += 1
        elif status == "failed":
            self.failed += 1
        else:
            self.retried += 1
        self._inner.increment_jobs_processed(queue, status)

    def increment_stalled_jobs(self, queue: str) -> None:
        """Count a stalled job."""
        self.stalled += 1
        self._inner.increment_stalled_jobs(queue)

    @property
    def all(self) -> int:
        """How many attempts ended."""
        return self.completed + self.failed + self.retried

    def text(self) -> str:
        """Say it in a few words."""
        parts = [f"{self.completed:,} completed", f"{self.failed:,} failed"]
        if self.retried:
            parts.append(f"{self.retried:,} retried")
        if self.stalled:
            parts.append(f"{self.stalled:,} stalled")
        return ", ".join(parts)


class JobTally(Tally):
    """Hands on what is told job by job, too."""

    def __init__(self, inner: MetricsCollector, jobs: JobMetrics) -> None:
        super().__init__(inner)
        # By name: a protocol that is asked for at run time does not see what __getattr__ gives.
        self.job_ended = jobs.job_ended
        self.leases_renewed = jobs.leases_renewed


def tally_of(inner: MetricsCollector) -> Tally:
    """Count for a collector."""
    return JobTally(inner, inner) if isinstance(inner, JobMetrics) else Tally(inner)


class Spare(logging.Filter):
    """Lets so many job lines pass in a second; a busy worker stops making them."""

    def __init__(self) -> None:
        super().__init__()
        self._second = 0
        self._lines = 0
        self.crowded = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Let a line through, unless it tells of one job too many."""
        if record.levelno >= logging.ERROR or not hasattr(record, "job_id"):
            return True
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines > MOST:
            self.crowded = True
        return not self.crowded


async def summarise(output: Output, tally: Tally, spare: Spare, logger: logging.Logger) -> None:
    """While jobs come too fast for lines of their own, tell the sum of each second."""
    level = logger.level
    before = tally.all
    try:
        while True:
            await asyncio.sleep(1)
            done, before = tally.all - before, tally.all
            if spare.crowded:
                logger.setLevel(logging.ERROR)  # what is not shown need not be written
                output.say(f"{done:,} jobs in the last second; {tally.text()}")
                if done <= MOST // 2:
                    spare.crowded = False
                    logger.setLevel(level)
    finally:
        logger.setLevel(level)
