"""Draw what happened at which hour of the day: a field for each hour, darker for more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date
from typing import Final

from toril.spark.report.figure import Figure, Key, chart, nothing
from toril.spark.report.model import Hour
from toril.spark.report.scale import buckets
from toril.spark.report.svg import image, number, stretched
from toril.spark.report.words import count, month_day, safe

HOURS: Final = 24
MOST_DAYS: Final = 31
"""Beyond this many days, those of the same name are added up."""

_ROW: Final = 21
_WEEK: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

Field = tuple[str, int]
"""The name of a row, and the hour."""


def finished_by_hour(hours: Sequence[Hour]) -> Figure:
    """Where the work was."""
    cells = _cells(hours, [row.completed + row.failed for row in hours])
    return _figure("Finished jobs by hour", "finished", "done", hours, cells)


def failed_by_hour(hours: Sequence[Hour]) -> Figure:
    """Where the failures were."""
    cells = _cells(hours, [row.failed for row in hours])
    return _figure("Failed jobs by hour", "failed", "failed", hours, cells)


def _figure(
    title: str, what: str, style: str, hours: Sequence[Hour], cells: Counter[Field]
) -> Figure:
    names = _names(hours)
    folded = names == list(_WEEK)
    about = f"{what} jobs per hour of the {'week' if folded else 'day'}, UTC"
    ends = buckets(max(cells.values(), default=0))
    if not ends:
        return Figure(title=title, about=about, table="by_hour", body=nothing("There were none."))
    (name, hour), highest = max(cells.items(), key=lambda one: (one[1], one[0]))
    label = (
        f"{title}: {count(sum(cells.values()))} jobs; the most, {count(highest)},"
        f" on {name} from {hour:02}:00 to {(hour + 1) % HOURS:02}:00 UTC."
    )
    starts = (1, *(end + 1 for end in ends[:-1]))
    keys = [
        Key(f"{style} heat{level}", count(low) if low == high else f"{count(low)}–{count(high)}")
        for level, (low, high) in enumerate(zip(starts, ends, strict=True), _first_level(ends))
    ]
    return Figure(
        title=title,
        about=about,
        table="by_hour",
        keys=(Key("heat0", "0"), *keys),
        body=chart(_draw(label, what, style, names, cells, ends)),
        note="All days of one name are added up." if folded else "",
    )


def _draw(
    label: str,
    what: str,
    style: str,
    names: Sequence[str],
    cells: Counter[Field],
    ends: Sequence[int],
) -> str:
    height = _ROW * len(names)
    fields = [
        f'<rect class="cell {_look(style, cells[name, hour], ends)}" x="{hour * 10 + 0.4:g}"'
        f' y="{row * _ROW + 1}" width="9.2" height="{_ROW - 2}">'
        f"<title>{safe(name)} {hour:02}:00 UTC: {count(cells[name, hour])} {what}</title></rect>"
        for row, name in enumerate(names)
        for hour in range(HOURS)
    ]
    rows = [
        f'<text class="tick y" x="-8" y="{row * _ROW + _ROW // 2}" dy=".35em">{safe(name)}</text>'
        for row, name in enumerate(names)
    ]
    feet = [
        f'<text class="tick x" x="{number((hour + 0.5) / HOURS * 100)}%" y="{height + 16}">'
        f"{hour:02}</text>"
        for hour in range(0, HOURS, 3)
    ]
    axes = [
        '<text class="axis" x="-46" y="-10">day</text>',
        f'<text class="axis end" x="100%" y="{height + 34}">hour of the day (UTC)</text>',
    ]
    content = [stretched(HOURS * 10, height, fields), *rows, *feet, *axes]
    return image(label, height, content, style="plot")


def _look(style: str, value: int, ends: Sequence[int]) -> str:
    if value <= 0:
        return "heat0"
    below = sum(1 for end in ends if value > end)
    return f"{style} heat{below + _first_level(ends)}"


def _first_level(ends: Sequence[int]) -> int:
    """Few ranges take the stronger shades: the highest is always the strongest."""
    return 6 - len(ends)


def _cells(hours: Sequence[Hour], values: Sequence[int]) -> Counter[Field]:
    folded = _folds(hours)
    cells: Counter[Field] = Counter()
    for row, value in zip(hours, values, strict=True):
        cells[_name(row.day, folded), row.hour] += value
    return cells


def _names(hours: Sequence[Hour]) -> list[str]:
    if _folds(hours):
        return list(_WEEK)
    days = {row.day for row in hours}
    if not days:
        return []
    first, last = min(days).toordinal(), max(days).toordinal()
    return [_name(date.fromordinal(number), False) for number in range(first, last + 1)]


def _folds(hours: Sequence[Hour]) -> bool:
    days = {row.day for row in hours}
    return bool(days) and max(days).toordinal() - min(days).toordinal() >= MOST_DAYS


def _name(day: date, folded: bool) -> str:
    return _WEEK[day.weekday()] if folded else month_day(day)
