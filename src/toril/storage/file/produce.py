"""Hand in jobs, call them off, delete them."""

from __future__ import annotations

from toril.event import EventKind
from toril.job import Dedup, JobSpec
from toril.storage.file.codec import ACTIVE, COMPLETED, DELAYED, FAILED, STATES
from toril.storage.file.endings import bury, find, forget
from toril.storage.file.lines import line_up
from toril.storage.file.row import Row
from toril.storage.file.shelf import Shelf
from toril.storage.protocol import Cancellation, EndingKind, Receipt, Removal


def enqueue(shelf: Shelf, spec: JobSpec) -> Receipt:
    """Store the job unless its id or dedup key is taken."""
    there = find(shelf, spec.id)
    if there is not None:
        if spec.origin and there.origin == spec.origin:
            return Receipt(id=spec.id, created=True, state=STATES[there.state])
        if not (there.state == FAILED and spec.requeue_failed):
            _remember_reply(shelf, there, spec)
            shelf.tell(EventKind.DUPLICATED, there)
            return Receipt(id=spec.id, created=False, state=STATES[there.state])
    dedup = spec.terms.dedup
    if dedup is not None:
        refusal = _check_dedup(shelf, spec, dedup)
        if refusal is not None:
            return refusal
    if there is not None:
        forget(shelf, there)
    return _create(shelf, spec)


def _create(shelf: Shelf, spec: JobSpec) -> Receipt:
    shelf.db.execute("DELETE FROM ghosts WHERE queue = ? AND id = ?", (shelf.key, spec.id))
    row = Row.of(shelf.key, spec, shelf.now)
    if spec.terms.dedup is not None:
        take_key(shelf, spec.id, spec.terms.dedup)
    shelf.tell(EventKind.ADDED, row)
    line_up(shelf, row, spec.terms.delay_ms, front=spec.terms.lifo)
    shelf.insert(row, spec.payload)
    return Receipt(id=spec.id, created=True, state=STATES[row.state])


def _remember_reply(shelf: Shelf, row: Row, spec: JobSpec) -> None:
    if spec.reply and not row.reply:
        row.reply = 1
        shelf.db.execute("UPDATE jobs SET reply = 1 WHERE n = ?", (row.n,))


def _check_dedup(shelf: Shelf, spec: JobSpec, dedup: Dedup) -> Receipt | None:
    """Answer for the holder of the key, or make room and answer None."""
    holder_id = holder_of(shelf, dedup.key, own=None)
    if holder_id is None:
        return None
    holder = find(shelf, holder_id)
    if dedup.replace and holder is not None and holder.state == DELAYED:
        delete(shelf, holder)
        return None
    if dedup.extend and dedup.ttl_ms is not None:
        shelf.db.execute(
            "UPDATE holds SET until_ms = ? WHERE queue = ? AND dedup_key = ?",
            (shelf.now + dedup.ttl_ms, shelf.key, dedup.key),
        )
    extras = {"dedup_id": dedup.key, "other_id": spec.id}
    shelf.announce(EventKind.DEDUPLICATED, extras, job_id=holder_id, job_name=spec.name)
    if holder is not None:
        _remember_reply(shelf, holder, spec)
    state = None if holder is None else STATES[holder.state]
    return Receipt(id=holder_id, created=False, state=state, deduplicated=True)


def holder_of(shelf: Shelf, key: str, own: str | None) -> str | None:
    """Name the job whose hold of a key is in the way; one held by the job `own` is not."""
    found = shelf.db.execute(
        "SELECT job_id FROM holds WHERE queue = ? AND dedup_key = ? "
        "AND (until_ms IS NULL OR until_ms > ?)",
        (shelf.key, key, shelf.now),
    ).fetchone()
    return None if found is None or found[0] == own else found[0]


def take_key(shelf: Shelf, job_id: str, dedup: Dedup) -> None:
    """Let a job hold its dedup key."""
    until = None if dedup.ttl_ms is None else shelf.now + dedup.ttl_ms
    shelf.db.execute(
        "INSERT OR REPLACE INTO holds (queue, dedup_key, job_id, until_ms) VALUES (?, ?, ?, ?)",
        (shelf.key, dedup.key, job_id, until),
    )


def cancel(shelf: Shelf, job_id: str, running: bool) -> Cancellation:
    """Delete a job that has not started, or ask its owner."""
    row = find(shelf, job_id)
    if row is None:
        return Cancellation.NOT_FOUND
    if row.state == COMPLETED:
        return Cancellation.COMPLETED
    if row.state == FAILED:
        return Cancellation.FAILED
    if row.state == ACTIVE:
        if not running:
            return Cancellation.PROCESSING
        shelf.db.execute("UPDATE jobs SET cancel = 1 WHERE n = ?", (row.n,))
        return Cancellation.REQUESTED
    shelf.tell(EventKind.CANCELLED, row, {"prev": STATES[row.state].value})
    bury(shelf, row, EndingKind.CANCELLED)
    forget(shelf, row)
    return Cancellation.CANCELLED


def remove(shelf: Shelf, job_id: str) -> Removal:
    """Delete a job that is not running."""
    row = find(shelf, job_id)
    if row is None:
        return Removal.NOT_FOUND
    if row.state == ACTIVE:
        return Removal.ACTIVE
    delete(shelf, row)
    return Removal.REMOVED


def delete(shelf: Shelf, row: Row) -> None:
    """Delete a job and say so."""
    shelf.tell(EventKind.REMOVED, row, {"prev": STATES[row.state].value})
    bury(shelf, row, EndingKind.GONE)
    forget(shelf, row)


def keep(shelf: Shelf, job_id: str, keep_ms: int | None) -> bool:
    """Restart the keep time of a finished job."""
    row = find(shelf, job_id)
    if row is None or row.state not in (COMPLETED, FAILED):
        return False
    until = None if keep_ms is None else shelf.now + keep_ms
    shelf.db.execute("UPDATE jobs SET expires_ms = ? WHERE n = ?", (until, row.n))
    return True


def await_ending(shelf: Shelf, job_id: str) -> None:
    """Remember that somebody waits for a job's end."""
    shelf.db.execute(
        "UPDATE jobs SET reply = 1 WHERE queue = ? AND id = ? AND reply = 0", (shelf.key, job_id)
    )
