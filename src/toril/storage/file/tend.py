"""Recover jobs of silent workers; pause, tune, purge and destroy queues."""

from __future__ import annotations

from collections.abc import Sequence

from toril.errors import QueueBusy
from toril.event import EventKind
from toril.job import State
from toril.outcome import CANCELLED, Failure
from toril.storage.file.codec import ACTIVE, FAILED
from toril.storage.file.endings import find, finish, retain, sweep
from toril.storage.file.lines import line_up
from toril.storage.file.produce import delete
from toril.storage.file.row import COLUMNS, Row
from toril.storage.file.shelf import EVENTS_KEPT, Shelf
from toril.storage.file.work import let_go
from toril.storage.protocol import Rate, Reaped, Seen


def reap(shelf: Shelf, max_stalls: int, interval_ms: int) -> Reaped:
    """Put jobs with lapsed leases back in front; fail those that stall too often."""
    now, reaped_ms = shelf.now, shelf.reaped_ms
    # A clock that was set back must not keep everybody from reaping.
    if reaped_ms is not None and reaped_ms <= now < reaped_ms + interval_ms:
        return Reaped(next_in_ms=reaped_ms + interval_ms - now)
    shelf.reaped_ms = now
    shelf.changed = True
    sweep(shelf)
    lapsed = shelf.db.execute(
        f"SELECT {COLUMNS} FROM jobs WHERE queue = ? AND state = ? AND lease_until_ms <= ? "
        "ORDER BY rank, place",
        (shelf.key, ACTIVE, now),
    ).fetchall()
    stalled: list[str] = []
    doomed: list[str] = []
    for values in reversed(lapsed):  # each goes to the front, so the oldest goes last
        row = Row(values)
        let_go(shelf, row)
        row.stalls += 1
        shelf.tell(EventKind.STALLED, row)
        if row.cancel or row.stalls > max_stalls:
            doomed.append(row.id)
            _doom(shelf, row, max_stalls)
        else:
            stalled.append(row.id)
            line_up(shelf, row, 0, front=True, ignore_priority=True)
            shelf.save(row)
    return Reaped(stalled=stalled[::-1], doomed=doomed[::-1], next_in_ms=interval_ms)


def _doom(shelf: Shelf, row: Row, max_stalls: int) -> None:
    if row.cancel:
        failure = Failure(kind=CANCELLED, reason="cancelled; its worker had stalled")
    else:
        failure = Failure(
            kind="JobStalled",
            reason=f"stalled {row.stalls} times; allowed are {max_stalls} (max_stalls=)",
        )
    row.record_failure(failure)
    finish(shelf, row, FAILED)
    extras = {"prev": State.ACTIVE.value, "reason": str(failure)}
    shelf.tell(EventKind.FAILED, row, extras)
    retain(shelf, row, row.agreed().keep_failed)


def leave(shelf: Shelf, worker_id: str) -> None:
    """Strike a worker off the list."""
    shelf.db.execute("DELETE FROM workers WHERE queue = ? AND id = ?", (shelf.key, worker_id))


def pause(shelf: Shelf, paused: bool) -> None:
    """Stop or resume handing out jobs."""
    if paused != bool(shelf.paused):
        shelf.paused = int(paused)
        shelf.work = not paused
        shelf.announce(EventKind.PAUSED if paused else EventKind.RESUMED)


def tune(shelf: Shelf, concurrency: int | None, rate: Rate | None, events_kept: int | None) -> None:
    """Set the bounds of a queue."""
    shelf.concurrency = concurrency
    shelf.rate_max = None if rate is None else rate.max
    shelf.rate_ms = None if rate is None else rate.duration_ms
    shelf.events_kept = EVENTS_KEPT if events_kept is None else events_kept
    shelf.work = True
    shelf.trim()


def purge(shelf: Shelf, numbers: Sequence[int], states: Sequence[int], before_ms: int) -> list[str]:
    """Delete those of the jobs that still are in one of the states for long enough."""
    gone: list[str] = []
    for number in numbers:
        found = shelf.db.execute(
            f"SELECT {COLUMNS} FROM jobs WHERE n = ? AND queue = ?", (number, shelf.key)
        ).fetchone()
        row = None if found is None else Row(found)
        if row is not None and row.state in states and row.since_ms <= before_ms:
            gone.append(row.id)
            delete(shelf, row)
    if gone:
        shelf.announce(EventKind.CLEANED, {"count": len(gone)})
    return gone


def discard(shelf: Shelf, seen: Sequence[Seen]) -> list[bool]:
    """Delete finished jobs that still have the end that was seen."""
    gone: list[bool] = []
    for one in seen:
        row = find(shelf, one.id)
        if row is not None and row.finished_ms == one.finished_ms:
            delete(shelf, row)
            gone.append(True)
        else:
            gone.append(False)
    if any(gone):
        shelf.announce(EventKind.CLEANED, {"count": sum(gone)})
    return gone


def destroy(shelf: Shelf, force: bool) -> None:
    """Delete everything but the numbers of the events."""
    active = shelf.count[ACTIVE]
    if active and not force:
        raise QueueBusy(
            f"queue {shelf.name!r}: {active} jobs are running; wait for them, "
            "or destroy it with force=True"
        )
    db, key = shelf.db, (shelf.key,)
    # Those who wait in this process hear of their own jobs; the others look again.
    shelf.endings += [one for (one,) in db.execute("SELECT id FROM jobs WHERE queue = ?", key)]
    shelf.awaited = True
    for table in ("payloads", "logs"):
        db.execute(f"DELETE FROM {table} WHERE n IN (SELECT n FROM jobs WHERE queue = ?)", key)
    for table in ("jobs", "ghosts", "holds", "workers", "events"):
        db.execute(f"DELETE FROM {table} WHERE queue = ?", key)
    shelf.count = [0] * len(shelf.count)
    shelf.paused = 0
    shelf.concurrency = shelf.rate_max = shelf.rate_ms = shelf.reaped_ms = None
    shelf.window_end_ms = shelf.window_used = 0
    shelf.dropped = shelf.last
    shelf.changed = shelf.told = True
