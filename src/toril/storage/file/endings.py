"""What becomes of jobs that end: retention, endings for those who wait, forgetting."""

from __future__ import annotations

from typing import Final

from toril.job import Keep
from toril.storage.file.codec import DELAYED, pack_failure, unpack_failure
from toril.storage.file.row import COLUMNS, Row
from toril.storage.file.shelf import Shelf
from toril.storage.protocol import Ending, EndingKind

ENDING_KEPT_MS: Final = 60_000
"""How long the ending of a job nobody keeps stays readable for those who wait for it."""

SWEEP: Final = 1_000


def find(shelf: Shelf, job_id: str) -> Row | None:
    """Read a job unless its keep time is over; then forget it."""
    row = shelf.load(job_id)
    if row is not None and row.expires_ms is not None and row.expires_ms <= shelf.now:
        forget(shelf, row)
        return None
    return row


def finish(shelf: Shelf, row: Row, state: int) -> None:
    """Put a job that stands in no line on the shelf of the finished."""
    shelf.place(row, state)
    row.since_ms = shelf.now
    row.finished_ms = shelf.now
    row.cancel = 0
    release_key(shelf, row)
    shelf.ended(row)


def retain(shelf: Shelf, row: Row, keep: Keep) -> None:
    """Apply the retention a finished job asks for, to itself and to its elders."""
    ttl_ms = row.agreed().result_ttl_ms
    if ttl_ms is not None:
        row.expires_ms = shelf.now + ttl_ms
    shelf.save(row)
    if keep.count is not None:
        for _ in range(shelf.count[row.state] - keep.count):
            _drop(shelf, _oldest(shelf, row.state))
    if keep.age_ms is not None:
        elder = _oldest(shelf, row.state)
        while elder is not None and elder.since_ms <= shelf.now - keep.age_ms:
            _drop(shelf, elder)
            elder = _oldest(shelf, row.state)


def _oldest(shelf: Shelf, state: int) -> Row | None:
    found = shelf.db.execute(
        f"SELECT {COLUMNS} FROM jobs WHERE queue = ? AND state = ? ORDER BY rank, place LIMIT 1",
        (shelf.key, state),
    ).fetchone()
    return None if found is None else Row(found)


def _drop(shelf: Shelf, row: Row | None) -> None:
    """Forget a finished job; those who wait for it can still read how it ended."""
    if row is not None:
        leave_ghost(shelf, row, row.ending())
        forget(shelf, row)


def bury(shelf: Shelf, row: Row, kind: EndingKind) -> None:
    """Leave word of a job that goes without finishing."""
    leave_ghost(shelf, row, row.ending() or Ending(id=row.id, kind=kind))
    shelf.ended(row)


def leave_ghost(shelf: Shelf, row: Row, ending: Ending | None) -> None:
    """Keep an ending for a while, if somebody waits for it."""
    if not row.reply or ending is None:
        return
    failure = None if ending.failure is None else pack_failure(ending.failure)
    shelf.db.execute(
        "INSERT OR REPLACE INTO ghosts (queue, id, until_ms, kind, result, failure) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (
            *(shelf.key, row.id, shelf.now + ENDING_KEPT_MS),
            *(ending.kind.value, ending.result, failure),
        ),
    )


def forget(shelf: Shelf, row: Row) -> None:
    """Delete a job and what hangs on it."""
    release_key(shelf, row)
    shelf.leave(row)
    shelf.db.execute("DELETE FROM jobs WHERE n = ?", (row.n,))
    shelf.db.execute("DELETE FROM payloads WHERE n = ?", (row.n,))
    shelf.db.execute("DELETE FROM logs WHERE n = ?", (row.n,))


def release_key(shelf: Shelf, row: Row) -> None:
    """Let go of the dedup key a job holds."""
    dedup = row.agreed().dedup
    if dedup is None:
        return
    # A key with a time to live outlives its job, unless the job never ran.
    pending = row.state <= DELAYED
    shelf.db.execute(
        "DELETE FROM holds WHERE queue = ? AND dedup_key = ? AND job_id = ?"
        + ("" if pending else " AND until_ms IS NULL"),
        (shelf.key, dedup.key, row.id),
    )


def ending_of(shelf: Shelf, job_id: str) -> Ending | None:
    """Tell how a job ended; None while it lives. Reads only."""
    row = shelf.load(job_id)
    if row is not None and (row.expires_ms is None or row.expires_ms > shelf.now):
        return row.ending()
    ghost = shelf.db.execute(
        "SELECT kind, result, failure FROM ghosts WHERE queue = ? AND id = ? AND until_ms > ?",
        (shelf.key, job_id, shelf.now),
    ).fetchone()
    if ghost is None:
        return Ending(id=job_id, kind=EndingKind.GONE)
    kind, result, failure = ghost
    return Ending(id=job_id, kind=EndingKind(kind), result=result, failure=unpack_failure(failure))


def sweep(shelf: Shelf, limit: int = SWEEP) -> int:
    """Forget up to `limit` things of each kind that are past their time; tell how many."""
    key, now = shelf.key, shelf.now
    past = shelf.db.execute(
        f"SELECT {COLUMNS} FROM jobs WHERE queue = ? AND expires_ms <= ? "
        "ORDER BY expires_ms LIMIT ?",
        (key, now, limit),
    ).fetchall()
    for values in past:
        forget(shelf, Row(values))
    gone = len(past)
    for table, name in (("ghosts", "id"), ("holds", "dedup_key")):
        gone += shelf.db.execute(
            f"DELETE FROM {table} WHERE queue = ?1 AND {name} IN (SELECT {name} FROM {table} "
            "WHERE queue = ?1 AND until_ms <= ?2 ORDER BY until_ms LIMIT ?3)",
            (key, now, limit),
        ).rowcount
    return gone
