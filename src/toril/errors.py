"""Name everything that can go wrong, once.

TorilError
├── InvalidInput (ValueError)            refused before any I/O, nothing changed
│   ├── InvalidName                      queue, job, worker or dedup name
│   ├── InvalidOption                    job, worker, queue or URL option
│   └── InvalidPayload                   data or result that cannot be stored (knows the path)
├── SerdeError (ValueError)              stored bytes that cannot be decoded
├── UnsupportedFeature                   the storage lacks this option or facet
├── MissingExtra (ImportError)           an optional dependency is not installed
├── JobError
│   ├── JobNotFound (LookupError)
│   ├── JobFailed                        knows `original_error`
│   │   └── RetriesExhausted             knows `payload` and `attempts`
│   ├── JobCancelled
│   ├── JobTimeout (TimeoutError)        the handler took longer than its `timeout`
│   ├── WaitTimeout (TimeoutError)       the result did not come in time; the job goes on
│   └── LeaseLost                        somebody else owns the job now
├── TransientError                       raised by a handler: try again
├── PermanentError                       raised by a handler: never try again
│   └── UnknownTask                      the worker has no handler for the job's name
└── StorageError
    ├── StorageUnavailable (ConnectionError)   may be repeated; the effect is unknown
    ├── StorageDenied                    the server refused the login or the command
    ├── StorageUnfit                     the server cannot be trusted with jobs; waiting is no help
    ├── StorageFull                      nothing was written
    ├── StorageClosed                    used before `open` or after `close`
    ├── QueueBusy                        jobs are running
    └── EventsTrimmed (LookupError)      knows how many events are gone

TorilWarning (UserWarning) marks what is allowed and probably not meant.

What a handler raises on purpose (`Retry`, `Reject`, `Postpone`) is in `toril.retry`: it is
a wish, not an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toril.event import Cursor
    from toril.outcome import Failure


def restore(kind: type[BaseException], args: tuple[object, ...]) -> BaseException:
    """Make an error again from its arguments, past an `__init__` that asks for more.

    For `__reduce__`: errors are copied, and process pools send them to another process.
    """
    error = kind.__new__(kind, *args)
    error.args = args
    return error


class TorilError(Exception):
    """Root of every error toril raises."""


class TorilWarning(UserWarning):
    """An allowed setting that is probably a mistake."""


class InvalidInput(TorilError, ValueError):
    """Something the caller gave is not allowed; nothing was sent or changed."""


class InvalidName(InvalidInput):
    """A queue, job, worker or dedup name breaks the naming rules."""


class InvalidOption(InvalidInput):
    """An option is unknown, has the wrong type or is out of range."""


class InvalidPayload(InvalidInput):
    """A value cannot be stored; `path` leads to the offending element."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class SerdeError(TorilError, ValueError):
    """Stored bytes are not what the serde expects; they are left untouched."""


class UnsupportedFeature(TorilError):
    """The storage lacks the option or facet that was asked for."""


class MissingExtra(TorilError, ImportError):
    """An optional dependency is needed here and not installed."""


class JobError(TorilError):
    """Trouble with one job."""

    def __init__(self, message: str, *, job_id: str) -> None:
        super().__init__(message)
        self.job_id = job_id

    def __reduce__(self) -> tuple[object, ...]:
        return restore, (type(self), self.args), self.__dict__


class JobNotFound(JobError, LookupError):
    """The job does not exist, or no longer."""


class JobFailed(JobError):
    """The job ended in failure; `original_error` tells what its handler raised."""

    def __init__(self, message: str, *, job_id: str, original_error: Failure) -> None:
        super().__init__(message, job_id=job_id)
        self.original_error = original_error


class RetriesExhausted(JobFailed):
    """The last allowed attempt failed; `payload` is the job's data, for a dead letter queue."""

    def __init__(
        self,
        message: str,
        *,
        job_id: str,
        original_error: Failure,
        payload: object,
        attempts: int,
    ) -> None:
        super().__init__(message, job_id=job_id, original_error=original_error)
        self.payload = payload
        self.attempts = attempts


class JobCancelled(JobError):
    """The job was cancelled before it could complete."""


class JobTimeout(JobError, TimeoutError):
    """The handler ran longer than the job's `timeout`."""


class WaitTimeout(JobError, TimeoutError):
    """The result did not arrive in time; the job itself goes on."""


class LeaseLost(JobError):
    """The lease lapsed and the job belongs to somebody else; nothing was written."""


class TransientError(TorilError):
    """Raise in a handler: the trouble will pass, try again while attempts remain."""


class PermanentError(TorilError):
    """Raise in a handler: trying again is useless, fail at once."""


class UnknownTask(PermanentError):
    """No handler of the worker has the job's name; the text tells which names it knows."""


class StorageError(TorilError):
    """Trouble with the storage, not with a job."""


class StorageUnavailable(StorageError, ConnectionError):
    """The storage did not answer; whether the call took effect is unknown. Repeating is safe."""


class StorageDenied(StorageError):
    """The server refused the login or the command; nothing was done. Mend user, password or ACL."""


class StorageUnfit(StorageError):
    """The server is too old, may delete jobs, or cannot run here; nothing was done."""


class StorageFull(StorageError):
    """The storage refused to grow; nothing was written."""


class StorageClosed(StorageError):
    """The storage is not open."""


class QueueBusy(StorageError):
    """Jobs are running, so the queue cannot be destroyed without force."""


class EventsTrimmed(StorageError, LookupError):
    """`count` events after the given cursor are gone; read on from `resume`."""

    def __init__(self, message: str, *, count: int, resume: Cursor) -> None:
        super().__init__(message)
        self.count = count
        self.resume = resume

    def __reduce__(self) -> tuple[object, ...]:
        return restore, (type(self), self.args), self.__dict__
