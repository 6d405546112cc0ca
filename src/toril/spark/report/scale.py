"""Choose round numbers for axes: counts, shares, durations, hours and days."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from toril.spark.report.words import SPACE, compact, day, duration, moment

_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000
_STEPS: Final = 4
"""Spaces between the lines of a grid, at most."""

_DURATIONS: Final = (
    *(size * base for size in (0.1, 1, 10, 100) for base in (1, 2, 5)),
    *(_SECOND * n for n in (1, 2, 5, 10, 15, 30)),
    *(_MINUTE * n for n in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * n for n in (1, 2, 3, 6, 12)),
    *(_DAY * 10**power * base for power in range(8) for base in (1, 2, 5)),
)
_DECADES: Final = (
    *(0.1, 1, 10, 100, _SECOND, 10 * _SECOND),
    *(_MINUTE, 10 * _MINUTE, _HOUR, *(_DAY * 10**power for power in range(8))),
)
_CLOCK: Final = (
    *(_MINUTE * n for n in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * n for n in (1, 2, 3, 6, 12)),
    *(_DAY * n for n in (1, 2, 4, 7, 14, 28, 56, 91, 182, 364, 728, 1820, 3640, 36400)),
)
_DENSE: Final = 9
"""Powers of ten that fit on an axis; of more, only every second one has a label."""

_WIDE: Final = 40
"""A range of durations wider than this factor is shown on a logarithmic scale."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of the grid: its place, 0 to 1, and its label. A minor one may be left out."""

    at: float
    label: str
    minor: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """Numbers from `low` to `high`, and the ones worth a line."""

    low: float
    high: float
    ticks: tuple[Tick, ...]
    log: bool = False

    def place(self, value: float) -> float:
        """The share of the axis below a value, 0 to 1."""
        if not self.log:
            share = (value - self.low) / (self.high - self.low)
        elif value <= self.low:
            share = 0.0
        else:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        return min(max(share, 0.0), 1.0)


def count_axis(highest: float) -> Axis:
    """Whole numbers from 0 up."""
    step = 1
    while highest > step * _STEPS:
        step = _next_round(step)
    high = max(step * math.ceil(highest / step), step)
    return _even(0, high, step, [compact(n) for n in range(0, high + 1, step)])


def level_axis(highest: float) -> Axis:
    """Numbers from 0 up, with fractions where they are small."""
    parts = 1 if highest >= _STEPS else 100
    axis = count_axis(highest * parts)
    ticks = (Tick(tick.at, compact(axis.high * tick.at / parts)) for tick in axis.ticks)
    return Axis(0, axis.high / parts, tuple(ticks))


def share_axis(highest: float) -> Axis:
    """Per cent from 0 up; to 100 wherever that is enough."""
    step = 0.25
    while highest > step * _STEPS:
        step *= 2
    return _even(0, step * _STEPS, step, [f"{step * n:.0%}"[:-1] for n in range(_STEPS + 1)])


def duration_axis(values: Sequence[float]) -> Axis:
    """Durations: from 0 up, or by powers of ten where they differ widely."""
    highest = max(values, default=0.0)
    least = min((value for value in values if value > 0), default=highest)
    if highest > max(least, 1.0) * _WIDE:
        return _log_axis(max(least, 1.0), highest)
    step = next((one for one in _DURATIONS if highest <= one * _STEPS), _DURATIONS[-1])
    steps = max(math.ceil(highest / step), 1)
    return _even(0, step * steps, step, ["0", *(duration(step * n) for n in range(1, steps + 1))])


def time_ticks(start_ms: int, end_ms: int, most: int = 9) -> tuple[Tick, ...]:
    """Round times between two moments; midnight is written as its day."""
    span = end_ms - start_ms
    step = next((one for one in _CLOCK if span <= one * most), _CLOCK[-1])
    first = -(-start_ms // step)
    found: list[Tick] = []
    for number in range(first, end_ms // step + 1):
        at = number * step
        whole = at % _DAY == 0
        label = day(at) if whole else moment(at).strftime("%H:%M")
        if whole and step >= 91 * _DAY:
            label = f"{label.split(SPACE)[1]}{SPACE}{moment(at).year}"
        found.append(Tick((at - start_ms) / span, label, minor=number % 2 == 1))
    return tuple(found)


def buckets(highest: int, most: int = 5) -> tuple[int, ...]:
    """The upper ends of at most `most` ranges of whole numbers from 1 up, all of one size."""
    if highest <= 0:
        return ()
    size = -(-highest // most)
    unit = 10 ** (len(str(size)) - 1)
    size = -(-size // unit) * unit
    return tuple(range(size, size * math.ceil(highest / size) + 1, size))


def _even(low: float, high: float, step: float, labels: Sequence[str]) -> Axis:
    ticks = (Tick(step * n / (high - low), label) for n, label in enumerate(labels))
    return Axis(low, high, tuple(ticks))


def _log_axis(least: float, highest: float) -> Axis:
    low = max((one for one in _DECADES if one <= least), default=_DECADES[0])
    high = min((one for one in _DECADES if one >= highest), default=highest)
    axis = Axis(low, high, (), log=True)
    ticks = [Tick(axis.place(one), duration(one)) for one in _DECADES if low <= one <= high]
    return Axis(low, high, tuple(ticks[:: 1 if len(ticks) <= _DENSE else 2]), log=True)


def _next_round(number: int) -> int:
    """1, 2, 5, 10, 20, 50, …"""
    return number * 5 // 2 if str(number).startswith("2") else number * 2
