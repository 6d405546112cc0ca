"""Read jobs, counts, workers and events; nothing here writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final

from toril.errors import EventsTrimmed
from toril.event import Cursor, Event
from toril.job import JobRecord, State
from toril.storage.file.codec import (
    ACTIVE,
    COMPLETED,
    FAILED,
    NUMBERS,
    read_events,
)
from toril.storage.file.row import COLUMNS, Row
from toril.storage.file.shelf import Shelf
from toril.storage.protocol import Counts, WorkerInfo

WORKER_SEEN_MS: Final = 30_000

_WHOLE: Final = f"SELECT {COLUMNS}, payloads.body FROM jobs LEFT JOIN payloads USING (n)"
_LIVE: Final = "(expires_ms IS NULL OR expires_ms > ?)"


def get(shelf: Shelf, job_id: str) -> JobRecord | None:
    """Read a job unless its keep time is over."""
    found = shelf.db.execute(
        f"{_WHOLE} WHERE queue = ? AND id = ? AND {_LIVE}", (shelf.key, job_id, shelf.now)
    ).fetchone()
    return None if found is None else Row(found[:-1]).record(found[-1] or b"")


def peek(shelf: Shelf, state: State, start: int, stop: int) -> list[JobRecord]:
    """Read one page of a state: next to run first, newest finished first."""
    if state not in NUMBERS or stop <= start:
        return []
    number = NUMBERS[state]
    order = "rank DESC, place DESC" if number in (COMPLETED, FAILED) else "rank, place"
    found = shelf.db.execute(
        f"{_WHOLE} WHERE queue = ? AND state = ? AND {_LIVE} ORDER BY {order} LIMIT ? OFFSET ?",
        (shelf.key, number, shelf.now, stop - start, start),
    )
    return [Row(values[:-1]).record(values[-1] or b"") for values in found]


def counts(shelf: Shelf) -> Counts:
    """Count the jobs by state; those past their keep time no longer count."""
    count = list(shelf.count)
    for state, past in shelf.db.execute(
        "SELECT state, count(*) FROM jobs WHERE queue = ? AND expires_ms <= ? GROUP BY state",
        (shelf.key, shelf.now),
    ):
        count[state] -= past
    waiting, prioritized, delayed, active, completed, failed = count
    return Counts(
        waiting=waiting,
        prioritized=prioritized,
        delayed=delayed,
        active=active,
        completed=completed,
        failed=failed,
        paused=bool(shelf.paused),
    )


def oldest(shelf: Shelf, states: Sequence[int], before_ms: int, limit: int | None) -> list[int]:
    """Name the jobs that are in one of the states since long enough, oldest first."""
    marks = ", ".join("?" * len(states))
    found = shelf.db.execute(
        f"SELECT n FROM jobs WHERE queue = ? AND state IN ({marks}) AND since_ms <= ? "
        "ORDER BY since_ms, state, place LIMIT ?",
        (shelf.key, *states, before_ms, -1 if limit is None else limit),
    )
    return [number for (number,) in found]


def logs(shelf: Shelf, job_id: str, start: int, stop: int | None) -> list[str]:
    """Read kept lines, oldest first."""
    found = shelf.db.execute(
        f"SELECT line FROM logs JOIN jobs USING (n) WHERE queue = ? AND id = ? AND {_LIVE} "
        "ORDER BY number",
        (shelf.key, job_id, shelf.now),
    )
    return [line for (line,) in found][start:stop]


def workers(shelf: Shelf) -> list[WorkerInfo]:
    """Name the workers seen lately."""
    active = dict(
        shelf.db.execute(
            "SELECT worker_id, count(*) FROM jobs WHERE queue = ? AND state = ? GROUP BY worker_id",
            (shelf.key, ACTIVE),
        ).fetchall()
    )
    found = shelf.db.execute(
        "SELECT id, name, seen_ms FROM workers WHERE queue = ? AND seen_ms > ? ORDER BY id",
        (shelf.key, shelf.now - WORKER_SEEN_MS),
    )
    return [
        WorkerInfo(
            id=worker,
            name=name,
            seen_ms_ago=max(0, shelf.now - seen_ms),
            active=active.get(worker, 0),
        )
        for worker, name, seen_ms in found
    ]


def lapsed(shelf: Shelf, most: int) -> list[str]:
    """Name running jobs whose lease is over, at most so many."""
    found = shelf.db.execute(
        "SELECT id FROM jobs WHERE queue = ? AND state = ? AND lease_until_ms <= ? LIMIT ?",
        (shelf.key, ACTIVE, shelf.now, most),
    )
    return [job_id for (job_id,) in found]


def queues(db: sqlite3.Connection) -> list[str]:
    """Name the queues that hold anything."""
    found = db.execute(
        "SELECT name FROM queues WHERE paused OR last > dropped OR "
        "waiting + prioritized + delayed + active + completed + failed > 0 ORDER BY name"
    )
    return [name for (name,) in found]


def events(shelf: Shelf, after: Cursor, until: Cursor | None, limit: int) -> list[Event]:
    """Read events after one place up to another; a hole raises `EventsTrimmed`."""
    stop = shelf.last if until is None else min(until.major, shelf.last)
    if after.major >= stop:
        return []
    check_trimmed(shelf, after.major, stop)
    found: list[Event] = []
    for last, time_ms, body in event_rows(shelf, after.major):
        for event in read_events(last, time_ms, body):
            if after.major < event.cursor.major <= stop and len(found) < limit:
                found.append(event)
        if len(found) >= limit or last >= stop:
            break
    return found


def event_rows(shelf: Shelf, after: int) -> Iterator[tuple[int, int, str]]:
    """Read the packed events after a number, row by row."""
    return shelf.db.execute(
        "SELECT last, time_ms, body FROM events WHERE queue = ? AND last > ? ORDER BY last",
        (shelf.key, after),
    )


def check_trimmed(shelf: Shelf, after: int, stop: int) -> None:
    """Raise `EventsTrimmed` if events after `after` and up to `stop` are gone."""
    gone = min(shelf.dropped, stop) - after
    if gone > 0:
        resume = Cursor(shelf.dropped)
        raise EventsTrimmed(
            f"{gone:,} events after {Cursor(after)} of queue {shelf.name!r} are gone (kept: the "
            f"newest {shelf.events_kept:,}); read on from {resume}, or keep more with events_kept=",
            count=gone,
            resume=resume,
        )
