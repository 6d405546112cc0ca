"""Lease jobs, prolong leases, end attempts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never

from toril.event import EventKind
from toril.job import State
from toril.outcome import (
    DONE,
    GONE,
    LOST,
    Answer,
    Completed,
    Failed,
    Failure,
    Lease,
    Outcome,
    Postponed,
    Released,
    Retried,
)
from toril.storage.file.codec import (
    ACTIVE,
    COMPLETED,
    FAILED,
    PRIORITIZED,
    STATES,
    WAITING,
)
from toril.storage.file.endings import find, finish, retain
from toril.storage.file.lines import due_in, line_up, promote_due, rate_of, ready
from toril.storage.file.row import COLUMNS, Row
from toril.storage.file.shelf import Shelf
from toril.storage.protocol import EMPTY_BATCH, Batch, Claim, Claimed, Renewal, Settlement

_SEEN_EVERY_MS: Final = 1_000
"""How stale the sight of a worker may be: a write for every empty claim would be dear."""

_LINE: Final = (
    f"SELECT {COLUMNS}, payloads.body FROM jobs LEFT JOIN payloads USING (n) "
    "WHERE queue = ? AND state = ?"
)
_START: Final = (
    "UPDATE jobs SET state = ?, rank = 0, place = ?, since_ms = ?, processed_ms = ?, started = ?, "
    "token = ?, worker_id = ?, lease_until_ms = ?, due_ms = NULL WHERE n = ?"
)


def claim(shelf: Shelf, wish: Claim, *, again: bool) -> Batch:
    """Grant again what the token holds, then jobs from the line."""
    see_worker(shelf, wish.worker_id, wish.worker_name)
    promote_due(shelf)
    jobs = _grant_again(shelf, wish) if again else []
    want = wish.count - len(jobs)
    room, limited = _room(shelf, want, wish)
    fresh = _take(shelf, room)
    jobs += _start(shelf, fresh, wish)
    _count_starts(shelf, len(fresh), wish)
    return Batch(jobs=jobs, limited_for_ms=limited, next_in_ms=due_in(shelf))


def see_worker(shelf: Shelf, worker_id: str, name: str | None) -> None:
    """Note that a worker is there."""
    found = shelf.db.execute(
        "SELECT seen_ms, name FROM workers WHERE queue = ? AND id = ?", (shelf.key, worker_id)
    ).fetchone()
    if found is not None and 0 <= shelf.now - found[0] < _SEEN_EVERY_MS and found[1] == name:
        return
    shelf.db.execute(
        "INSERT OR REPLACE INTO workers (queue, id, name, seen_ms) VALUES (?, ?, ?, ?)",
        (shelf.key, worker_id, name, shelf.now),
    )


def _grant_again(shelf: Shelf, wish: Claim) -> list[Claimed]:
    found = shelf.db.execute(
        f"{_LINE} AND token = ? ORDER BY rank, place", (shelf.key, ACTIVE, wish.token)
    ).fetchall()
    jobs: list[Claimed] = []
    for values in found:
        row = Row(values[:-1])
        # The owner learns of the job only now, so its time starts now.
        shelf.db.execute(
            "UPDATE jobs SET lease_until_ms = ? WHERE n = ?", (shelf.now + wish.lease_ms, row.n)
        )
        jobs.append(_grant(shelf, row, values[-1]))
    return jobs


def _room(shelf: Shelf, want: int, wish: Claim) -> tuple[int, int]:
    """How many jobs may start now, and for how long a limit holds back the rest."""
    if shelf.paused:
        return 0, 0
    room = want
    if shelf.concurrency is not None:
        room = min(room, shelf.concurrency - shelf.count[ACTIVE])
    rate = rate_of(shelf, wish.rate)
    if rate is None:
        return room, 0
    left = rate.max - (shelf.window_used if shelf.now < shelf.window_end_ms else 0)
    if left <= 0:
        return 0, shelf.window_end_ms - shelf.now
    return min(room, left), 0


def _count_starts(shelf: Shelf, started: int, wish: Claim) -> None:
    rate = rate_of(shelf, wish.rate)
    if rate is None or not started:
        return
    if shelf.now >= shelf.window_end_ms:  # a window opens with its first job
        shelf.window_end_ms = shelf.now + rate.duration_ms
        shelf.window_used = 0
    shelf.window_used += started
    shelf.changed = True


def _take(shelf: Shelf, room: int) -> list[tuple[Row, bytes | None]]:
    """Read the jobs that are next: the plain line first, as on the BullMQ wire."""
    found: list[tuple[Row, bytes | None]] = []
    for state in (WAITING, PRIORITIZED):
        if room - len(found) <= 0 or not shelf.count[state]:
            continue
        page = shelf.db.execute(
            f"{_LINE} ORDER BY rank, place LIMIT ?", (shelf.key, state, room - len(found))
        )
        found += [(Row(values[:-1]), values[-1]) for values in page]
    return found


def _start(shelf: Shelf, jobs: Sequence[tuple[Row, bytes | None]], wish: Claim) -> list[Claimed]:
    now, until = shelf.now, shelf.now + wish.lease_ms
    claimed: list[Claimed] = []
    changes: list[tuple[object, ...]] = []
    for row, payload in jobs:
        prev = STATES[row.state].value
        shelf.shift(row, ACTIVE)
        row.started += 1
        row.token = wish.token
        row.worker_id = wish.worker_id
        changes.append(
            (ACTIVE, row.place, now, now, row.started, row.token, row.worker_id, until, row.n)
        )
        shelf.tell(EventKind.ACTIVE, row, {"prev": prev})
        claimed.append(_grant(shelf, row, payload))
    shelf.db.executemany(_START, changes)
    return claimed


def _grant(shelf: Shelf, row: Row, payload: bytes | None) -> Claimed:
    doom = row.doom()
    if payload is None:
        doom = Failure(kind="SerdeError", reason=f"job {row.id!r}: its stored data is missing")
    return Claimed(
        spec=row.spec(payload or b""),
        lease=Lease(job_id=row.id, token=row.token, attempt=row.made + 1, note=str(row.started)),
        created_ms=row.created_ms,
        age_ms=shelf.now - row.created_ms,
        started=row.started,
        attempts_made=row.made,
        stalls=row.stalls,
        doom=doom,
    )


def renew(shelf: Shelf, leases: Sequence[Lease], lease_ms: int) -> Renewal:
    """Prolong what is still held."""
    lost: list[Lease] = []
    cancelled: list[Lease] = []
    workers: dict[str, None] = {}
    for lease in leases:
        row = shelf.load(lease.job_id)
        if row is None or not row.owned_by(lease):
            lost.append(lease)
            continue
        shelf.db.execute(
            "UPDATE jobs SET lease_until_ms = ? WHERE n = ?", (shelf.now + lease_ms, row.n)
        )
        workers[row.worker_id] = None
        if row.cancel:
            cancelled.append(lease)
    for worker in workers:
        name = shelf.db.execute(
            "SELECT name FROM workers WHERE queue = ? AND id = ?", (shelf.key, worker)
        ).fetchone()
        see_worker(shelf, worker, None if name is None else name[0])
    return Renewal(lost=lost, cancelled=cancelled)


def settle(
    shelf: Shelf, outcomes: Sequence[Outcome], refill: Claim | None, *, again: bool
) -> Settlement:
    """End attempts under their leases, then claim the next jobs."""
    before = shelf.news
    answers = [_settle(shelf, outcome) for outcome in outcomes]
    settled = shelf.news != before
    batch = EMPTY_BATCH if refill is None else claim(shelf, refill, again=again)
    if settled and not shelf.count[ACTIVE] and not ready(shelf):
        shelf.announce(EventKind.DRAINED)
    return Settlement(answers=answers, batch=batch)


def _settle(shelf: Shelf, outcome: Outcome) -> Answer:
    lease = outcome.lease
    row = find(shelf, lease.job_id)
    if row is None:
        return GONE
    if not row.owned_by(lease):
        # A repeated settle whose first reply was lost is our own doing.
        return DONE if row.settled_by(lease) else LOST
    let_go(shelf, row)
    row.settled_token, row.settled_started = lease.token, row.started
    match outcome:
        case Completed():
            _complete(shelf, row, outcome.result)
        case Failed():
            _fail(shelf, row, outcome.failure, outcome.exhausted)
        case Retried():
            _retry(shelf, row, outcome)
        case Postponed():
            until = outcome.until_ms
            delay = (until - shelf.now) if until is not None else (outcome.delay_ms or 0)
            line_up(shelf, row, max(delay, 0), front=False)
            shelf.save(row)
        case Released():
            line_up(shelf, row, 0, front=True)
            shelf.save(row)
        case _:
            assert_never(outcome)
    return DONE


def let_go(shelf: Shelf, row: Row) -> None:
    """Take an active job out of the hands of its owner."""
    shelf.leave(row)
    row.token = None
    # Whoever waits for room under a limit may find it now.
    shelf.work = shelf.work or shelf.concurrency is not None


def _complete(shelf: Shelf, row: Row, result: bytes) -> None:
    row.made += 1
    row.result = result
    row.failure = None
    extras = {
        "prev": State.ACTIVE.value,
        "result_size": len(result),
        "duration_ms": shelf.now - (row.processed_ms or shelf.now),
    }
    finish(shelf, row, COMPLETED)
    shelf.tell(EventKind.COMPLETED, row, extras)
    retain(shelf, row, row.agreed().keep_completed)


def _fail(shelf: Shelf, row: Row, failure: Failure, exhausted: bool) -> None:
    row.made += 1
    row.record_failure(failure)
    extras = {
        "prev": State.ACTIVE.value,
        "reason": str(failure),
        "duration_ms": shelf.now - (row.processed_ms or shelf.now),
    }
    finish(shelf, row, FAILED)
    shelf.tell(EventKind.FAILED, row, extras)
    if exhausted:
        shelf.tell(EventKind.RETRIES_EXHAUSTED, row)
    retain(shelf, row, row.agreed().keep_failed)


def _retry(shelf: Shelf, row: Row, outcome: Retried) -> None:
    row.made += 1
    row.record_failure(outcome.failure)
    extras = {"reason": str(outcome.failure), "delay_ms": outcome.delay_ms}
    shelf.tell(EventKind.RETRYING, row, extras)
    line_up(shelf, row, outcome.delay_ms, front=row.agreed().lifo)
    shelf.save(row)
