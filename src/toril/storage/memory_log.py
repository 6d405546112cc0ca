"""Keep the events of one queue: numbered, re-readable, bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final, TypedDict

from toril.errors import EventsTrimmed
from toril.event import Cursor, Event, EventKind

EVENTS_KEPT: Final = 200_000


class Extras(TypedDict, total=False):
    """The fields of an event that only some kinds carry."""

    prev: str | None
    reason: str
    delay_ms: int
    duration_ms: int
    result_size: int
    progress: str
    dedup_id: str
    other_id: str
    count: int


# A tuple per event, not an Event: writing is on the hot path, reading is not.
_Entry = tuple[EventKind, int, str | None, str | None, int | None, str | None, Extras]


class EventLog:
    """An append-only log with running numbers; the oldest entries fall off at the bound."""

    def __init__(self) -> None:
        self.kept = EVENTS_KEPT
        self._entries: deque[_Entry] = deque()
        self._last = 0

    @property
    def cursor(self) -> Cursor:
        """The place after the newest event."""
        return Cursor(self._last)

    @property
    def empty(self) -> bool:
        """Whether no event can be read."""
        return not self._entries

    def append(
        self,
        kind: EventKind,
        time_ms: int,
        job_id: str | None = None,
        job_name: str | None = None,
        attempt: int | None = None,
        worker_id: str | None = None,
        extras: Extras | None = None,
    ) -> None:
        """Add one event, dropping the oldest beyond the bound."""
        self._entries.append((kind, time_ms, job_id, job_name, attempt, worker_id, extras or {}))
        self._last += 1
        if len(self._entries) > self.kept:
            self._entries.popleft()

    def resize(self, kept: int | None) -> None:
        """Keep that many events from now on (None: the default)."""
        self.kept = EVENTS_KEPT if kept is None else kept
        while len(self._entries) > self.kept:
            self._entries.popleft()

    def clear(self) -> None:
        """Forget the entries; the numbers go on, so that readers notice."""
        self._entries.clear()

    def read(self, after: Cursor, until: Cursor | None, limit: int) -> list[Event]:
        """Read events after one place up to another; a hole raises `EventsTrimmed`."""
        dropped = self._last - len(self._entries)
        stop = self._last if until is None else min(until.major, self._last)
        if after.major >= stop:
            return []
        if after.major < dropped:
            gone = min(dropped, stop) - after.major
            raise EventsTrimmed(
                f"{gone:,} events after {after} are gone (kept: the newest {self.kept:,}); "
                f"read on from {Cursor(dropped)}, or keep more with events_kept=",
                count=gone,
                resume=Cursor(dropped),
            )
        first = after.major - dropped
        last = min(first + limit, stop - dropped)
        return list(self._slice(first, last, dropped))

    def _slice(self, first: int, last: int, dropped: int) -> Iterator[Event]:
        for number, entry in enumerate(islice(self._entries, first, last), dropped + first + 1):
            kind, time_ms, job_id, job_name, attempt, worker_id, extras = entry
            yield Event(
                kind=kind,
                cursor=Cursor(number),
                time_ms=time_ms,
                job_id=job_id,
                job_name=job_name,
                attempt=attempt,
                worker_id=worker_id,
                **extras,
            )
