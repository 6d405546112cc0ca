"""Notes of running jobs, and changes to those that do not run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from toril.event import EventKind
from toril.job import Terms
from toril.outcome import DONE, GONE, LOST, Answer, Lease
from toril.storage.file import lines
from toril.storage.file.codec import COMPLETED, DELAYED, FAILED, STATES, pack_terms
from toril.storage.file.endings import find
from toril.storage.file.produce import holder_of, take_key
from toril.storage.file.row import Row
from toril.storage.file.shelf import Shelf
from toril.storage.protocol import Seen


def _held(shelf: Shelf, lease: Lease) -> Row | Answer:
    row = find(shelf, lease.job_id)
    if row is None:
        return GONE
    return row if row.owned_by(lease) else LOST


def progress(shelf: Shelf, lease: Lease, value: bytes) -> Answer:
    """Record progress under a lease."""
    row = _held(shelf, lease)
    if isinstance(row, Answer):
        return row
    shelf.db.execute("UPDATE jobs SET progress = ? WHERE n = ?", (value, row.n))
    shelf.tell(EventKind.PROGRESS, row, {"progress": value.decode()})
    return DONE


def log(shelf: Shelf, lease: Lease, line: str) -> Answer:
    """Append a log line under a lease."""
    row = _held(shelf, lease)
    if isinstance(row, Answer):
        return row
    db = shelf.db
    newest = db.execute("SELECT max(number) FROM logs WHERE n = ?", (row.n,)).fetchone()[0] or 0
    db.execute("INSERT INTO logs (n, number, line) VALUES (?, ?, ?)", (row.n, newest + 1, line))
    bound = newest + 1 - row.agreed().keep_logs
    if bound > 0:
        db.execute("DELETE FROM logs WHERE n = ? AND number <= ?", (row.n, bound))
    return DONE


def promote(shelf: Shelf, job_id: str) -> bool:
    """Let a delayed job start now."""
    row = find(shelf, job_id)
    if row is None or row.state != DELAYED:
        return False
    lines.promote(shelf, row)
    return True


def respec(shelf: Shelf, job_id: str, change: Callable[[Terms], Terms]) -> bool:
    """Give a pending job other terms; a new priority means a new place in line."""
    row = find(shelf, job_id)
    if row is None or row.state > DELAYED:
        return False
    old = row.agreed()
    new = change(old)
    row.terms = pack_terms(new)
    if old.priority != new.priority and row.state != DELAYED:
        shelf.leave(row)
        lines.enter(shelf, row)
    shelf.save(row)
    return True


def reprioritize(shelf: Shelf, job_id: str, priority: int) -> bool:
    """Give a pending job another priority."""
    return respec(shelf, job_id, lambda terms: replace(terms, priority=priority))


def replace_payload(shelf: Shelf, job_id: str, payload: bytes) -> bool:
    """Give a pending job other data."""
    row = find(shelf, job_id)
    if row is None or row.state > DELAYED:
        return False
    shelf.db.execute("UPDATE payloads SET body = ? WHERE n = ?", (payload, row.n))
    return True


def reschedule(shelf: Shelf, job_id: str, delay_ms: int) -> bool:
    """Let a delayed job start at another time."""
    row = find(shelf, job_id)
    if row is None or row.state != DELAYED:
        return False
    shelf.leave(row)
    lines.line_up(shelf, row, max(delay_ms, 1), front=False)
    shelf.save(row)
    return True


def rerun(shelf: Shelf, seen: Seen) -> bool:
    """Put a finished job back in line if it still has the end that was seen."""
    row = find(shelf, seen.id)
    if row is None or row.finished_ms != seen.finished_ms:
        return False
    return revive(shelf, seen.id, True)


def revive(shelf: Shelf, job_id: str, reset_attempts: bool) -> bool:
    """Put a finished job back in line."""
    row = find(shelf, job_id)
    if row is None or row.state not in (COMPLETED, FAILED):
        return False
    terms = row.agreed()
    if terms.dedup is not None:
        if holder_of(shelf, terms.dedup.key, own=job_id) is not None:
            return False
        take_key(shelf, job_id, terms.dedup)
    prev = STATES[row.state].value
    shelf.leave(row)
    row.expires_ms = row.finished_ms = row.result = row.failure = None
    row.since_ms = shelf.now
    if reset_attempts:
        row.made = 0
    lines.enter(shelf, row, front=terms.lifo)
    shelf.tell(EventKind.WAITING, row, {"prev": prev})
    shelf.save(row)
    return True
