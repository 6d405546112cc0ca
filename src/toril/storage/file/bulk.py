"""Columns in and out of a file storage, blocking: for programs without an event loop."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar, cast

from toril.clock import Clock, SystemClock
from toril.event import Cursor
from toril.ids import check_ids, check_name
from toril.job import DEFAULT_TERMS, JobRecord, JobSpec, State, Terms
from toril.storage.columns import (
    SELDOM,
    Columns,
    EventColumns,
    EventPage,
    JobColumns,
    Slice,
    Span,
    Written,
    append_job,
    check_bounds,
    check_columns,
    check_rows,
    gather,
    no_events,
    no_jobs,
    spread,
)
from toril.storage.file import observe, produce
from toril.storage.file.address import FileAddress, parse_file_url
from toril.storage.file.codec import NUMBERS, PackedEvent, unpack
from toril.storage.file.database import connect, set_up
from toril.storage.file.desk import touch_all
from toril.storage.file.directory import NOTIFY
from toril.storage.file.ledger import transact
from toril.storage.file.notify import Toucher
from toril.storage.file.scan import cut_state, scan
from toril.storage.file.shelf import Shelf
from toril.storage.file.trouble import translate

T = TypeVar("T")

_CHUNK: Final = 500
_PLAIN: Final = ("kind", "job_id", "job_name", "attempt", "worker_id")
_ALWAYS: Final = 1 << 62


class FileBulk:
    """The `Bulk` facet of a file storage; crosses a process border as its URL."""

    def __init__(self, url: str | FileAddress, *, clock: Clock | None = None) -> None:
        self.address = parse_file_url(url) if isinstance(url, str) else url
        self._clock = clock or SystemClock()
        self._opened: sqlite3.Connection | None = None
        self._toucher: Toucher | None = None

    def __repr__(self) -> str:
        return f"FileBulk({self.address.url!r})"

    def close(self) -> None:
        """Let the connection go."""
        db, self._opened = self._opened, None
        if db is not None:
            db.close()
        if self._toucher is not None:
            self._toucher.close()

    @property
    def _db(self) -> sqlite3.Connection:
        if self._opened is None:
            set_up(self.address)
            self._toucher = Toucher(self.address.directory / NOTIFY)
            self._opened = connect(self.address)
        return self._opened

    def _look(self, queue: str, look: Callable[[Shelf], T], unknown: T) -> T:
        db = self._db
        try:
            db.execute("BEGIN")
            try:
                shelf = Shelf.peek(db, queue)
                if shelf is None:
                    return unknown
                shelf.now = self._clock.now_ms()
                return look(shelf)
            finally:
                db.execute("COMMIT")
        except sqlite3.Error as error:
            raise translate(error, self.address.url) from error

    def queues(self) -> list[str]:
        """Name the queues that hold anything."""
        try:
            return observe.queues(self._db)
        except sqlite3.Error as error:
            raise translate(error, self.address.url) from error

    def number(self, cursor: Cursor) -> int:
        """The running number of the last event before a place."""
        return cursor.major

    def advance(self, queue: str, after: Cursor, count: int) -> Cursor:
        """Find the place `count` events further: numbers have no holes here."""
        return Cursor(min(after.major + count, self.span(queue).last.major))

    def span(self, queue: str) -> Span:
        """Tell which events there are."""
        nothing = Span(first=Cursor.START, last=Cursor.START)
        return self._look(
            queue, lambda q: Span(first=Cursor(q.dropped), last=Cursor(q.last)), nothing
        )

    def read_events(
        self, queue: str, after: Cursor, until: Cursor | None = None, limit: int = 2000
    ) -> EventColumns:
        """Read up to `limit` events."""
        columns = no_events()

        def read(shelf: Shelf) -> None:
            stop = shelf.last if until is None else min(until.major, shelf.last)
            if after.major >= stop:
                return
            observe.check_trimmed(shelf, after.major, stop)
            end = min(stop, after.major + limit)
            for last, time_ms, body in observe.event_rows(shelf, after.major):
                _append_events(columns, last, time_ms, unpack(body), after.major, end)
                if last >= end:
                    break

        self._look(queue, read, None)
        return columns

    def read_page(
        self, queue: str, after: Cursor, until: Cursor | None = None, limit: int = 2000
    ) -> EventPage:
        """Read up to `limit` events and the place to go on from."""
        columns = self.read_events(queue, after, until, limit)
        numbers = columns["number"]
        reached = Cursor(numbers[-1]) if numbers else after
        return EventPage(columns=columns, reached=reached, seen=len(numbers))

    def read_jobs(self, queue: str, state: State, start: int, stop: int) -> JobColumns:
        """Read jobs of one state."""
        columns = no_jobs()
        none: list[JobRecord] = []
        for record in self._look(queue, lambda q: observe.peek(q, state, start, stop), none):
            append_job(columns, record)
        return columns

    def counts(self, queue: str) -> Mapping[State, int]:
        """Count the jobs by state."""
        none: dict[State, int] = {}

        def count(shelf: Shelf) -> dict[State, int]:
            found = observe.counts(shelf)
            return {state: getattr(found, state.value) for state in NUMBERS}

        return {**dict.fromkeys(State, 0), **self._look(queue, count, none)}

    def cut_jobs(
        self,
        queue: str,
        state: State,
        parts: int,
        since_ms: int | None = None,
        until_ms: int | None = None,
    ) -> Sequence[Slice]:
        """Cut a state by the numbers of its jobs."""
        check_bounds(state, since_ms, until_ms)
        if state not in NUMBERS:
            return ()
        times = (since_ms or 0, _ALWAYS if until_ms is None else until_ms)
        return self._look(queue, lambda q: cut_state(q.db, q.key, state, parts, times), [])

    def scan_jobs(
        self, queue: str, cut: Slice, columns: Collection[str], limit: int = 2000
    ) -> Iterator[Columns]:
        """Read a slice, only the columns asked for."""
        check_columns(columns)
        pages = scan(
            lambda read: self._look(queue, lambda q: read(q.db, q.key, q.now), ()), cut, columns
        )
        return gather(pages, columns, limit)

    def write_jobs(
        self,
        queue: str,
        ids: Sequence[str],
        payloads: Sequence[bytes],
        names: Sequence[str] | str = "job",
        terms: Sequence[Terms] | Terms = DEFAULT_TERMS,
        origin: str = "",
    ) -> Written:
        """Store jobs; an id that is there already is left alone."""
        check_ids(ids)
        check_rows(ids, payloads=payloads, names=names, terms=terms)
        check_name("queue", queue)
        count = len(ids)
        specs = [
            JobSpec(id=job_id, payload=payload, name=name, terms=one, origin=origin)
            for job_id, payload, name, one in zip(
                ids, payloads, spread(names, count), spread(terms, count), strict=True
            )
        ]
        left: list[str] = []
        for first in range(0, count, _CHUNK):
            store = partial(_store, specs[first : first + _CHUNK])
            some, effects = transact(self._db, self.address, self._clock, queue, store)
            left += some
            if self._toucher is not None:
                touch_all(self._toucher, effects)
        return Written(
            created=count - len(left),
            duplicates=len(left),
            first_duplicate=left[0] if left else None,
        )


def _store(specs: Sequence[JobSpec], shelf: Shelf) -> list[str]:
    """Store jobs; name those that were left."""
    return [spec.id for spec in specs if not produce.enqueue(shelf, spec).created]


def _append_events(
    columns: EventColumns,
    last: int,
    time_ms: int,
    packed: Sequence[PackedEvent],
    after: int,
    end: int,
) -> None:
    """Append the events of one row that lie after one number and up to another."""
    first = last - len(packed) + 1
    low, high = max(0, after + 1 - first), min(len(packed), end + 1 - first)
    if low >= high:
        return
    rows = cast("dict[str, list[Any]]", columns)
    at = len(rows["number"])
    *plain, extras = zip(*packed[low:high], strict=True)
    rows["number"] += range(first + low, first + high)
    rows["time_ms"] += [time_ms] * (high - low)
    for name, values in zip(_PLAIN, plain, strict=True):
        rows[name] += values
    for name in ("prev", *SELDOM):
        rows[name] += [None] * (high - low)
    for row, more in enumerate(extras, at):
        if more:
            for name, value in more.items():
                rows[name][row] = value
