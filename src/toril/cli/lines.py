"""What a worker says on a terminal: each job, and when there are too many, one line a second."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import datetime
from typing import Any, Final, TextIO

from toril.cli.output import Output
from toril.cli.width import cut, fit, width_of
from toril.logs import TextFormatter
from toril.metrics import JobMetrics, JobsProcessed, MetricsCollector
from toril.text import printable

MOST: Final = 50
"""So many lines about jobs in one second; then a summary takes their place."""

_SIGNS: Final = {"picked_up": "→", "completed": "✓", "failed": "✗", "retried": "↻"}
_ONE_LINE: Final = ("picked_up", "completed", "heartbeat_failed", "reap_failed")
_INDENT: Final = len("12:00:00 ✓ ")
_LONGEST: Final = 2000


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


class TerminalFormatter(logging.Formatter):
    """What a worker says to who sits before it: one short line per start and end of a job."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._whole = TextFormatter()

    def format(self, record: logging.LogRecord) -> str:
        """Write the record no wider than the terminal is now."""
        event, width = getattr(record, "event", ""), width_of(self._stream)
        if record.exc_info or not record.name.startswith("toril"):
            return fit(self._whole.format(record), width)
        sign = _SIGNS.get(event, "!" if record.levelno >= logging.WARNING else "·")
        when = datetime.fromtimestamp(record.created).astimezone()
        text = f"{when:%H:%M:%S} {sign} {_short(record, event)}"
        again = event == "disconnected" and record.__dict__["attempt"] > 1
        return cut(text, width) if again or event in _ONE_LINE else fit(text, width, _INDENT)


def _short(record: logging.LogRecord, event: str) -> str:
    fields: dict[str, Any] = record.__dict__
    job = f"{fields.get('job_name')} {fields.get('job_id')}"
    if event == "picked_up":
        attempt = fields["attempt"]
        again = f", attempt {attempt}" if attempt > 1 else ""
        return f"{job} waited {fields['age_ms']:,} ms{again}"
    if event == "completed":
        return f"{job} {fields['duration_s'] * 1000:,.0f} ms"
    if event == "disconnected":
        # What is in brackets is the cause; what follows is for who made the call.
        cause, bracket, _ = str(fields["error"]).partition(")")
        if fields["attempt"] == 1:
            return f"{cause}{bracket}; trying again"
        return f"still away after {fields['duration_s']:.0f} s: {cause}{bracket}"
    return printable(record.getMessage(), _LONGEST)


class Discreet(logging.Filter):
    """Keeps back what the first and the last line say already."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let everything through but the worker's own beginning and end."""
        return getattr(record, "event", "") not in ("started", "stopping", "stopped")


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
