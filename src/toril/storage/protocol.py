"""The contract every storage keeps, and the values that cross it.

`queue` comes first, then a *sequence*: every verb is batch-first, and answers come in the
order asked. A batch is not a transaction; each job's change is atomic. Durations are relative
milliseconds, so no two clocks are ever compared. `docs/storage.md` has the promises in prose;
`toril.testing` has them as checks.

Every verb may be repeated after `StorageUnavailable`: the effect is that of one call.
Cancelling a verb's coroutine leaves its effect unknown, never the storage out of step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from toril.event import Cursor, Event
from toril.job import JobRecord, JobSpec, State
from toril.outcome import Answer, Failure, Lease, Outcome


class Feature(StrEnum):
    """Options a storage may lack; asking for one it lacks raises `UnsupportedFeature`."""

    LIFO = "lifo"
    KEEP_COUNT = "keep by count"
    KEEP_AGE = "keep by age"
    EXPIRES = "expires_in"
    CORRELATION = "correlation_id"
    RATE_LIMIT = "limiter"
    ANY_SERDE = "serdes other than JSON"


ALL_FEATURES = frozenset(Feature)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The answer to one hand-in.

    `created` is true when this hand-in made the job, also when told by a repeated call. If
    not, `id` and `state` are those of the job that holds the id or the dedup key; `state` is
    None when the key outlives its job.
    """

    id: str
    created: bool
    state: State | None
    deduplicated: bool = False


class Cancellation(StrEnum):
    """The answer to one cancel."""

    CANCELLED = "cancelled"
    NOT_FOUND = "not_found"
    PROCESSING = "processing"
    REQUESTED = "requested"
    COMPLETED = "completed"
    FAILED = "failed"


class Removal(StrEnum):
    """The answer to one remove."""

    REMOVED = "removed"
    NOT_FOUND = "not_found"
    ACTIVE = "active"


