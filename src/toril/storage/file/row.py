"""A job's row in memory, inside one transaction."""

from __future__ import annotations

from typing import Any, Final

from toril.errors import SerdeError
from toril.job import DEFAULT_TERMS, JobRecord, JobSpec, Terms
from toril.outcome import CANCELLED, Failure, Lease
from toril.storage.file.codec import (
    ACTIVE,
    COMPLETED,
    FAILED,
    STATES,
    WAITING,
    pack,
    pack_failure,
    pack_terms,
    unpack_failure,
    unpack_stacks,
    unpack_terms,
)
from toril.storage.protocol import Ending, EndingKind

_FIXED: Final = ("n", "queue", "id", "name", "origin", "created_ms")
_MOVING: Final = (
    "state",
    "rank",
    "place",
    "terms",
    "reply",
    "since_ms",
    "due_ms",
    "expires_ms",
    "made",
    "started",
    "stalls",
    "processed_ms",
    "finished_ms",
    "worker_id",
    "token",
    "lease_until_ms",
    "settled_token",
    "settled_started",
    "cancel",
    "progress",
    "result",
    "failure",
    "stacks",
)
COLUMNS: Final = ", ".join(f"jobs.{name}" for name in (*_FIXED, *_MOVING))
UPDATE: Final = f"UPDATE jobs SET {', '.join(f'{name} = ?' for name in _MOVING)} WHERE n = ?"
INSERT: Final = (
    f"INSERT INTO jobs ({', '.join((*_FIXED[1:], *_MOVING))}) "
    f"VALUES ({', '.join('?' * (len(_FIXED) - 1 + len(_MOVING)))})"
)


class Row:
    """The columns of one job, under their own names."""

    __slots__ = (*_FIXED, *_MOVING)

    def __init__(self, values: tuple[Any, ...]) -> None:
        (
            self.n,
            self.queue,
            self.id,
            self.name,
            self.origin,
            self.created_ms,
            self.state,
            self.rank,
            self.place,
            self.terms,
            self.reply,
            self.since_ms,
            self.due_ms,
            self.expires_ms,
            self.made,
            self.started,
            self.stalls,
            self.processed_ms,
            self.finished_ms,
            self.worker_id,
            self.token,
            self.lease_until_ms,
            self.settled_token,
            self.settled_started,
            self.cancel,
            self.progress,
            self.result,
            self.failure,
            self.stacks,
        ) = values

    @classmethod
    def of(cls, queue: int, spec: JobSpec, now: int) -> Row:
        """Make the row of a new job; its place and number are still to be given."""
        head = (0, queue, spec.id, spec.name, spec.origin, now, WAITING, 0, 0)
        tail = (pack_terms(spec.terms), int(spec.reply), now, None, None, 0, 0, 0, None, None)
        return cls((*head, *tail, None, None, 0, None, None, 0, None, None, None, None))

    def moving(self) -> tuple[Any, ...]:
        """The columns that change, in the order of the statements."""
        return (
            self.state,
            self.rank,
            self.place,
            self.terms,
            self.reply,
            self.since_ms,
            self.due_ms,
            self.expires_ms,
            self.made,
            self.started,
            self.stalls,
            self.processed_ms,
            self.finished_ms,
            self.worker_id,
            self.token,
            self.lease_until_ms,
            self.settled_token,
            self.settled_started,
            self.cancel,
            self.progress,
            self.result,
            self.failure,
            self.stacks,
        )

    def fixed(self) -> tuple[Any, ...]:
        """The columns that never change, without the number."""
        return (self.queue, self.id, self.name, self.origin, self.created_ms)

    def agreed(self) -> Terms:
        """The job's terms; the default ones where what is stored cannot be read."""
        try:
            return unpack_terms(self.terms)
        except SerdeError:
            return DEFAULT_TERMS

    def doom(self) -> Failure | None:
        """Why the job must fail without running, None if it may run."""
        try:
            unpack_terms(self.terms)
        except SerdeError as error:
            return Failure(kind="SerdeError", reason=f"job {self.id!r}: {error}")
        return None

    def owned_by(self, lease: Lease) -> bool:
        """Tell whether the lease is the one that is running now."""
        return bool(
            self.state == ACTIVE and self.token == lease.token and str(self.started) == lease.note
        )

    def settled_by(self, lease: Lease) -> bool:
        """Tell whether an outcome under this lease was the last one recorded."""
        return self.settled_token == lease.token and str(self.settled_started) == lease.note

    def record_failure(self, failure: Failure) -> None:
        """Note why an attempt failed; the newest ten stacks are kept."""
        self.failure = pack_failure(failure)
        if failure.stack:
            self.stacks = pack((*unpack_stacks(self.stacks)[-9:], failure.stack))

    def spec(self, payload: bytes) -> JobSpec:
        """The job as it was handed in."""
        return JobSpec(
            id=self.id,
            name=self.name,
            payload=payload,
            terms=self.agreed(),
            origin=self.origin,
            reply=bool(self.reply),
        )

    def record(self, payload: bytes) -> JobRecord:
        """Take a snapshot."""
        return JobRecord(
            spec=self.spec(payload),
            state=STATES[self.state],
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
            failure=unpack_failure(self.failure),
            stacktrace=unpack_stacks(self.stacks),
        )

    def ending(self) -> Ending | None:
        """Tell how the job ended, None while it lives."""
        if self.state == COMPLETED:
            return Ending(id=self.id, kind=EndingKind.COMPLETED, result=self.result)
        if self.state == FAILED:
            failure = unpack_failure(self.failure)
            cancelled = failure is not None and failure.kind == CANCELLED
            kind = EndingKind.CANCELLED if cancelled else EndingKind.FAILED
            return Ending(id=self.id, kind=kind, failure=failure)
        return None
