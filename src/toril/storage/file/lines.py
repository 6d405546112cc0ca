"""Where jobs wait: enter a line, leave it, fall due."""

from __future__ import annotations

from toril.event import EventKind
from toril.job import State
from toril.storage.file.codec import ACTIVE, DELAYED, PRIORITIZED, STATES, WAITING
from toril.storage.file.row import COLUMNS, Row
from toril.storage.file.shelf import Shelf
from toril.storage.protocol import Rate


def enter(shelf: Shelf, row: Row, *, front: bool = False, ignore_priority: bool = False) -> None:
    """Let a job that stands in no line wait for a worker."""
    row.due_ms = None
    priority = 0 if ignore_priority else row.agreed().priority
    shelf.place(row, PRIORITIZED if priority else WAITING, priority, front=front)
    shelf.work = True


def line_up(
    shelf: Shelf, row: Row, delay_ms: int, *, front: bool, ignore_priority: bool = False
) -> None:
    """Put a job that stands in no line into the one its delay and priority ask for."""
    prev = STATES[row.state].value if row.started else None
    row.since_ms = shelf.now
    if delay_ms > 0:
        row.due_ms = shelf.now + delay_ms
        shelf.place(row, DELAYED, row.due_ms)
        shelf.work = True
        shelf.tell(EventKind.DELAYED, row, {"prev": prev, "delay_ms": delay_ms})
        return
    enter(shelf, row, front=front, ignore_priority=ignore_priority)
    shelf.tell(EventKind.WAITING, row, {"prev": prev})


def promote(shelf: Shelf, row: Row) -> None:
    """Let a delayed job wait for a worker."""
    shelf.leave(row)
    row.since_ms = shelf.now
    enter(shelf, row)
    shelf.tell(EventKind.WAITING, row, {"prev": State.DELAYED.value})
    shelf.save(row)


def promote_due(shelf: Shelf) -> None:
    """Let every delayed job whose time has come wait for a worker."""
    if not shelf.count[DELAYED]:
        return
    due = shelf.db.execute(
        f"SELECT {COLUMNS} FROM jobs WHERE queue = ? AND state = ? AND rank <= ? "
        "ORDER BY rank, place LIMIT 1000",
        (shelf.key, DELAYED, shelf.now),
    ).fetchall()
    for values in due:
        promote(shelf, Row(values))


def due_in(shelf: Shelf) -> int | None:
    """Milliseconds until the next delayed job is due, None if there is none."""
    if not shelf.count[DELAYED]:
        return None
    first = shelf.db.execute(
        "SELECT rank FROM jobs WHERE queue = ? AND state = ? ORDER BY rank, place LIMIT 1",
        (shelf.key, DELAYED),
    ).fetchone()
    return None if first is None else max(0, first[0] - shelf.now)


def ready(shelf: Shelf) -> int:
    """Jobs that could start now."""
    waiting: int = shelf.count[WAITING] + shelf.count[PRIORITIZED]
    return waiting


def rate_of(shelf: Shelf, claim_rate: Rate | None = None) -> Rate | None:
    """The rate in force: the queue's own before the claim's."""
    if shelf.rate_max is None:
        return claim_rate
    return Rate(max=shelf.rate_max, duration_ms=shelf.rate_ms)


def is_open(shelf: Shelf) -> bool:
    """Whether the queue may start a job, were there one."""
    return not shelf.paused and (
        shelf.concurrency is None or shelf.count[ACTIVE] < shelf.concurrency
    )


def claimable_in(shelf: Shelf) -> int | None:
    """Milliseconds until a claim can bring something; None if only news can change that."""
    if not is_open(shelf):
        return None
    wait = 0 if ready(shelf) else due_in(shelf)
    if wait is None:
        return None
    rate, left = rate_of(shelf), shelf.window_end_ms - shelf.now
    limited = rate is not None and left > 0 and shelf.window_used >= rate.max
    return max(wait, left) if limited else wait