class EndingKind(StrEnum):
    """How a job came to its end."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of a job somebody waits for. GONE: the job is unknown, or no longer known."""

    id: str
    kind: EndingKind
    result: bytes | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """At most `max` starts per window of `duration_ms`, over all workers of the queue.

    A window opens with its first start, so two neighbouring ones may touch: up to twice `max`
    around their border.
    """

    max: int
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A wish for up to `count` jobs under one token.

    The token is minted before the first send and serves one call and its repeats, on one
    storage object. Repeating the claim first returns what was already granted under it, so a
    lost reply costs no job a stall.
    """

    token: str
    worker_id: str
    count: int
    lease_ms: int
    rate: Rate | None = None
    worker_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A job in hand.

    `age_ms` is the time since it was added, `started` how often it was handed out, this time
    included. `doom` is set when the job must be failed without
    being run, with that failure. `lease.token` may differ from the claim's.
    """

    spec: JobSpec
    lease: Lease
    created_ms: int
    age_ms: int
    started: int = 1
    attempts_made: int = 0
    stalls: int = 0
    doom: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a claim brought.

    `limited_for_ms` > 0: a rate limit holds the queue back that long.
    `next_in_ms`: when the next delayed job falls due, None if there is none.
    """

    jobs: Sequence[Claimed] = ()
    limited_for_ms: int = 0
    next_in_ms: int | None = None


EMPTY_BATCH = Batch()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """One answer per outcome, and the jobs the refill brought (empty without a refill)."""

    answers: Sequence[Answer]
    batch: Batch = EMPTY_BATCH


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """The leases that are gone, and those whose job somebody asked to cancel.

    Leases, not job ids: one worker may hold an old and a new lease of the same job.
    """

    lost: Sequence[Lease] = ()
    cancelled: Sequence[Lease] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaped:
    """Jobs put back in line, jobs that stalled too often, and when to look again.

    A doomed job is failed already, or will be claimed once more with `doom` set.
    """

    stalled: Sequence[str] = ()
    doomed: Sequence[str] = ()
    next_in_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many jobs a queue holds, by state."""

    waiting: int = 0
    prioritized: int = 0
    delayed: int = 0
    active: int = 0
    completed: int = 0
    failed: int = 0
    waiting_children: int = 0
    paused: bool = False

    @property
    def ready(self) -> int:
        """Jobs that could start now, were the queue not paused."""
        return self.waiting + self.prioritized

    @property
    def total(self) -> int:
        """Jobs in any state."""
        finished = self.completed + self.failed
        return self.ready + self.delayed + self.active + finished + self.waiting_children

    def of(self, state: State) -> int:
        """The number of jobs in one state."""
        value: int = getattr(self, state.replace("-", "_"))
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """A worker seen lately on a queue."""

    id: str
    name: str | None = None
    seen_ms_ago: int
    active: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A finished job as somebody saw it: by when it had finished."""

    id: str
    finished_ms: int


class Storage(Protocol):
    """Where jobs live. See the module's docstring for what holds for every verb."""

    @property
    def features(self) -> frozenset[Feature]:
        """The optional options this storage honours."""
        ...

    @property
    def url(self) -> str:
        """Where it is, without secrets; what another process would open."""
        ...

    # life
    async def open(self) -> None:
        """Connect; each call pairs with one `close`."""
        ...

    async def close(self) -> None:
        """Let go; the last close of the pairs disconnects. Blocked calls return."""
        ...

    # produce
    async def enqueue(self, queue: str, jobs: Sequence[JobSpec]) -> Sequence[Receipt]:
        """Store each job unless its id or dedup key is taken; never touch the one there."""
        ...

    async def cancel(
        self, queue: str, ids: Sequence[str], running: bool = False
    ) -> Sequence[Cancellation]:
        """Delete jobs that have not started; with `running`, ask the owners of those that have."""
        ...

    async def get(self, queue: str, ids: Sequence[str]) -> Sequence[JobRecord | None]:
        """Read jobs; None for the unknown and the expired."""
        ...

    async def remove(self, queue: str, ids: Sequence[str]) -> Sequence[Removal]:
        """Delete jobs in any state but active."""
        ...

    async def keep(self, queue: str, ids: Sequence[str], keep_ms: int | None) -> Sequence[bool]:
        """Keep finished jobs for `keep_ms` from now (None: for good); tell which were there."""
        ...

    async def finished(self, queue: str, ids: Sequence[str], block_ms: int) -> Sequence[Ending]:
        """Return the endings known now, or wait for the first one; () when the time is up.

        A job handed in with `reply` has its ending kept for a minute even if the job asked not
        to be kept (within its result ttl, if it has one). Calls may overlap.
        """
        ...

    # work
    async def claim(self, queue: str, claim: Claim) -> Batch:
        """Lease up to `count` jobs that may start now, in the order of the line."""
        ...

    async def wait(self, queues: Sequence[str], timeout_ms: int) -> None:
        """Return when one of the queues may have work; may be early, is never late."""
        ...

    async def renew(self, queue: str, leases: Sequence[Lease], lease_ms: int) -> Renewal:
        """Prolong the leases still held; report the ones that are gone.

        A lease that lapsed unnoticed may be prolonged or reported, as the storage can tell.
        """
        ...

    async def settle(
        self, queue: str, outcomes: Sequence[Outcome], refill: Claim | None = None
    ) -> Settlement:
        """End attempts under their leases, then claim the next jobs, in one call.

        A lease that lapsed but whose job nobody took may still settle (DONE) or not (LOST).
        Repeating a settle of a job that is not kept may answer GONE.
        """
        ...

    async def reap(self, queue: str, max_stalls: int, interval_ms: int) -> Reaped:
        """Put jobs with lapsed leases back in front; at most one caller works per interval."""
        ...

    async def leave(self, queue: str, worker_id: str) -> None:
        """Strike a worker off the list of those seen lately."""
        ...

    # observe
    async def events(
        self,
        queue: str,
        after: Cursor,
        until: Cursor | None = None,
        limit: int = 1000,
        block_ms: int = 0,
    ) -> Sequence[Event]:
        """Read events after one cursor up to and including another; wait if there are none.

        Raises `EventsTrimmed` when some after `after` are gone.
        """
        ...

    async def cursor(self, queue: str) -> Cursor:
        """The place after the newest event."""
        ...

    async def counts(self, queue: str) -> Counts:
        """Count the jobs by state."""
        ...

    async def peek(self, queue: str, state: State, start: int, stop: int) -> Sequence[JobRecord]:
        """Read jobs start <= n < stop of one state: next to run first, newest finished first."""
        ...

    async def queues(self) -> Sequence[str]:
        """Name the queues that hold anything."""
        ...

    async def workers(self, queue: str) -> Sequence[WorkerInfo]:
        """Name the workers seen lately."""
        ...

    # tend
    async def pause(self, queue: str, paused: bool) -> None:
        """Stop or resume handing out jobs; running ones go on."""
        ...

    async def purge(
        self, queue: str, states: Sequence[State], older_ms: int, limit: int | None = None
    ) -> Sequence[str]:
        """Delete up to `limit` jobs that are in their state for `older_ms` or longer, oldest first.

        For pending jobs a storage may go by when they were added or last started.
        """
        ...

    async def destroy(self, queue: str, force: bool = False) -> None:
        """Delete everything; raises `QueueBusy` if jobs are active and `force` is not given."""
        ...


