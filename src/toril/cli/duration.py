"""Durations on the command line: a number with its unit."""

from __future__ import annotations

import re
from typing import Final

import click

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", re.ASCII)


class Duration(click.ParamType[float]):
    """Seconds, written as 90, 90s, 1.5h or 7d."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read a duration; a number alone is seconds."""
        if isinstance(value, (int, float)):
            return float(value)
        found = _DURATION.fullmatch(str(value).strip())
        if found is None:
            self.fail(f"'{value}': write a number and its unit, as 30s, 10m, 12h or 7d", param, ctx)
        if found[2] is None and found[1].isdecimal():
            return int(found[1])  # as whoever forgets the unit means milliseconds now and then
        return float(found[1]) * _UNITS[found[2] or "s"]


SECONDS: Final = Duration()
