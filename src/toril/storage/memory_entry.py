"""A job inside the memory storage, and the lines it waits in."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from toril.job import JobRecord, JobSpec, State
from toril.outcome import CANCELLED, Failure, Lease
from toril.storage.protocol import Ending, EndingKind

# Asked for every job: to take a member out of its enum costs as much as a call.
_WAITING: Final = State.WAITING
_ACTIVE: Final = State.ACTIVE


class Entry:
    """A stored job; the only mutable thing here."""

    __slots__ = (
        "cancel_requested",
        "created_ms",
        "due_ms",
        "expires_ms",
        "failure",
        "finished_ms",
        "lease_until_ms",
        "logs",
        "made",
        "note",
        "processed_ms",
        "progress",
        "reply",
        "result",
        "settled_note",
        "settled_token",
        "since_ms",
        "spec",
        "stack",
        "stalls",
        "started",
        "state",
        "ticket",
        "token",
        "worker_id",
    )

    def __init__(self, spec: JobSpec, now: int) -> None:
        self.spec = spec
        self.state = _WAITING
        self.created_ms = now
        self.since_ms = now
        self.due_ms: int | None = None
        self.expires_ms: int | None = None
        self.made = 0
        self.started = 0
        self.stalls = 0
        self.processed_ms: int | None = None
        self.finished_ms: int | None = None
        self.worker_id: str | None = None
        self.token: str | None = None
        self.note = ""
        # Of the lease that was settled last; a tuple would be one more object to keep.
        self.settled_token: str | None = None
        self.settled_note = ""
        self.lease_until_ms = 0
        self.cancel_requested = False
        self.reply = spec.reply
        self.progress: bytes | None = None
        self.result: bytes | None = None
        self.failure: Failure | None = None
        self.stack: tuple[str, ...] = ()
        self.logs: list[str] | None = None
        # Heap entries carry the ticket they were made with; an older ticket is a dead entry.
        self.ticket = 0

    def owned_by(self, lease: Lease) -> bool:
        """Tell whether the lease is the one that is running now."""
        return self.state is _ACTIVE and self.token == lease.token and self.note == lease.note

    def record(self) -> JobRecord:
        """Take a snapshot."""
        return JobRecord(
            spec=self.spec,
            state=self.state,
            created_ms=self.created_ms,
            due_ms=self.due_ms,
            attempts_made=self.made,
            attempts_started=self.started,
            stalls=self.stalls,
            processed_ms=self.processed_ms,
            finished_ms=self.finished_ms,
            worker_id=self.worker_id,
            progress=self.progress,
            result=self.result,
            failure=self.failure,
            stacktrace=self.stack,
        )

    def ending(self) -> Ending | None:
        """Tell how the job ended, None while it lives."""
        if self.state is State.COMPLETED:
            return Ending(id=self.spec.id, kind=EndingKind.COMPLETED, result=self.result)
        if self.state is State.FAILED:
            cancelled = self.failure is not None and self.failure.kind == CANCELLED
            kind = EndingKind.CANCELLED if cancelled else EndingKind.FAILED
            return Ending(id=self.spec.id, kind=kind, failure=self.failure)
        return None


class Lines:
    """Where jobs wait: the plain line, the prioritised one, the delayed one.

    Heap entries carry the ticket their job had; a job that left holds another ticket, so its
    heap entry is dead and skipped when it surfaces.
    """

    def __init__(self) -> None:
        self.waiting: OrderedDict[str, Entry] = OrderedDict()
        self.prioritized = 0
        self.delayed = 0
        self._by_priority: list[tuple[int, int, int, Entry]] = []
        self._by_due: list[tuple[int, int, Entry]] = []
        self._tickets = 0

    @property
    def ready(self) -> int:
        """Jobs that could start now."""
        return len(self.waiting) + self.prioritized

    def enter(self, entry: Entry, *, front: bool = False, ignore_priority: bool = False) -> None:
        """Let a job wait for a worker."""
        entry.due_ms = None
        priority = 0 if ignore_priority else entry.spec.terms.priority
        if priority:
            entry.state = State.PRIORITIZED
            ticket = self._ticket(entry)
            place = -ticket if front else ticket
            heapq.heappush(self._by_priority, (priority, place, ticket, entry))
            self.prioritized += 1
            return
        entry.state = _WAITING
        self.waiting[entry.spec.id] = entry
        if front:
            self.waiting.move_to_end(entry.spec.id, last=False)

    def delay(self, entry: Entry, due_ms: int) -> None:
        """Let a job wait for its time."""
        entry.state = State.DELAYED
        entry.due_ms = due_ms
        heapq.heappush(self._by_due, (due_ms, self._ticket(entry), entry))
        self.delayed += 1

    def leave(self, entry: Entry) -> None:
        """Take a pending job out of its line."""
        if entry.state is State.WAITING:
            del self.waiting[entry.spec.id]
        elif entry.state is State.PRIORITIZED:
            self.prioritized -= 1
        elif entry.state is State.DELAYED:
            self.delayed -= 1
        entry.ticket = 0

    def take(self) -> Entry | None:
        """Take the job that is next: the plain line first, as on the BullMQ wire."""
        if self.waiting:
            return self.waiting.popitem(last=False)[1]
        while self._by_priority:
            _, _, ticket, entry = heapq.heappop(self._by_priority)
            if entry.ticket == ticket:
                self.leave(entry)
                return entry
        return None

    def take_due(self, now: int) -> Entry | None:
        """Take a delayed job whose time has come."""
        entry = self._first_delayed()
        if entry is None or (entry.due_ms or 0) > now:
            return None
        self.leave(entry)
        return entry

    def due_in(self, now: int) -> int | None:
        """Milliseconds until the next delayed job is due, None if there is none."""
        entry = self._first_delayed()
        return None if entry is None else max(0, (entry.due_ms or 0) - now)

    def ordered(self, state: State) -> Iterator[Entry]:
        """Walk one line, next to run first."""
        if state is State.WAITING:
            yield from self.waiting.values()
        elif state is State.PRIORITIZED:
            for _, _, ticket, entry in sorted(self._by_priority):
                if entry.ticket == ticket:
                    yield entry
        elif state is State.DELAYED:
            for _, ticket, entry in sorted(self._by_due):
                if entry.ticket == ticket:
                    yield entry

    def _first_delayed(self) -> Entry | None:
        while self._by_due:
            _, ticket, entry = self._by_due[0]
            if entry.ticket == ticket:
                return entry
            heapq.heappop(self._by_due)
        return None

    def _ticket(self, entry: Entry) -> int:
        self._tickets += 1
        entry.ticket = self._tickets
        return self._tickets
