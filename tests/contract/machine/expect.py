"""What is expected of a storage: one small record per job, key and ending."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from toril.event import EventKind
from toril.job import JobSpec, State
from toril.outcome import (
    CANCELLED,
    Completed,
    Failed,
    Failure,
    Lease,
    Outcome,
    Postponed,
    Released,
    Retried,
)
from toril.storage.protocol import EndingKind

Q: Final = "machine"
LEASE_MS: Final = 4_000
REAP_MS: Final = 1_000
MAX_STALLS: Final = 1
ENDING_KEPT_MS: Final = 60_000

TOLD_BY: Final = {
    State.WAITING: EventKind.WAITING,
    State.PRIORITIZED: EventKind.WAITING,
    State.DELAYED: EventKind.DELAYED,
    State.ACTIVE: EventKind.ACTIVE,
    State.COMPLETED: EventKind.COMPLETED,
    State.FAILED: EventKind.FAILED,
}
ENDS: Final = frozenset({EventKind.COMPLETED, EventKind.FAILED, EventKind.CANCELLED})


@dataclass(slots=True)
class Expected:
    """What one job must look like. State WAITING stands for both lines of the ready."""

    spec: JobSpec
    born: int
    state: State
    reply: bool
    # Its place among the ready: smaller starts first; None where the contract names no order.
    rank: tuple[int, int] | None = None
    due: int = 0
    made: int = 0
    stalls: int = 0
    starts: int = 0
    runs: int = 0
    allowed: int = 0
    worker: str = ""
    token: str = ""
    lease: Lease | None = None
    ended: Outcome | None = None
    until: int = 0
    fenced: bool = False
    missed: int = 0
    cancel: bool = False
    cancel_told: bool = False
    doomed: bool = False
    result: bytes | None = None
    failure: Failure | None = None
    progress: bytes | None = None
    expires: int | None = None

    @property
    def id(self) -> str:
        """The job's id."""
        return self.spec.id

    def fits(self, state: State | None, now: int) -> bool:
        """Tell whether a storage may report this state."""
        if self.state is State.DELAYED and state is State.DELAYED:
            return True
        if self.state is State.WAITING or (self.state is State.DELAYED and self.due < now):
            # A stalled job may overtake the prioritised ones by leaving their line.
            plain = not self.spec.terms.priority or self.stalls > 0
            lined_up = bool(self.spec.terms.priority) and state is State.PRIORITIZED
            return lined_up or (plain and state is State.WAITING)
        return state is self.state


@dataclass(slots=True)
class Hold:
    """Who holds a dedup key, until when (None: while the job lives); `loose`: perhaps nobody."""

    job_id: str
    until: int | None
    loose: bool = False


@dataclass(slots=True)
class Ghost:
    """How a job that is gone had ended, and until when that must stay readable."""

    until: int
    kind: EndingKind
    result: bytes | None


def make_outcome(lease: Lease, kind: str, text: bytes) -> Outcome:
    failure = Failure(kind="ValueError", reason=text.decode())
    match kind:
        case "complete":
            return Completed(lease=lease, result=text)
        case "retry":
            return Retried(lease=lease, failure=failure, delay_ms=0)
        case "retry later":
            return Retried(lease=lease, failure=failure, delay_ms=1_500)
        case "postpone":
            return Postponed(lease=lease, delay_ms=700)
        case "release":
            return Released(lease=lease)
        case _:
            return Failed(lease=lease, failure=failure, exhausted=kind == "exhaust")


def ending_kind(job: Expected) -> EndingKind:
    if job.state is State.COMPLETED:
        return EndingKind.COMPLETED
    cancelled = job.failure is not None and job.failure.kind == CANCELLED
    return EndingKind.CANCELLED if cancelled else EndingKind.FAILED
