"""What a check found, and what may be done about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from toril.text import printable


class Level(StrEnum):
    """How bad it is: a problem loses, stops or hides jobs; a warning may."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reap:
    """Put jobs whose lease lapsed back in line; none fails for it."""

    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Put jobs that are in the line for the other state of a queue into the right one."""

    queue: str
    paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """Take entries out of a line whose jobs have no record."""

    queue: str
    line: str
    entries: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Free a dedup key held by a job that is gone."""

    queue: str
    holds: tuple[tuple[bytes, bytes], ...]
    """Dedup keys, each with the job that holds it."""


Remedy: TypeAlias = Reap | Merge | Strike | Release


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of a report."""

    level: Level
    check: str
    """What was looked at, in one word that does not change."""
    text: str
    queue: str | None = None
    fix: str | None = None
    code: str | None = None
    """The code that `toril explain` knows it by."""
    count: int = 0
    """How many of them were found."""
    remedy: Remedy | None = None
    """What `--fix` does; None where only people should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that was found in one look."""

    url: str
    findings: tuple[Finding, ...]

    def of(self, level: Level) -> Sequence[Finding]:
        """Those of one level."""
        return [one for one in self.findings if one.level is level]

    @property
    def remedies(self) -> Sequence[Remedy]:
        """What can be done without loss."""
        return [one.remedy for one in self.findings if one.remedy is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How far a check looks, so that it costs the same on a small and on a huge queue."""

    entries: int = 10_000
    """Entries of a line, and records of a queue."""
    keys: int = 1_000_000
    """Keys passed over in search of some."""


PAGE: Final = 500
"""Items per call: keeps it under two milliseconds of server time."""


def ok(check: str, text: str, queue: str | None = None) -> Finding:
    """Say that something is as it should be."""
    return Finding(level=Level.OK, check=check, text=text, queue=queue)


def warning(
    check: str,
    text: str,
    fix: str | None = None,
    *,
    queue: str | None = None,
    count: int = 0,
    remedy: Remedy | None = None,
) -> Finding:
    """Say that something may go wrong."""
    return Finding(
        level=Level.WARNING,
        check=check,
        text=text,
        fix=fix,
        queue=queue,
        count=count,
        remedy=remedy,
    )


def problem(
    check: str,
    text: str,
    fix: str | None = None,
    *,
    queue: str | None = None,
    code: str | None = None,
    count: int = 0,
    remedy: Remedy | None = None,
) -> Finding:
    """Say that something is wrong."""
    return Finding(
        level=Level.PROBLEM,
        check=check,
        text=text,
        fix=fix,
        queue=queue,
        code=code,
        count=count,
        remedy=remedy,
    )


def jobs(number: int) -> str:
    """Write `1 job` or `1,204 jobs`."""
    return "1 job" if number == 1 else f"{number:,} jobs"


def them(number: int) -> str:
    """Stand for one thing or many."""
    return "it" if number == 1 else "them"


def some(ids: Sequence[bytes], most: int = 3) -> str:
    """Name a few of many."""
    shown = ", ".join(printable(one.decode(errors="replace"), 60) for one in ids[:most])
    return shown if len(ids) <= most else f"{shown}, …"
