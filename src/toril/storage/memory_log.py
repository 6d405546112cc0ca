"""Keep the events of one queue: numbered, re-readable, bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final

from toril.errors import EventsTrimmed
from toril.event import Cursor, Event, EventKind

EVENTS_KEPT: Final = 200_000
_PIECE: Final = 512

Extras = tuple[str | int | None, ...]
"""The fields of an event that only some kinds carry, in the order of `_FIELDS`."""

_PREV: Final = ("prev",)
_FIELDS: Final[Mapping[EventKind, tuple[str, ...]]] = {
    EventKind.WAITING: _PREV,
    EventKind.DELAYED: ("prev", "delay_ms"),
    EventKind.ACTIVE: _PREV,
    EventKind.PROGRESS: ("progress",),
    EventKind.COMPLETED: ("prev", "result_size", "duration_ms"),
    EventKind.FAILED: ("prev", "reason", "duration_ms"),
    EventKind.RETRYING: ("reason", "delay_ms"),
    EventKind.CANCELLED: _PREV,
    EventKind.REMOVED: _PREV,
    EventKind.DEDUPLICATED: ("dedup_id", "other_id"),
    EventKind.CLEANED: ("count",),
}

# A tuple per event, not an Event: writing is on the hot path, reading is not. Of plain text and
# numbers only, for then the garbage collector passes it over.
_Entry = tuple[str, int, str | None, str | None, int | None, str | None, Extras]


class EventLog:
    """An append-only log with running numbers; the oldest entries fall off at the bound."""

    def __init__(self) -> None:
        self.kept = EVENTS_KEPT
        self._last = 0
        self._gone = 0
        # All but the newest lie in pieces of one size, which the garbage collector passes over
        # as well, with all that is in them.
        self._pieces: deque[tuple[_Entry, ...]] = deque()
        self._newest: list[_Entry] = []

    @property
    def cursor(self) -> Cursor:
        """The place after the newest event."""
        return Cursor(self._last)

    @property
    def written(self) -> int:
        """How many events there were so far."""
        return self._last

    @property
    def empty(self) -> bool:
        """Whether no event can be read."""
        return self.dropped == self._last

    @property
    def dropped(self) -> int:
        """How many events can no longer be read."""
        return max(self._gone, self._last - self.kept)

    def append(
        self,
        kind: EventKind,
        time_ms: int,
        job_id: str | None = None,
        job_name: str | None = None,
        attempt: int | None = None,
        worker_id: str | None = None,
        extras: Extras = (),
    ) -> None:
        """Add one event, dropping the oldest beyond the bound."""
        newest = self._newest
        newest.append((kind._value_, time_ms, job_id, job_name, attempt, worker_id, extras))
        self._last += 1
        if len(newest) == _PIECE:
            self._pieces.append(tuple(newest))
            newest.clear()
            self._trim()

    def _trim(self) -> None:
        """Forget the pieces that lie beyond the bound whole."""
        unread = len(self._pieces) * _PIECE + len(self._newest) - (self._last - self.dropped)
        for _ in range(unread // _PIECE):
            self._pieces.popleft()

    def resize(self, kept: int | None) -> None:
        """Keep that many events from now on (None: the default)."""
        self._gone = self.dropped
        self.kept = EVENTS_KEPT if kept is None else kept
        self._gone = self.dropped
        self._trim()

    def clear(self) -> None:
        """Forget the entries; the numbers go on, so that readers notice."""
        self._gone = self._last
        self._pieces.clear()
        self._newest.clear()

    def read(self, after: Cursor, until: Cursor | None, limit: int) -> list[Event]:
        """Read events after one place up to another; a hole raises `EventsTrimmed`."""
        dropped = self.dropped
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
        last = min(after.major + limit, stop)
        entries = self._between(after.major, last)
        return [_event(number, entry) for number, entry in enumerate(entries, after.major + 1)]

    def _between(self, first: int, last: int) -> Iterator[_Entry]:
        """Walk the events after the first number up to the last one."""
        before = self._last - len(self._newest) - len(self._pieces) * _PIECE
        piece, skipped = divmod(first - before, _PIECE)
        pieces = islice(chain(self._pieces, (self._newest,)), piece, None)
        return islice(chain.from_iterable(pieces), skipped, skipped + last - first)


def _event(number: int, entry: _Entry) -> Event:
    told, time_ms, job_id, job_name, attempt, worker_id, extras = entry
    kind = EventKind(told)
    fields: dict[str, Any] = dict(zip(_FIELDS.get(kind, ()), extras, strict=False))
    return Event(
        kind=kind,
        cursor=Cursor(number),
        time_ms=time_ms,
        job_id=job_id,
        job_name=job_name,
        attempt=attempt,
        worker_id=worker_id,
        **fields,
    )
