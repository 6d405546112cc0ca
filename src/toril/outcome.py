"""Say how an attempt ended, and what the storage answered."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An error as data: never rebuilt into an exception by name."""

    kind: str
    reason: str
    stack: str = ""

    def __str__(self) -> str:
        if self.coded:
            return self.reason
        return f"{self.kind}: {self.reason}" if self.reason else self.kind

    @property
    def coded(self) -> bool:
        """Whether the reason is a message of toril's own, which needs no more words around it."""
        return self.reason.startswith("toril[E")

    def told(self, job_id: str, how: str = "failed") -> str:
        """Say it of a job."""
        return self.reason if self.coded else f"job {job_id!r} {how}: {self}"


CANCELLED = "JobCancelled"
"""The `Failure.kind` of a job that was cancelled while it ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to end one attempt of one job.

    `token` is the fencing token, `attempt` counts from 1, `note` belongs to the storage that
    granted the lease and means nothing to anybody else.
    """

    job_id: str
    token: str
    attempt: int
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The handler returned; `result` is its encoded value."""

    lease: Lease
    result: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The job is over; `exhausted` tells whether its attempts ran out."""

    lease: Lease
    failure: Failure
    exhausted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """The attempt failed and counts; the next one may start after `delay_ms`."""

    lease: Lease
    failure: Failure
    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Postponed:
    """The attempt does not count; the job comes back after `delay_ms`, or at `until_ms`.

    Exactly one of the two is set; `until_ms` is compared with the storage's clock.
    """

    lease: Lease
    delay_ms: int | None = None
    until_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The attempt does not count; the job goes back to the front of its line."""

    lease: Lease


Outcome = Completed | Failed | Retried | Postponed | Released


class AnswerKind(StrEnum):
    """What became of an outcome."""

    DONE = "done"
    LOST = "lost"
    GONE = "gone"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The storage's answer to one outcome.

    DONE: recorded, now or by an earlier call whose reply was lost. LOST: the lease belongs to
    somebody else, nothing changed. GONE: the job no longer exists. REFUSED: the storage cannot
    record this outcome; `reason` says why and the job is still leased.
    """

    kind: AnswerKind
    reason: str = ""


DONE = Answer(kind=AnswerKind.DONE)
LOST = Answer(kind=AnswerKind.LOST)
GONE = Answer(kind=AnswerKind.GONE)
