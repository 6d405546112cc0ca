"""Describe a job: as it is handed in, as it is stored, and as its user sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Generic

from toril.errors import InvalidOption
from toril.ids import check_name
from toril.outcome import Failure
from toril.retry import Backoff, Seconds, to_ms, to_seconds

if TYPE_CHECKING:
    # Known to type checkers without being installed; `Queue("x")` is a `Queue[Any, Any]`.
    from typing_extensions import TypeVar

    In = TypeVar("In", default=Any)
    Out = TypeVar("Out", default=Any)
else:
    from typing import TypeVar

    In = TypeVar("In")
    Out = TypeVar("Out")


class State(StrEnum):
    """Where a job is; `paused` is a property of its queue, not a state."""

    WAITING = "waiting"
    PRIORITIZED = "prioritized"
    DELAYED = "delayed"
    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    WAITING_CHILDREN = "waiting-children"


PENDING: Final = frozenset({State.WAITING, State.PRIORITIZED, State.DELAYED})
FINISHED: Final = frozenset({State.COMPLETED, State.FAILED})


@dataclass(frozen=True, slots=True)
class Keep:
    """How many finished jobs stay, and how long; None sets no bound."""

    count: int | None = None
    age: Seconds | None = None

    def __post_init__(self) -> None:
        count: object = self.count
        whole_number = isinstance(count, int) and not isinstance(count, bool) and count >= 0
        if count is not None and not whole_number:
            raise InvalidOption(f"Keep(count={count!r}): must be a whole number, 0 or more")
        if self.age is not None:
            object.__setattr__(self, "age", to_seconds("Keep(age)", self.age, above=True))

    @property
    def age_ms(self) -> int | None:
        """The age in milliseconds."""
        return None if self.age is None else to_ms(to_seconds("Keep(age)", self.age))


KEEP_ALL: Final = Keep()
KEEP_NONE: Final = Keep(count=0)


@dataclass(frozen=True, slots=True)
class Dedup:
    """Let one job live per key.

    Without `ttl` the key is held until the job finishes; with it, for that long (throttle).
    `extend` restarts the time at each refused job; `replace` (with a delay) drops the delayed
    job in favour of the new one (debounce).
    """

    key: str
    ttl: Seconds | None = None
    extend: bool = False
    replace: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", check_name("dedup", self.key))
        for what, flag in (("extend", self.extend), ("replace", self.replace)):
            if not isinstance(flag, bool):
                raise InvalidOption(f"Dedup({what}={flag!r}): must be True or False")
        if self.ttl is not None:
            object.__setattr__(self, "ttl", to_seconds("Dedup(ttl)", self.ttl, above=True))
        elif self.extend:
            raise InvalidOption(f"Dedup({self.key!r}, extend=True): extending needs ttl=")

    @property
    def ttl_ms(self) -> int | None:
        """The time to live in milliseconds."""
        return None if self.ttl is None else to_ms(to_seconds("Dedup(ttl)", self.ttl))


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A job's options as storages keep them: whole milliseconds, already validated."""

    delay_ms: int = 0
    priority: int = 0
    lifo: bool = False
    attempts: int = 1
    backoff: Backoff | None = None
    keep_completed: Keep = KEEP_ALL
    keep_failed: Keep = KEEP_ALL
    result_ttl_ms: int | None = None
    timeout_ms: int | None = None
    expires_ms: int | None = None
    dedup: Dedup | None = None
    keep_logs: int = 1000
    correlation_id: str | None = None


DEFAULT_TERMS: Final = Terms()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job as it is handed to a storage.

    `origin` is minted once per hand-in, so that a repeated `enqueue` whose first reply was
    lost is recognised. `reply` announces that the caller will ask `finished` for this job.
    `requeue_failed` lets the job replace a failed one of the same id. `fresh`: the id was made
    for this hand-in, so that a storage need not look for it among jobs of the past, and one that
    counts its jobs may give it a number instead.
    """

    id: str
    name: str = "job"
    payload: bytes = b"null"
    terms: Terms = DEFAULT_TERMS
    origin: str = ""
    reply: bool = False
    requeue_failed: bool = False
    fresh: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A stored job; bytes below the serde line, times in the storage's milliseconds."""

    spec: JobSpec
    state: State
    created_ms: int
    due_ms: int | None = None
    attempts_made: int = 0
    attempts_started: int = 0
    stalls: int = 0
    processed_ms: int | None = None
    finished_ms: int | None = None
    worker_id: str | None = None
    progress: bytes | None = None
    result: bytes | None = None
    failure: Failure | None = None
    stacktrace: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Generic[In, Out]):
    """A job as its user sees it: a snapshot, it does not change."""

    id: str
    name: str
    queue: str
    data: In
    state: State
    terms: Terms
    created_at: datetime
    due_at: datetime | None = None
    attempts_made: int = 0
    attempts_started: int = 0
    stalls: int = 0
    processed_at: datetime | None = None
    finished_at: datetime | None = None
    worker_id: str | None = None
    progress: object = None
    result: Out | None = None
    error: Failure | None = None
    stacktrace: tuple[str, ...] = field(default=(), repr=False)

    @property
    def max_attempts(self) -> int:
        """How often the job may run before it fails."""
        return self.terms.attempts

    @property
    def priority(self) -> int:
        """0 = none (runs first), 1 = most urgent."""
        return self.terms.priority

    @property
    def correlation_id(self) -> str | None:
        """What ties the job to the request that made it."""
        return self.terms.correlation_id


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus(Generic[Out]):
    """The short answer to "how is my job?"."""

    id: str
    state: State
    created_at: datetime
    attempts: int
    result: Out | None = None
    error: Failure | None = None
