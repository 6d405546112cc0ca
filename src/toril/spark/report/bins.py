"""Lay the minutes of a report into at most two hundred bins of one size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from toril.spark.report.model import MINUTE_MS, Minute, SlaMinute
from toril.spark.report.words import plural

MOST: Final = 200
LEAST: Final = 12
"""A shorter time is drawn in the middle of this many bins, so that one minute is not a wall."""

_HOUR, _DAY = 60, 1440
_SIZES: Final = (
    *(1, 2, 5, 10, 15, 30),
    *(_HOUR * n for n in (1, 2, 3, 6, 12)),
    *(_DAY * n for n in (1, 2, 7, 14, 28, 91, 182, 364, 1820, 3640, 36400)),
)


@dataclass(frozen=True, slots=True)
class Bins:
    """Equal stretches of time, `count` of them from `start_ms`, with `pad` empty ones around."""

    start_ms: int
    step_ms: int
    count: int
    pad: int

    @property
    def slots(self) -> int:
        """How many bins are drawn."""
        return self.count + 2 * self.pad

    @property
    def drawn_from_ms(self) -> int:
        return self.start_ms - self.pad * self.step_ms

    @property
    def drawn_to_ms(self) -> int:
        return self.drawn_from_ms + self.slots * self.step_ms

    @property
    def per(self) -> str:
        """`minute`, `5 minutes`, `2 hours`, `7 days`: what one bin stands for."""
        minutes = self.step_ms // MINUTE_MS
        for size, name in ((_DAY, "day"), (_HOUR, "hour"), (1, "minute")):
            if minutes % size == 0:
                return name if minutes == size else plural(minutes // size, name)
        raise AssertionError(minutes)

    def index(self, at_ms: int) -> int:
        return (at_ms - self.start_ms) // self.step_ms

    def start_of(self, index: int) -> int:
        return self.start_ms + index * self.step_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """One stretch of time: sums of counts, the backlog at its end, its worst minute's latencies."""

    start_ms: int
    added: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    stalled: int = 0
    cancelled: int = 0
    within: int = 0
    breached: int = 0
    backlog: int = 0
    wait_p50_ms: float | None = None
    wait_p95_ms: float | None = None
    wait_p99_ms: float | None = None
    run_p50_ms: float | None = None
    run_p95_ms: float | None = None
    run_p99_ms: float | None = None
    busy_ms: int = 0
    workers: int = 0
    utilisation: float | None = None


def choose_bins(times_ms: Iterable[int]) -> Bins | None:
    """Choose the smallest round size that gives no more than `MOST` bins; None without a time."""
    known = sorted(set(times_ms))
    if not known:
        return None
    first, last = known[0] // MINUTE_MS, known[-1] // MINUTE_MS
    size = next((one for one in _SIZES if last // one - first // one < MOST), _SIZES[-1])
    count = last // size - first // size + 1
    start_ms = first // size * size * MINUTE_MS
    return Bins(start_ms, size * MINUTE_MS, count, max(0, -(-(LEAST - count) // 2)))


def fill(bins: Bins, minutes: Sequence[Minute], slas: Sequence[SlaMinute]) -> tuple[Bin, ...]:
    """Lay one queue's minutes, in order of time, into the bins."""
    own: list[list[Minute]] = [[] for _ in range(bins.count)]
    for minute in minutes:
        own[bins.index(minute.minute_ms)].append(minute)
    kept: list[list[SlaMinute]] = [[] for _ in range(bins.count)]
    for sla in slas:
        kept[bins.index(sla.minute_ms)].append(sla)
    found: list[Bin] = []
    backlog = 0
    for index, (rows, limits) in enumerate(zip(own, kept, strict=True)):
        # A minute in which nothing happened has no row, and leaves the backlog as it was.
        backlog = rows[-1].backlog if rows else backlog
        found.append(_one(bins.start_of(index), rows, limits, backlog))
    return tuple(found)


def add_up(bins: Bins, queues: Sequence[Sequence[Bin]]) -> tuple[Bin, ...]:
    """Add up several queues; percentiles and utilisation do not add up and are left out."""
    return tuple(
        Bin(
            start_ms=bins.start_of(index),
            added=sum(queue[index].added for queue in queues),
            completed=sum(queue[index].completed for queue in queues),
            failed=sum(queue[index].failed for queue in queues),
            retried=sum(queue[index].retried for queue in queues),
            stalled=sum(queue[index].stalled for queue in queues),
            cancelled=sum(queue[index].cancelled for queue in queues),
            within=sum(queue[index].within for queue in queues),
            breached=sum(queue[index].breached for queue in queues),
            backlog=sum(queue[index].backlog for queue in queues),
            busy_ms=sum(queue[index].busy_ms for queue in queues),
        )
        for index in range(bins.count)
    )


def _one(start_ms: int, rows: Sequence[Minute], limits: Sequence[SlaMinute], backlog: int) -> Bin:
    shares = [row.utilisation for row in rows if row.utilisation is not None]
    return Bin(
        start_ms=start_ms,
        added=sum(row.added for row in rows),
        completed=sum(row.completed for row in rows),
        failed=sum(row.failed for row in rows),
        retried=sum(row.retried for row in rows),
        stalled=sum(row.stalled for row in rows),
        cancelled=sum(row.cancelled for row in rows),
        within=sum(row.within for row in limits),
        breached=sum(row.breached for row in limits),
        backlog=backlog,
        wait_p50_ms=_worst([row.wait_p50_ms for row in rows]),
        wait_p95_ms=_worst([row.wait_p95_ms for row in rows]),
        wait_p99_ms=_worst([row.wait_p99_ms for row in rows]),
        run_p50_ms=_worst([row.run_p50_ms for row in rows]),
        run_p95_ms=_worst([row.run_p95_ms for row in rows]),
        run_p99_ms=_worst([row.run_p99_ms for row in rows]),
        busy_ms=sum(row.busy_ms for row in rows),
        workers=max((row.workers for row in rows), default=0),
        utilisation=sum(shares) / len(shares) if shares else None,
    )


def _worst(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
