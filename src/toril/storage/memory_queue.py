"""One queue of the memory storage: the reference model, plain functions over plain data.

Nothing here waits, locks or reads a clock: every function takes `now`, in milliseconds, and
`MemoryStorage` calls it under its lock. Other storages are tested against this model.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from toril.errors import QueueBusy
from toril.event import EventKind
from toril.job import FINISHED, KEEP_ALL, PENDING, JobRecord, JobSpec, Keep, State
from toril.outcome import (
    CANCELLED,
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
from toril.quick import new_lease
from toril.storage.memory_entry import Entry, Lines
from toril.storage.memory_log import EventLog, Extras
from toril.storage.protocol import (
    Batch,
    Cancellation,
    Claim,
    Claimed,
    Counts,
    Ending,
    EndingKind,
    Rate,
    Reaped,
    Receipt,
    Removal,
    Renewal,
    Seen,
    WorkerInfo,
)
from toril.storage.quick import new_claimed, new_receipt

ENDING_KEPT_MS: Final = 60_000
"""How long the ending of a job nobody keeps stays readable for those who wait for it."""

WORKER_SEEN_MS: Final = 30_000
_SWEEP: Final = 8

# Asked for every job: to take a member out of its enum costs as much as a call.
_ACTIVE: Final = State.ACTIVE
_COMPLETED: Final = State.COMPLETED
_TELL_ADDED: Final = EventKind.ADDED
_TELL_WAITING: Final = EventKind.WAITING
_TELL_ACTIVE: Final = EventKind.ACTIVE
_TELL_COMPLETED: Final = EventKind.COMPLETED
_WAS_ACTIVE: Final = State.ACTIVE.value
_FROM: Final[Mapping[State, Extras]] = {state: (state.value,) for state in State}
"""The extras of an event that tells where a job was before, and nothing else."""


@dataclass(slots=True)
class _Hold:
    """Who holds a dedup key, and until when (None: until the job finishes)."""

    job_id: str
    until_ms: int | None


class MemoryQueue:
    """All state of one queue."""

    def __init__(self, log: EventLog | None = None) -> None:
        self.log = log or EventLog()
        self.paused = False
        self.concurrency: int | None = None
        self.rate: Rate | None = None
        self.endings: list[str] = []
        self.jobs: dict[str, Entry] = {}
        self._lines = Lines()
        self._active: dict[str, Entry] = {}
        self._finished: dict[State, OrderedDict[str, Entry]] = {
            state: OrderedDict() for state in FINISHED
        }
        self._granted: dict[str, dict[str, Entry]] = {}
        self._holds: dict[str, _Hold] = {}
        self._expiring: list[tuple[int, int, Entry]] = []
        self._expiry_tickets = 0
        self._ghosts: OrderedDict[str, tuple[int, Ending]] = OrderedDict()
        self._workers: dict[str, tuple[int, str | None]] = {}
        self._window_end_ms = 0
        self._window_used = 0
        self._reaped_ms: int | None = None

    # -- produce ---------------------------------------------------------------------------

    def enqueue(self, spec: JobSpec, now: int) -> Receipt:
        """Store the job unless its id or dedup key is taken."""
        if self._expiring or self._ghosts:
            self.sweep(now)
        there = self.find(spec.id, now)
        if there is not None:
            if spec.origin and there.spec.origin == spec.origin:
                return Receipt(id=spec.id, created=True, state=there.state)
            if not (there.state is State.FAILED and spec.requeue_failed):
                there.reply |= spec.reply
                self._tell(EventKind.DUPLICATED, there, now)
                return Receipt(id=spec.id, created=False, state=there.state)
        if spec.terms.dedup is not None:
            refusal = self._check_dedup(spec, now)
            if refusal is not None:
                return refusal
        if there is not None:
            self._forget(there)
        return self._create(spec, now)

    def _create(self, spec: JobSpec, now: int) -> Receipt:
        if self._ghosts:
            self._ghosts.pop(spec.id, None)
        entry = Entry(spec, now)
        self.jobs[spec.id] = entry
        if spec.terms.dedup is not None:
            self._take_key(spec, now)
        self._tell(_TELL_ADDED, entry, now)
        self._line_up(entry, now, spec.terms.delay_ms, front=spec.terms.lifo)
        return new_receipt(id=spec.id, created=True, state=entry.state)

    def _check_dedup(self, spec: JobSpec, now: int) -> Receipt | None:
        """Answer for the holder of the key, or make room and answer None."""
        dedup = spec.terms.dedup
        hold = None if dedup is None else self._holds.get(dedup.key)
        if dedup is None or hold is None or not self._holds_still(hold, None, now):
            return None
        holder = self.find(hold.job_id, now)
        replaceable = holder is not None and holder.state is State.DELAYED
        if dedup.replace and replaceable and holder is not None:
            self._tell(EventKind.REMOVED, holder, now, _FROM[holder.state])
            self._bury(holder, EndingKind.GONE, now)
            self._forget(holder)
            return None
        if dedup.extend and dedup.ttl_ms is not None:
            hold.until_ms = now + dedup.ttl_ms
        extras = (dedup.key, spec.id)
        self.log.append(EventKind.DEDUPLICATED, now, hold.job_id, spec.name, extras=extras)
        if holder is not None:
            holder.reply |= spec.reply
        state = None if holder is None else holder.state
        return Receipt(id=hold.job_id, created=False, state=state, deduplicated=True)

    @staticmethod
    def _holds_still(hold: _Hold, own: str | None, now: int) -> bool:
        """Whether a key is in the way of a job; one held by the job `own` is not."""
        return hold.job_id != own and (hold.until_ms is None or hold.until_ms > now)

    def _take_key(self, spec: JobSpec, now: int) -> None:
        dedup = spec.terms.dedup
        if dedup is not None:
            until = None if dedup.ttl_ms is None else now + dedup.ttl_ms
            self._holds[dedup.key] = _Hold(spec.id, until)

    def cancel(self, job_id: str, running: bool, now: int) -> Cancellation:
        """Delete a job that has not started, or ask its owner."""
        entry = self.find(job_id, now)
        if entry is None:
            return Cancellation.NOT_FOUND
        if entry.state is State.COMPLETED:
            return Cancellation.COMPLETED
        if entry.state is State.FAILED:
            return Cancellation.FAILED
        if entry.state is State.ACTIVE:
            entry.cancel_requested |= running
            return Cancellation.REQUESTED if running else Cancellation.PROCESSING
        self._tell(EventKind.CANCELLED, entry, now, _FROM[entry.state])
        self._bury(entry, EndingKind.CANCELLED, now)
        self._forget(entry)
        return Cancellation.CANCELLED

    def remove(self, job_id: str, now: int) -> Removal:
        """Delete a job that is not running."""
        entry = self.find(job_id, now)
        if entry is None:
            return Removal.NOT_FOUND
        if entry.state is State.ACTIVE:
            return Removal.ACTIVE
        self._remove(entry, now)
        return Removal.REMOVED

    def discard(self, seen: Sequence[Seen], now: int) -> list[bool]:
        """Delete finished jobs that still have the end that was seen."""
        gone: list[bool] = []
        for one in seen:
            entry = self._as_seen(one, now)
            if entry is not None:
                self._remove(entry, now)
            gone.append(entry is not None)
        if any(gone):
            self.log.append(EventKind.CLEANED, now, extras=(sum(gone),))
        return gone

    def _as_seen(self, seen: Seen, now: int) -> Entry | None:
        entry = self.find(seen.id, now)
        return None if entry is None or entry.finished_ms != seen.finished_ms else entry

    def _remove(self, entry: Entry, now: int) -> None:
        self._tell(EventKind.REMOVED, entry, now, _FROM[entry.state])
        self._bury(entry, EndingKind.GONE, now)
        self._forget(entry)

    def keep(self, job_id: str, keep_ms: int | None, now: int) -> bool:
        """Restart the keep time of a finished job."""
        entry = self.find(job_id, now)
        if entry is None or entry.state not in FINISHED:
            return False
        self._expire(entry, None if keep_ms is None else now + keep_ms)
        return True

    def find(self, job_id: str, now: int) -> Entry | None:
        """Return the job unless its keep time is over."""
        entry = self.jobs.get(job_id)
        if entry is not None and entry.expires_ms is not None and entry.expires_ms <= now:
            self._forget(entry)
            return None
        return entry

    def ending(self, job_id: str, now: int) -> Ending | None:
        """Tell how a job ended; None while it lives."""
        entry = self.find(job_id, now)
        if entry is not None:
            entry.reply = True  # somebody waits for it
            return entry.ending()
        ghost = self._ghosts.get(job_id)
        if ghost is not None and ghost[0] > now:
            return ghost[1]
        return Ending(id=job_id, kind=EndingKind.GONE)

    # -- work ------------------------------------------------------------------------------

    def claim(self, claim: Claim, now: int) -> Batch:
        """Grant again what the token holds, then jobs from the line."""
        self._workers[claim.worker_id] = (now, claim.worker_name)
        self._promote_due(now)
        held = self._granted.get(claim.token, {})
        jobs = [self._grant_again(entry, claim, now) for entry in held.values()]
        want = claim.count - len(jobs)
        room, limited = self._room(want, claim.rate, now)
        take = self._lines.take
        for _ in range(room):
            entry = take()
            if entry is None:
                break
            held[entry.spec.id] = entry
            jobs.append(self._start(entry, claim, now))
        if held:
            self._granted[claim.token] = held
        self._count_starts(len(jobs) - (claim.count - want), claim.rate, now)
        return Batch(jobs=jobs, limited_for_ms=limited, next_in_ms=self._lines.due_in(now))

    def claimable_in(self, now: int) -> int | None:
        """Milliseconds until a claim can bring something; None if only news can change that."""
        if self.paused or (self.concurrency is not None and len(self._active) >= self.concurrency):
            return None
        wait = 0 if self._lines.ready else self._lines.due_in(now)
        if wait is None:
            return None
        limited = self._window_end_ms - now if self._limited(self.rate, now) else 0
        return max(wait, limited)

    def _limited(self, rate: Rate | None, now: int) -> bool:
        return rate is not None and now < self._window_end_ms and self._window_used >= rate.max

    def _room(self, want: int, claim_rate: Rate | None, now: int) -> tuple[int, int]:
        """How many jobs may start now, and for how long a limit holds back the rest."""
        if self.paused:
            return 0, 0
        room = want
        if self.concurrency is not None:
            room = min(room, self.concurrency - len(self._active))
        rate = self.rate or claim_rate
        if rate is None:
            return room, 0
        left = rate.max - (self._window_used if now < self._window_end_ms else 0)
        if left <= 0:
            return 0, self._window_end_ms - now
        return min(room, left), 0

    def _count_starts(self, started: int, claim_rate: Rate | None, now: int) -> None:
        rate = self.rate or claim_rate
        if rate is None or not started:
            return
        if now >= self._window_end_ms:  # a window opens with its first job
            self._window_end_ms = now + rate.duration_ms
            self._window_used = 0
        self._window_used += started

    def _start(self, entry: Entry, claim: Claim, now: int) -> Claimed:
        prev = _FROM[entry.state]
        entry.state = _ACTIVE
        entry.since_ms = now
        entry.processed_ms = now
        entry.started += 1
        entry.note = str(entry.started)
        entry.token = claim.token
        entry.worker_id = claim.worker_id
        entry.lease_until_ms = now + claim.lease_ms
        self._active[entry.spec.id] = entry
        self._tell(_TELL_ACTIVE, entry, now, prev)
        return self._grant(entry, now)

    def _grant_again(self, entry: Entry, claim: Claim, now: int) -> Claimed:
        # The owner learns of the job only now, so its time starts now.
        entry.lease_until_ms = now + claim.lease_ms
        return self._grant(entry, now)

    @staticmethod
    def _grant(entry: Entry, now: int) -> Claimed:
        spec, made, created_ms = entry.spec, entry.made, entry.created_ms
        lease = new_lease(
            job_id=spec.id, token=entry.token or "", attempt=made + 1, note=entry.note
        )
        return new_claimed(
            spec=spec,
            lease=lease,
            created_ms=created_ms,
            age_ms=now - created_ms,
            started=entry.started,
            attempts_made=made,
            stalls=entry.stalls,
            doom=None,
        )

    def renew(self, leases: Sequence[Lease], lease_ms: int, now: int) -> Renewal:
        """Prolong what is still held."""
        lost: list[Lease] = []
        cancelled: list[Lease] = []
        for lease in leases:
            entry = self.jobs.get(lease.job_id)
            if entry is None or not entry.owned_by(lease):
                lost.append(lease)
                continue
            entry.lease_until_ms = now + lease_ms
            worker = entry.worker_id or ""
            self._workers[worker] = (now, self._workers.get(worker, (now, None))[1])
            if entry.cancel_requested:
                cancelled.append(lease)
        return Renewal(lost=lost, cancelled=cancelled)

    def settle(self, outcome: Outcome, now: int) -> Answer:
        """End one attempt under its lease."""
        lease = outcome.lease
        entry = self._active.get(lease.job_id)
        if entry is None or not entry.owned_by(lease):
            return self._settled(lease, now)
        self._let_go(entry)
        entry.settled_token, entry.settled_note = lease.token, lease.note
        match outcome:
            case Completed():
                self._complete(entry, outcome.result, now)
            case Failed():
                self._fail(entry, outcome.failure, outcome.exhausted, now)
            case Retried():
                self._retry(entry, outcome, now)
            case Postponed():
                until = outcome.until_ms
                delay = (until - now) if until is not None else (outcome.delay_ms or 0)
                self._line_up(entry, now, max(delay, 0), front=False)
            case Released():
                self._line_up(entry, now, 0, front=True)
            case _:
                assert_never(outcome)
        return DONE

    def _settled(self, lease: Lease, now: int) -> Answer:
        """Answer for a lease that is not held."""
        entry = self.find(lease.job_id, now)
        if entry is None:
            return GONE
        # A repeated settle whose first reply was lost is our own doing.
        ours = entry.settled_token == lease.token and entry.settled_note == lease.note
        return DONE if ours else LOST

    def _let_go(self, entry: Entry) -> None:
        """Take an active job out of the hands of its owner."""
        job_id, token = entry.spec.id, entry.token or ""
        del self._active[job_id]
        held = self._granted[token]
        del held[job_id]
        if not held:
            del self._granted[token]
        entry.token = None

    def _complete(self, entry: Entry, result: bytes, now: int) -> None:
        entry.made += 1
        entry.result = result
        entry.failure = None
        extras = (_WAS_ACTIVE, len(result), now - (entry.processed_ms or now))
        self._finish(entry, _COMPLETED, now)
        self._tell(_TELL_COMPLETED, entry, now, extras)
        terms = entry.spec.terms
        if terms.result_ttl_ms is not None or terms.keep_completed is not KEEP_ALL:
            self._retain(entry, terms.keep_completed, now)

    def _fail(self, entry: Entry, failure: Failure, exhausted: bool, now: int) -> None:
        entry.made += 1
        self._record_failure(entry, failure)
        extras = (_WAS_ACTIVE, str(failure), now - (entry.processed_ms or now))
        self._finish(entry, State.FAILED, now)
        self._tell(EventKind.FAILED, entry, now, extras)
        if exhausted:
            self._tell(EventKind.RETRIES_EXHAUSTED, entry, now)
        self._retain(entry, entry.spec.terms.keep_failed, now)

    def _retry(self, entry: Entry, outcome: Retried, now: int) -> None:
        entry.made += 1
        self._record_failure(entry, outcome.failure)
        extras = (str(outcome.failure), outcome.delay_ms)
        self._tell(EventKind.RETRYING, entry, now, extras)
        self._line_up(entry, now, outcome.delay_ms, front=entry.spec.terms.lifo)

    @staticmethod
    def _record_failure(entry: Entry, failure: Failure) -> None:
        entry.failure = failure
        if failure.stack:
            entry.stack = (*entry.stack[-9:], failure.stack)

    def reap(self, max_stalls: int, interval_ms: int, now: int) -> Reaped:
        """Put jobs with lapsed leases back in front; fail those that stall too often."""
        if self._reaped_ms is not None and now < self._reaped_ms + interval_ms:
            return Reaped(next_in_ms=self._reaped_ms + interval_ms - now)
        self._reaped_ms = now
        self.sweep(now, limit=None)
        lapsed = [entry for entry in self._active.values() if entry.lease_until_ms <= now]
        stalled: list[str] = []
        doomed: list[str] = []
        for entry in reversed(lapsed):  # each goes to the front, so the oldest goes last
            self._let_go(entry)
            entry.stalls += 1
            self._tell(EventKind.STALLED, entry, now)
            if entry.cancel_requested or entry.stalls > max_stalls:
                doomed.append(entry.spec.id)
                self._doom(entry, max_stalls, now)
            else:
                stalled.append(entry.spec.id)
                self._line_up(entry, now, 0, front=True, ignore_priority=True)
        return Reaped(stalled=stalled[::-1], doomed=doomed[::-1], next_in_ms=interval_ms)

    def _doom(self, entry: Entry, max_stalls: int, now: int) -> None:
        if entry.cancel_requested:
            failure = Failure(kind=CANCELLED, reason="cancelled; its worker had stalled")
        else:
            failure = Failure(
                kind="JobStalled",
                reason=f"stalled {entry.stalls} times; allowed are {max_stalls} (max_stalls=)",
            )
        self._record_failure(entry, failure)
        self._finish(entry, State.FAILED, now)
        self._tell(EventKind.FAILED, entry, now, (_WAS_ACTIVE, str(failure)))
        self._retain(entry, entry.spec.terms.keep_failed, now)

    def leave(self, worker_id: str) -> None:
        """Strike a worker off the list."""
        self._workers.pop(worker_id, None)

    # -- lines -----------------------------------------------------------------------------

    @property
    def in_use(self) -> bool:
        """Whether the queue holds anything worth naming."""
        return bool(self.jobs) or self.paused or not self.log.empty

    def tell_drained(self, now: int) -> None:
        """Say so when nothing runs and nothing could start now."""
        if not self._active and not self._lines.ready:
            self.log.append(EventKind.DRAINED, now)

    def _line_up(
        self,
        entry: Entry,
        now: int,
        delay_ms: int,
        *,
        front: bool,
        ignore_priority: bool = False,
    ) -> None:
        """Put a job into the line its delay and priority ask for, and say so."""
        prev = _FROM[entry.state] if entry.started else (None,)
        entry.since_ms = now
        if delay_ms > 0:
            self._lines.delay(entry, now + delay_ms)
            self._tell(EventKind.DELAYED, entry, now, (*prev, delay_ms))
            return
        self._lines.enter(entry, front=front, ignore_priority=ignore_priority)
        self._tell(_TELL_WAITING, entry, now, prev)

    def _promote_due(self, now: int) -> None:
        while (entry := self._lines.take_due(now)) is not None:
            entry.since_ms = now
            self._lines.enter(entry)
            self._tell(EventKind.WAITING, entry, now, _FROM[State.DELAYED])

    # -- the finished ----------------------------------------------------------------------

    def _finish(self, entry: Entry, state: State, now: int) -> None:
        entry.state = state
        entry.since_ms = now
        entry.finished_ms = now
        entry.cancel_requested = False
        spec = entry.spec
        self._finished[state][spec.id] = entry
        if spec.terms.dedup is not None:
            self._release_key(entry)
        self.endings.append(spec.id)

    def _retain(self, entry: Entry, keep: Keep, now: int) -> None:
        """Apply the retention a finished job asks for, to itself and to its elders."""
        ttl_ms = entry.spec.terms.result_ttl_ms
        if ttl_ms is not None:
            self._expire(entry, now + ttl_ms)
        if keep is KEEP_ALL:
            return
        shelf = self._finished[entry.state]
        if keep.count is not None:
            while len(shelf) > keep.count:
                self._drop(next(iter(shelf.values())), now)
        age_ms = keep.age_ms
        if age_ms is not None:
            while shelf and (elder := next(iter(shelf.values()))).since_ms <= now - age_ms:
                self._drop(elder, now)

    def _drop(self, entry: Entry, now: int) -> None:
        """Forget a finished job; those who wait for it can still read how it ended."""
        ending = entry.ending()
        if entry.reply and ending is not None:
            self._ghosts[entry.spec.id] = (now + ENDING_KEPT_MS, ending)
        self._forget(entry)

    def _bury(self, entry: Entry, kind: EndingKind, now: int) -> None:
        """Leave word of a job that goes without finishing."""
        ending = entry.ending() or Ending(id=entry.spec.id, kind=kind)
        if entry.reply:
            self._ghosts[entry.spec.id] = (now + ENDING_KEPT_MS, ending)
        self.endings.append(entry.spec.id)

    def _forget(self, entry: Entry) -> None:
        self._release_key(entry)
        if entry.state in FINISHED:
            del self._finished[entry.state][entry.spec.id]
        else:
            self._lines.leave(entry)
        entry.expires_ms = None
        del self.jobs[entry.spec.id]

    def _release_key(self, entry: Entry) -> None:
        dedup = entry.spec.terms.dedup
        hold = None if dedup is None else self._holds.get(dedup.key)
        if dedup is None or hold is None or hold.job_id != entry.spec.id:
            return
        # A key with a time to live outlives its job, unless the job never ran.
        if hold.until_ms is None or entry.state in PENDING:
            del self._holds[dedup.key]

    def _expire(self, entry: Entry, expires_ms: int | None) -> None:
        entry.expires_ms = expires_ms
        if expires_ms is not None:
            self._expiry_tickets += 1
            heapq.heappush(self._expiring, (expires_ms, self._expiry_tickets, entry))

    def sweep(self, now: int, limit: int | None = _SWEEP) -> None:
        """Forget what is past its time, a little at each call so that none takes long."""
        left = len(self._expiring) if limit is None else limit
        while self._expiring and self._expiring[0][0] <= now and left:
            due, _, entry = heapq.heappop(self._expiring)
            if entry.expires_ms == due:  # else it was kept longer, revived or removed
                self._forget(entry)
            left -= 1
        while self._ghosts and next(iter(self._ghosts.values()))[0] <= now:
            self._ghosts.popitem(last=False)
        if limit is None:
            for key in [k for k, h in self._holds.items() if (h.until_ms or now + 1) <= now]:
                del self._holds[key]

    # -- notes and edits -------------------------------------------------------------------

    def note_progress(self, lease: Lease, progress: bytes, now: int) -> Answer:
        """Record progress under a lease."""
        entry = self.find(lease.job_id, now)
        if entry is None:
            return GONE
        if not entry.owned_by(lease):
            return LOST
        entry.progress = progress
        self._tell(EventKind.PROGRESS, entry, now, (progress.decode(),))
        return DONE

    def note_log(self, lease: Lease, line: str, now: int) -> Answer:
        """Append a log line under a lease."""
        entry = self.find(lease.job_id, now)
        if entry is None:
            return GONE
        if not entry.owned_by(lease):
            return LOST
        logs = entry.logs
        if logs is None:
            logs = entry.logs = []
        logs.append(line)
        if len(logs) > entry.spec.terms.keep_logs:
            del logs[: len(logs) - entry.spec.terms.keep_logs]
        return DONE

    def promote(self, job_id: str, now: int) -> bool:
        """Let a delayed job start now."""
        entry = self.find(job_id, now)
        if entry is None or entry.state is not State.DELAYED:
            return False
        self._lines.leave(entry)
        entry.since_ms = now
        self._lines.enter(entry)
        self._tell(EventKind.WAITING, entry, now, _FROM[State.DELAYED])
        return True

    def respec(self, job_id: str, change: Callable[[JobSpec], JobSpec], now: int) -> bool:
        """Give a pending job other terms or data; a new priority means a new place in line."""
        entry = self.find(job_id, now)
        if entry is None or entry.state not in PENDING:
            return False
        old, entry.spec = entry.spec, change(entry.spec)
        moved = old.terms.priority != entry.spec.terms.priority
        if moved and entry.state is not State.DELAYED:
            self._lines.leave(entry)
            self._lines.enter(entry)
        return True

    def reschedule(self, job_id: str, delay_ms: int, now: int) -> bool:
        """Let a delayed job start at another time."""
        entry = self.find(job_id, now)
        if entry is None or entry.state is not State.DELAYED:
            return False
        self._lines.leave(entry)
        self._line_up(entry, now, max(delay_ms, 1), front=False)
        return True

    def revive(self, job_id: str, reset_attempts: bool, now: int) -> bool:
        """Put a finished job back in line."""
        entry = self.find(job_id, now)
        if entry is None or entry.state not in FINISHED:
            return False
        dedup = entry.spec.terms.dedup
        hold = None if dedup is None else self._holds.get(dedup.key)
        if hold is not None and self._holds_still(hold, job_id, now):
            return False
        self._take_key(entry.spec, now)
        prev = entry.state
        del self._finished[prev][job_id]
        entry.expires_ms = None
        entry.finished_ms = None
        entry.result = None
        entry.failure = None
        entry.since_ms = now
        if reset_attempts:
            entry.made = 0
        self._lines.enter(entry, front=entry.spec.terms.lifo)
        self._tell(EventKind.WAITING, entry, now, _FROM[prev])
        return True

    def rerun(self, seen: Seen, now: int) -> bool:
        """Put a finished job back in line if it still has the end that was seen."""
        return self._as_seen(seen, now) is not None and self.revive(seen.id, True, now)

    # -- observe and tend ------------------------------------------------------------------

    def _tell(self, kind: EventKind, entry: Entry, now: int, extras: Extras = ()) -> None:
        spec = entry.spec
        attempt = entry.made + 1 if entry.state is _ACTIVE else entry.made
        self.log.append(kind, now, spec.id, spec.name, attempt, entry.worker_id, extras)

    def counts(self, now: int) -> Counts:
        """Count the jobs by state."""
        self.sweep(now, limit=None)
        return Counts(
            waiting=len(self._lines.waiting),
            prioritized=self._lines.prioritized,
            delayed=self._lines.delayed,
            active=len(self._active),
            completed=len(self._finished[State.COMPLETED]),
            failed=len(self._finished[State.FAILED]),
            paused=self.paused,
        )

    def peek(self, state: State, start: int, stop: int, now: int) -> list[JobRecord]:
        """Read one page of a state."""
        self.sweep(now, limit=None)
        entries = list(self._ordered(state))
        return [entry.record() for entry in entries[start:stop]]

    def _ordered(self, state: State) -> Iterator[Entry]:
        if state is State.ACTIVE:
            return iter(self._active.values())
        if state in FINISHED:
            return reversed(self._finished[state].values())
        return self._lines.ordered(state)

    def workers(self, now: int) -> list[WorkerInfo]:
        """Name the workers seen lately."""
        active: dict[str | None, int] = {}
        for entry in self._active.values():
            active[entry.worker_id] = active.get(entry.worker_id, 0) + 1
        self._workers = {
            worker: (seen, name)
            for worker, (seen, name) in self._workers.items()
            if now - seen < WORKER_SEEN_MS
        }
        return [
            WorkerInfo(id=worker, name=name, seen_ms_ago=now - seen, active=active.get(worker, 0))
            for worker, (seen, name) in self._workers.items()
        ]

    def pause(self, paused: bool, now: int) -> None:
        """Stop or resume handing out jobs."""
        if paused != self.paused:
            self.paused = paused
            self.log.append(EventKind.PAUSED if paused else EventKind.RESUMED, now)

    def purge(
        self, states: Sequence[State], older_ms: int, limit: int | None, now: int
    ) -> list[str]:
        """Delete jobs that entered their state long enough ago, oldest first."""
        old = sorted(
            (entry for state in states for entry in self._ordered(state)),
            key=lambda entry: entry.since_ms,
        )
        chosen = [entry for entry in old if now - entry.since_ms >= older_ms][:limit]
        for entry in chosen:
            self._remove(entry, now)
        if chosen:
            self.log.append(EventKind.CLEANED, now, extras=(len(chosen),))
        return [entry.spec.id for entry in chosen]

    def destroy(self, queue: str, force: bool) -> MemoryQueue:
        """Return an empty queue in place of this one; event numbers go on."""
        if self._active and not force:
            raise QueueBusy(
                f"queue {queue!r}: {len(self._active)} jobs are running; wait for them, "
                "or destroy it with force=True"
            )
        self.log.clear()
        heir = MemoryQueue(self.log)
        heir.endings = list(self.jobs)
        return heir
