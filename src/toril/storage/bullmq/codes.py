"""Say what the numbers mean that the official scripts return."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from toril.errors import StorageError


class Code(IntEnum):
    """Why a script refused; everything below zero is a refusal."""

    JOB_MISSING = -1
    LOCK_MISSING = -2
    NOT_IN_STATE = -3
    PENDING_CHILDREN = -4
    PARENT_MISSING = -5
    LOCK_MISMATCH = -6
    PARENT_FIXED = -7
    SCHEDULED = -8
    FAILED_CHILDREN = -9
    SCHEDULER_EXISTS = -10
    SCHEDULER_BUSY = -11


_TEXTS: Final = {
    Code.JOB_MISSING: "it does not exist",
    Code.LOCK_MISSING: "its lock is gone: the lease lapsed",
    Code.NOT_IN_STATE: "it is not in the state that this needs",
    Code.PENDING_CHILDREN: "it has children that are not finished",
    Code.PARENT_MISSING: "its parent does not exist",
    Code.LOCK_MISMATCH: "its lock belongs to somebody else",
    Code.PARENT_FIXED: "it has another parent already",
    Code.SCHEDULED: "it is the next run of a scheduler; remove the scheduler instead",
    Code.FAILED_CHILDREN: "it has failed children",
    Code.SCHEDULER_EXISTS: "a run of this scheduler exists for that time",
    Code.SCHEDULER_BUSY: "this time and the next of the scheduler are taken",
}


class BullmqRefused(StorageError):
    """An official script refused; `code` is the number it gave."""

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        return type(self)._restore, (self.args[0], self.code)

    @classmethod
    def _restore(cls, message: str, code: int) -> BullmqRefused:
        return cls(message, code=code)


class JobMissing(BullmqRefused, LookupError):
    """-1: the job does not exist."""


class LockLost(BullmqRefused):
    """-2, -6: the lock is gone or belongs to somebody else."""


class WrongState(BullmqRefused):
    """-3: the job is not where the script needs it."""


class FlowRefused(BullmqRefused):
    """-4, -5, -7, -9: parents and children do not allow it."""


class SchedulerRefused(BullmqRefused):
    """-8, -10, -11: a scheduler does not allow it."""


_CLASSES: Final[dict[int, type[BullmqRefused]]] = {
    Code.JOB_MISSING: JobMissing,
    Code.LOCK_MISSING: LockLost,
    Code.LOCK_MISMATCH: LockLost,
    Code.NOT_IN_STATE: WrongState,
    Code.PENDING_CHILDREN: FlowRefused,
    Code.PARENT_MISSING: FlowRefused,
    Code.PARENT_FIXED: FlowRefused,
    Code.FAILED_CHILDREN: FlowRefused,
    Code.SCHEDULED: SchedulerRefused,
    Code.SCHEDULER_EXISTS: SchedulerRefused,
    Code.SCHEDULER_BUSY: SchedulerRefused,
}


def text_of(code: int) -> str:
    """The meaning of a code in words."""
    return _TEXTS[Code(code)] if code in _TEXTS else f"script code {code}"


def refused(script: str, job_id: str, code: int) -> BullmqRefused:
    """Make the error for a code that a script returned for a job."""
    kind = _CLASSES.get(code, BullmqRefused)
    return kind(f"job {job_id!r}: {script} refused ({code}): {text_of(code)}", code=code)
