"""Where a reader of events stands, queue by queue, as Spark's checkpoints keep it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toril.errors import InvalidOption
from toril.event import Cursor

Offsets = dict[str, Any]
"""JSON: a queue's name, and what `Mark.json` makes."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place between two events: the storage's cursor, and the number of the event before it."""

    cursor: Cursor
    n: int

    @classmethod
    def parse(cls, value: object) -> Place:
        """Read `{"id": "1-2-3", "n": 3}`."""
        if not isinstance(value, dict):
            raise InvalidOption('an offset is {"id": "1-2-3", "n": 3}, earliest or latest')
        found, n = value.get("id"), value.get("n")
        if not isinstance(found, str) or type(n) is not int or n < 0:
            raise InvalidOption("an offset has 'id', a text, and 'n', a whole number")
        return cls(Cursor.parse(found), n)

    def json(self) -> dict[str, Any]:
        """Write what `parse` reads."""
        return {"id": str(self.cursor), "n": self.n}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A place, and what else must be the same when a batch is read again.

    `start` is where the batch that ends here begins, if that is not where the one before it
    ended: at the first event there was at `at_ms`, because the reading began there or because
    `lost` events that lay in between are gone, an unknown number (None) where the stream was
    deleted and began anew. `initial` marks a place that was chosen when the query began and is
    chosen again until its first batch is planned.
    """

    place: Place
    start: Place | None = None
    at_ms: int = 0
    lost: int | None = 0
    initial: bool = False

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Mark:
        """Read what `json` wrote."""
        start = value.get("from")
        return cls(
            place=Place.parse(value),
            start=None if start is None else Place.parse(start),
            at_ms=value.get("at", 0),
            lost=value.get("lost", 0),
            initial=value.get("initial", False),
        )

    def json(self) -> dict[str, Any]:
        """Write plain data for a checkpoint."""
        found = self.place.json()
        if self.start is not None:
            found |= {"from": self.start.json(), "at": self.at_ms}
        if self.lost != 0:
            found["lost"] = self.lost
        if self.initial:
            found["initial"] = True
        return found


def read_marks(offsets: Mapping[str, Any]) -> dict[str, Mark]:
    """Read the offsets of a checkpoint."""
    return {queue: Mark.parse(value) for queue, value in offsets.items()}


def write_marks(marks: Mapping[str, Mark]) -> Offsets:
    """Write offsets for a checkpoint, always in the same order."""
    return {queue: marks[queue].json() for queue in sorted(marks)}
