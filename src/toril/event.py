"""Name what happens to jobs and queues, in one total order per queue."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import ClassVar, Final

from toril.errors import InvalidOption
from toril.text import printable

_CURSOR: Final = re.compile(r"(\d{1,20})-(\d{1,20})-(\d{1,20})", re.ASCII)


class EventKind(StrEnum):
    """One vocabulary for all storages: BullMQ's kinds, plus `retrying` and `cancelled`."""

    ADDED = "added"
    WAITING = "waiting"
    DELAYED = "delayed"
    ACTIVE = "active"
    PROGRESS = "progress"
    COMPLETED = "completed"
    FAILED = "failed"
    RETRYING = "retrying"
    RETRIES_EXHAUSTED = "retries-exhausted"
    STALLED = "stalled"
    CANCELLED = "cancelled"
    REMOVED = "removed"
    DUPLICATED = "duplicated"
    DEDUPLICATED = "deduplicated"
    DEBOUNCED = "debounced"
    WAITING_CHILDREN = "waiting-children"
    CLEANED = "cleaned"
    DRAINED = "drained"
    PAUSED = "paused"
    RESUMED = "resumed"


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """A place between two events of one queue; compares in the order of the events.

    Three numbers are enough for every storage: a running number alone, or a stream id and the
    place inside a packed entry.
    """

    major: int = 0
    minor: int = 0
    part: int = 0

    START: ClassVar[Cursor]

    def __str__(self) -> str:
        return f"{self.major}-{self.minor}-{self.part}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Read what `str(cursor)` wrote."""
        found = _CURSOR.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise InvalidOption(f"cursor '{printable(text, 60)}' is not of the form '1-2-3'")
        return cls(*(int(part) for part in found.groups()))


Cursor.START = Cursor()


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened; fields that do not apply, or that the wire lacks, are None."""

    kind: EventKind
    cursor: Cursor
    time_ms: int
    job_id: str | None = None
    job_name: str | None = None
    attempt: int | None = None
    worker_id: str | None = None
    prev: str | None = None
    reason: str | None = None
    delay_ms: int | None = None
    duration_ms: int | None = None
    result_size: int | None = None
    progress: str | None = None
    dedup_id: str | None = None
    other_id: str | None = None
    count: int | None = None

    @property
    def time(self) -> datetime:
        """The storage's time of the event, in UTC."""
        return datetime.fromtimestamp(self.time_ms / 1000, UTC)

    @property
    def value(self) -> object:
        """The decoded progress, None where the event carries none."""
        return None if self.progress is None else json.loads(self.progress)