@runtime_checkable
class Notes(Protocol):
    """Progress and logs. Writing takes leases, so a lost owner writes nothing."""

    async def progress(self, queue: str, notes: Sequence[tuple[Lease, bytes]]) -> Sequence[Answer]:
        """Record the newest progress (JSON text) of running jobs."""
        ...

    async def log(self, queue: str, notes: Sequence[tuple[Lease, str]]) -> Sequence[Answer]:
        """Append lines to the logs of running jobs, keeping the newest `keep_logs`."""
        ...

    async def logs(
        self, queue: str, job_id: str, start: int = 0, stop: int | None = None
    ) -> Sequence[str]:
        """Read kept lines start <= n < stop, oldest first."""
        ...


@runtime_checkable
class Edits(Protocol):
    """Changes to jobs that are not running. False: the job is not in a state that allows it."""

    async def promote(self, queue: str, ids: Sequence[str]) -> Sequence[bool]:
        """Let delayed jobs start now."""
        ...

    async def reprioritize(self, queue: str, ids: Sequence[str], priority: int) -> Sequence[bool]:
        """Give pending jobs another priority; delayed ones keep their time."""
        ...

    async def reschedule(self, queue: str, ids: Sequence[str], delay_ms: int) -> Sequence[bool]:
        """Let delayed jobs start `delay_ms` from now."""
        ...

    async def replace(self, queue: str, job_id: str, payload: bytes) -> bool:
        """Give a pending job other data."""
        ...

    async def revive(
        self, queue: str, ids: Sequence[str], reset_attempts: bool = True
    ) -> Sequence[bool]:
        """Put finished jobs back in line, respecting their priority.

        False too if another job holds the dedup key now.
        """
        ...


@runtime_checkable
class Ends(Protocol):
    """Changes to finished jobs, for callers that saw them a while ago.

    False: the job is gone, runs again, or has finished another time since; nothing changed.
    """

    async def discard(self, queue: str, seen: Sequence[Seen]) -> Sequence[bool]:
        """Delete finished jobs; tells the events that `purge` tells."""
        ...

    async def rerun(self, queue: str, seen: Sequence[Seen]) -> Sequence[bool]:
        """Put finished jobs back in line, as `Edits.revive` does."""
        ...


@runtime_checkable
class Limits(Protocol):
    """Bounds that hold for a queue over all its workers."""

    async def tune(
        self,
        queue: str,
        *,
        concurrency: int | None = None,
        rate: Rate | None = None,
        events_kept: int | None = None,
    ) -> None:
        """Set the bounds of a queue; None lifts a bound (events: back to the default)."""
        ...


@runtime_checkable
class Hears(Protocol):
    """Endings that come by themselves, for callers who have just handed a job in."""

    def hear(self, queue: str, job_id: str, tell: Callable[[Ending | None], None]) -> bool:
        """Tell once how a job handed in with `reply` ends, or None if it has to be asked for.

        False, and nothing is told, if it has to be asked for now. Whoever does not care any more
        may be told all the same.
        """
        ...


@runtime_checkable
class Awaits(Protocol):
    """Claims that wait at the storage, so that a job is leased right when it comes."""

    async def await_claim(
        self, queue: str, claim: Claim, timeout_ms: int, cut: asyncio.Future[None]
    ) -> Batch:
        """Claim when there may be work, when the time is up, or soon after `cut` is done.

        As safe to repeat as `claim`, also by `claim`. A call that is cancelled hands back what it
        was granted.
        """
        ...


class Beat(Protocol):
    """A synchronous heart with its own connection, used from one thread."""

    def renew(self, queue: str, leases: Sequence[Lease], lease_ms: int) -> Renewal:
        """As `Storage.renew`, blocking."""
        ...

    def close(self) -> None:
        """Let the connection go."""
        ...


@runtime_checkable
class Beats(Protocol):
    """Renewal that a blocked event loop cannot stop."""

    def heartbeat(self) -> Beat:
        """Make a heart; called in the thread that will use it."""
        ...
