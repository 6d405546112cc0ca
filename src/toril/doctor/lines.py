"""Read the lines of a queue, as far as the bounds go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from toril.doctor.census import Spot
from toril.doctor.finding import PAGE
from toril.doctor.visit import Visit

LINES: Final = {
    "bullmq": {
        **dict.fromkeys(("wait", "paused", "active"), "list"),
        **dict.fromkeys(("prioritized", "delayed", "waiting-children"), "set"),
        **dict.fromkeys(("completed", "failed"), "set"),
    },
    "lean": {
        "queue": "list",
        **dict.fromkeys(("prioritized", "delayed", "processing", "completed", "failed"), "set"),
    },
}
"""What holds the ids of jobs, in each layout, and its type."""

_FINISHED: Final = ("completed", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The entries of one list or sorted set: next to run first, newest finished first."""

    name: str
    kind: str
    size: int
    entries: tuple[bytes, ...]

    @property
    def cut(self) -> bool:
        """Whether there are more entries than were read."""
        return self.size > len(self.entries)


async def read_lines(visit: Visit, spot: Spot) -> Sequence[Line]:
    """Read all lines of a queue."""
    return [await _read(visit, spot, name, kind) for name, kind in LINES[spot.layout].items()]


async def _read(visit: Visit, spot: Spot, name: str, kind: str) -> Line:
    key = spot.base + name
    (size,) = await visit.pipe(spot, [("LLEN" if kind == "list" else "ZCARD", key)])
    entries: list[bytes] = []
    for start in range(0, min(size, visit.bounds.entries), PAGE):
        stop = min(start + PAGE, visit.bounds.entries)
        if kind == "set":
            command = "ZREVRANGE" if name in _FINISHED else "ZRANGE"
            (some,) = await visit.pipe(spot, [(command, key, start, stop - 1)])
        elif spot.layout == "lean":
            (some,) = await visit.pipe(spot, [("LRANGE", key, start, stop - 1)])
        else:  # the tail is next
            (some,) = await visit.pipe(spot, [("LRANGE", key, -stop, -start - 1)])
            some = some[::-1]
        entries += some
    return Line(name=name, kind=kind, size=size, entries=tuple(entries))
