"""Write numbers, times and foreign text for a reader of HTML."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from html import escape
from typing import Final

from toril.text import printable

NONE: Final = "–"
SPACE: Final = "\u00a0"
"""Keeps a number and its unit on one line."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND, _MINUTE, _HOUR = 1000, 60_000, 3_600_000
_MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)
# What shows as nothing at all, and what XML forbids; `printable` has dealt with the rest.
_UNSEEN: Final = re.compile(
    "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff"
    "\uffa0\ufff0-\uffff\ufdd0-\ufdef\U000e0000-\U000e0fff]"
    "|[\U0001fffe\U0001ffff\U0002fffe\U0002ffff\U0003fffe-\U000dffff\U000e1000-\U0010ffff]"
)


def safe(text: object, limit: int = 200) -> str:
    """Give foreign text for HTML and its attributes: one line, all of it visible, no markup."""
    return escape(_UNSEEN.sub(_code, printable(text, limit)))


def foreign(text: object, limit: int = 200) -> str:
    """Give foreign text as an element that keeps its writing direction to itself."""
    return f"<bdi>{safe(text, limit)}</bdi>"


def lines(text: str) -> str:
    """Give a text of several lines for `<pre>`."""
    return "\n".join(safe(line, 2000) for line in text.strip("\n").splitlines())


def count(number: float | None) -> str:
    """`12,345`"""
    return NONE if number is None else f"{number:,.0f}"


def compact(number: float) -> str:
    """`950`, `1.2k`, `35M`: for an axis."""
    for power, letter in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if number >= 10**power:
            return f"{number / 10**power:.4g}{letter}"
    return f"{number:.3g}"


def percent(share: float | None) -> str:
    """`3.4 %`; what is neither nothing nor all never looks like it."""
    if share is None:
        return NONE
    if 0 < share < 0.0005:
        return f"<0.1{SPACE}%"
    if 0.9995 <= share < 1:
        return f">99.9{SPACE}%"
    return f"{_short(share * 100, 1)}{SPACE}%"


def duration(ms: float | None) -> str:
    """`0.4 ms`, `12 ms`, `1.2 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if ms is None:
        return NONE
    if ms < 0:
        return f"-{duration(-ms)}"
    if 0 < ms < 0.05:
        return f"<0.1{SPACE}ms"
    if round(ms) < _SECOND:
        return f"{_short(ms, 0 if ms >= 10 else 1)}{SPACE}ms"
    if round(ms / _SECOND, 1) < 60:
        return f"{_short(ms / _SECOND, 1)}{SPACE}s"
    if round(ms / _SECOND) < 3600:
        return _pair(round(ms / _SECOND), 60, "min", "s")
    if round(ms / _MINUTE) < 1440:
        return _pair(round(ms / _MINUTE), 60, "h", "min")
    return _pair(round(ms / _HOUR), 24, "d", "h")


def moment(ms: int) -> datetime:
    """The time in UTC."""
    return _EPOCH + timedelta(milliseconds=ms)


def instant(ms: int | None, *, seconds: bool = False) -> str:
    """A time in UTC as an element: `2026-11-16 03:47 UTC`."""
    if ms is None:
        return NONE
    when = moment(ms)
    machine = when.strftime("%Y-%m-%dT%H:%M:%SZ")
    return f'<time datetime="{machine}">{plain_instant(ms, seconds=seconds)}</time>'


def plain_instant(ms: int, *, seconds: bool = False) -> str:
    """A time in UTC as text."""
    return moment(ms).strftime("%Y-%m-%d %H:%M:%S UTC" if seconds else "%Y-%m-%d %H:%M UTC")


def day(ms: int, *, year: bool = False) -> str:
    """`16 Nov`, or `16 Nov 2026`; the names of months do not depend on the machine."""
    when = moment(ms)
    return month_day(when) + (f"{SPACE}{when.year}" if year else "")


def month_day(when: date) -> str:
    """`16 Nov`"""
    return f"{when.day}{SPACE}{_MONTHS[when.month - 1]}"


def plural(number: int, one: str, many: str | None = None) -> str:
    """`1 job`, `2 jobs`, `12,345 jobs`."""
    return f"{number:,}{SPACE}{one if number == 1 else many or one + 's'}"


def _short(number: float, places: int) -> str:
    text = f"{number:,.{places}f}"
    return text.removesuffix(".0")


def _pair(small: int, size: int, big_unit: str, small_unit: str) -> str:
    whole, rest = divmod(small, size)
    text = f"{whole:,}{SPACE}{big_unit}"
    return f"{text} {rest}{SPACE}{small_unit}" if rest else text


def _code(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
