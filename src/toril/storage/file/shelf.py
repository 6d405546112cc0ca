"""One queue inside one transaction: its numbers, its rows and the events it tells."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from toril.event import EventKind
from toril.storage.file.codec import ACTIVE, PackedEvent, pack
from toril.storage.file.row import COLUMNS, INSERT, UPDATE, Row

EVENTS_KEPT: Final = 200_000
_PER_ROW: Final = 500
_FIELDS: Final = (
    "paused",
    "concurrency",
    "rate_max",
    "rate_ms",
    "window_end_ms",
    "window_used",
    "reaped_ms",
    "events_kept",
    "last",
    "dropped",
    "tickets",
)
_COUNTS: Final = ("waiting", "prioritized", "delayed", "active", "completed", "failed")
SELECT: Final = f"SELECT key, {', '.join((*_FIELDS, *_COUNTS))} FROM queues WHERE name = ?"
_SAVE: Final = (
    f"UPDATE queues SET {', '.join(f'{name} = ?' for name in (*_FIELDS, *_COUNTS))} WHERE key = ?"
)
_FIND: Final = f"SELECT {COLUMNS} FROM jobs WHERE queue = ? AND id = ?"

Extras = dict[str, Any]


class Shelf:
    """The row of a queue, kept while a transaction lasts; `flush` writes it and its events.

    `work`, `told` and `endings` gather what those who wait, here and in other processes, must
    hear of when the transaction is through.
    """

    def __init__(self, db: sqlite3.Connection, name: str, values: tuple[Any, ...]) -> None:
        self.db = db
        self.name = name
        self.now = 0
        (
            self.key,
            self.paused,
            self.concurrency,
            self.rate_max,
            self.rate_ms,
            self.window_end_ms,
            self.window_used,
            self.reaped_ms,
            self.events_kept,
            self.last,
            self.dropped,
            self.tickets,
        ) = values[:12]
        self.count = list(values[12:])
        self._events: list[PackedEvent] = []
        self.changed = False
        self.work = False
        self.told = False
        self.endings: list[str] = []
        self.awaited = False

    @classmethod
    def open(cls, db: sqlite3.Connection, name: str) -> Shelf:
        """Read the queue's row, or make one."""
        found = db.execute(SELECT, (name,)).fetchone()
        if found is None:
            db.execute("INSERT INTO queues (name, events_kept) VALUES (?, ?)", (name, EVENTS_KEPT))
            found = db.execute(SELECT, (name,)).fetchone()
        return cls(db, name, found)

    @classmethod
    def peek(cls, db: sqlite3.Connection, name: str) -> Shelf | None:
        """Read the queue's row for a look; None for a queue nobody used."""
        found = db.execute(SELECT, (name,)).fetchone()
        return None if found is None else cls(db, name, found)

    # -- rows ------------------------------------------------------------------------------

    def ticket(self) -> int:
        """Draw the next number; numbers order the lines."""
        self.changed = True
        ticket = int(self.tickets) + 1
        self.tickets = ticket
        return ticket

    def load(self, job_id: str) -> Row | None:
        """Read a job's row, also of one that is past its keep time."""
        found = self.db.execute(_FIND, (self.key, job_id)).fetchone()
        return None if found is None else Row(found)

    def insert(self, row: Row, payload: bytes) -> None:
        """Write a new job, which counts from now on."""
        row.n = self.db.execute(INSERT, (*row.fixed(), *row.moving())).lastrowid
        self.db.execute("INSERT INTO payloads (n, body) VALUES (?, ?)", (row.n, payload))

    def save(self, row: Row) -> None:
        """Write back a changed job."""
        self.db.execute(UPDATE, (*row.moving(), row.n))

    def shift(self, row: Row, state: int, rank: int = 0, *, front: bool = False) -> None:
        """Put a job at the end, or the front, of another line."""
        self.leave(row)
        self.place(row, state, rank, front=front)

    def place(self, row: Row, state: int, rank: int = 0, *, front: bool = False) -> None:
        """Put a job that stands in no line into one."""
        ticket = self.ticket()
        row.state = state
        row.rank = rank
        row.place = -ticket if front else ticket
        self.count[state] += 1

    def leave(self, row: Row) -> None:
        """Take a job out of its line."""
        self.changed = True
        self.count[row.state] -= 1

    # -- events ----------------------------------------------------------------------------

    def tell(self, kind: EventKind, row: Row, extras: Extras | None = None) -> None:
        """Say what happened to a job."""
        attempt = row.made + 1 if row.state == ACTIVE else row.made
        self._events.append((kind.value, row.id, row.name, attempt, row.worker_id, extras))

    def announce(
        self,
        kind: EventKind,
        extras: Extras | None = None,
        *,
        job_id: str | None = None,
        job_name: str | None = None,
    ) -> None:
        """Say what happened to the queue, or to a job whose row is not at hand."""
        self._events.append((kind.value, job_id, job_name, None, None, extras))

    @property
    def news(self) -> int:
        """How many events this call has told so far."""
        return len(self._events)

    def ended(self, row: Row) -> None:
        """Remember that a job came to its end, for those who wait for it."""
        self.endings.append(row.id)
        self.awaited = self.awaited or bool(row.reply)

    def flush(self) -> None:
        """Write the events and the queue's own row."""
        events, self._events = self._events, []
        for first in range(0, len(events), _PER_ROW):
            some = events[first : first + _PER_ROW]
            self.last = int(self.last) + len(some)
            self.db.execute(
                "INSERT INTO events (queue, last, count, time_ms, body) VALUES (?, ?, ?, ?, ?)",
                (self.key, self.last, len(some), self.now, pack(some)),
            )
        if events:
            self.changed = self.told = True
            # Not at every call: the oldest go by the hundred.
            if self.last - self.dropped > self.events_kept + min(1_000, self.events_kept // 10):
                self.trim()
        if self.changed:
            self.changed = False
            self.db.execute(_SAVE, (*self._values(), *self.count, self.key))

    def _values(self) -> tuple[Any, ...]:
        return (
            self.paused,
            self.concurrency,
            self.rate_max,
            self.rate_ms,
            self.window_end_ms,
            self.window_used,
            self.reaped_ms,
            self.events_kept,
            self.last,
            self.dropped,
            self.tickets,
        )

    def trim(self) -> None:
        """Drop the rows whose events all lie beyond the bound."""
        self.changed = True
        self.db.execute(
            "DELETE FROM events WHERE queue = ? AND last <= ?",
            (self.key, self.last - self.events_kept),
        )
        oldest = self.db.execute(
            "SELECT last - count FROM events WHERE queue = ? ORDER BY last LIMIT 1", (self.key,)
        ).fetchone()
        self.dropped = self.last if oldest is None else oldest[0]

    def forget_effects(self) -> None:
        """Start anew to gather what others must hear of."""
        self.work = self.told = self.awaited = False
        self.endings = []
