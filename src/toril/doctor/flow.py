"""Find queues in which nothing moves: paused with a backlog, or without a worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from toril.doctor.finding import Finding, jobs, ok, warning
from toril.job import State
from toril.storage.protocol import Counts, Storage, WorkerInfo

_LATE_MS: Final = 60_000
_PEEKED: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What a queue holds, and who works it."""

    counts: Counts
    workers: Sequence[WorkerInfo]
    oldest_ms: int | None
    """How long the first in line waits."""
    overdue: int
    """Delayed jobs whose time came a minute ago, as far as a page tells."""

    @property
    def ready(self) -> int:
        """Jobs that could run now."""
        return self.counts.of(State.WAITING) + self.counts.of(State.PRIORITIZED) + self.overdue


async def look(storage: Storage, queue: str, now_ms: int) -> Flow:
    """Count a queue."""
    counts = await storage.counts(queue)
    first = await storage.peek(queue, State.WAITING, 0, 1)
    delayed = await storage.peek(queue, State.DELAYED, 0, _PEEKED)
    late = [one for one in delayed if one.due_ms is not None and one.due_ms < now_ms - _LATE_MS]
    return Flow(
        counts=counts,
        workers=await storage.workers(queue),
        oldest_ms=max(0, now_ms - first[0].created_ms) if first else None,
        overdue=len(late),
    )


def check_flow(queue: str, flow: Flow) -> Iterator[Finding]:
    """Tell whether anything keeps jobs from running."""
    ready = flow.ready
    since = "" if flow.oldest_ms is None else f", the first for {_age(flow.oldest_ms)}"
    crew = "1 worker" if len(flow.workers) == 1 else f"{len(flow.workers):,} workers"
    if flow.counts.paused and ready:
        yield warning(
            "paused",
            f"it is paused, and {jobs(ready)} wait{_s(ready)}{since}",
            f"toril queue resume {queue}",
            queue=queue,
            count=ready,
        )
    elif flow.counts.paused:
        yield ok("paused", "it is paused, and nothing waits", queue)
    if ready and not flow.workers:
        yield warning(
            "workers",
            f"{jobs(ready)} wait{_s(ready)}{since}, and no worker serves it",
            "toril worker APP, where APP is the module of your tasks",
            queue=queue,
            count=ready,
        )
    else:
        yield ok("workers", f"{crew}, {jobs(ready)} in line{since}", queue)


def _s(count: int) -> str:
    return "s" if count == 1 else ""


def _age(ms: int) -> str:
    seconds = ms // 1000
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
