"""toril: background jobs for asyncio, on a storage of your choice.

A *toril* is the pen where the bulls wait before they are let into the ring.
"""

from typing import TYPE_CHECKING

from toril._version import __version__

if TYPE_CHECKING:
    from toril.app import Toril
    from toril.clock import Clock, ManualClock, SystemClock
    from toril.context import JobContext, current_job
    from toril.errors import (
        EventsTrimmed,
        InvalidInput,
        InvalidName,
        InvalidOption,
        InvalidPayload,
        JobCancelled,
        JobError,
        JobFailed,
        JobNotFound,
        JobTimeout,
        LeaseLost,
        MissingExtra,
        PermanentError,
        QueueBusy,
        RetriesExhausted,
        SerdeError,
        StorageClosed,
        StorageDenied,
        StorageError,
        StorageFull,
        StorageUnavailable,
        StorageUnfit,
        TorilError,
        TorilWarning,
        TransientError,
        UnknownTask,
        UnsupportedFeature,
        WaitTimeout,
    )
    from toril.event import Cursor, Event, EventKind
    from toril.ids import content_id
    from toril.intake import CancelResult, EnqueueResult, NewJob
    from toril.job import Dedup, Job, JobStatus, Keep, State
    from toril.metrics import MetricsCollector, NoMetrics
    from toril.msgpack_serde import MsgpackSerde
    from toril.options import JobOptions
    from toril.outcome import Failure
    from toril.queue import Queue
    from toril.reaper import Reaper
    from toril.retry import Backoff, ErrorCategory, Postpone, Reject, Retry, categorize_error
    from toril.serde import JsonSerde, Serde
    from toril.storage import open_storage
    from toril.storage.file import FileStorage
    from toril.storage.memory import MemoryStorage
    from toril.storage.protocol import Storage
    from toril.sync import SyncQueue
    from toril.task import Call, Task, TaskJob
    from toril.worker import Worker, WorkerState
    from toril.worker_options import Limiter

# Names are loaded when first asked for: `import toril` is quick, and a program pays only for
# what it uses.
_HOMES = {
    name: home
    for home, names in {
        "app": ("Toril",),
        "clock": (
            "Clock",
            "ManualClock",
            "SystemClock",
        ),
        "context": (
            "JobContext",
            "current_job",
        ),
        "errors": (
            "EventsTrimmed",
            "InvalidInput",
            "InvalidName",
            "InvalidOption",
            "InvalidPayload",
            "JobCancelled",
            "JobError",
            "JobFailed",
            "JobNotFound",
            "JobTimeout",
            "LeaseLost",
            "MissingExtra",
            "PermanentError",
            "QueueBusy",
            "RetriesExhausted",
            "SerdeError",
            "StorageClosed",
            "StorageDenied",
            "StorageError",
            "StorageFull",
            "StorageUnavailable",
            "StorageUnfit",
            "TorilError",
            "TorilWarning",
            "TransientError",
            "UnknownTask",
            "UnsupportedFeature",
            "WaitTimeout",
        ),
        "event": (
            "Cursor",
            "Event",
            "EventKind",
        ),
        "ids": ("content_id",),
        "intake": (
            "CancelResult",
            "EnqueueResult",
            "NewJob",
        ),
        "job": (
            "Dedup",
            "Job",
            "JobStatus",
            "Keep",
            "State",
        ),
        "metrics": (
            "MetricsCollector",
            "NoMetrics",
        ),
        "msgpack_serde": ("MsgpackSerde",),
        "options": ("JobOptions",),
        "outcome": ("Failure",),
        "queue": ("Queue",),
        "reaper": ("Reaper",),
        "retry": (
            "Backoff",
            "ErrorCategory",
            "Postpone",
            "Reject",
            "Retry",
            "categorize_error",
        ),
        "serde": (
            "JsonSerde",
            "Serde",
        ),
        "storage": ("open_storage",),
        "storage.file": ("FileStorage",),
        "storage.memory": ("MemoryStorage",),
        "storage.protocol": ("Storage",),
        "sync": ("SyncQueue",),
        "task": (
            "Call",
            "Task",
            "TaskJob",
        ),
        "worker": (
            "Worker",
            "WorkerState",
        ),
        "worker_options": ("Limiter",),
    }.items()
    for name in names
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'toril' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"toril.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


__all__ = [
    "Backoff",
    "Call",
    "CancelResult",
    "Clock",
    "Cursor",
    "Dedup",
    "EnqueueResult",
    "ErrorCategory",
    "Event",
    "EventKind",
    "EventsTrimmed",
    "Failure",
    "FileStorage",
    "InvalidInput",
    "InvalidName",
    "InvalidOption",
    "InvalidPayload",
    "Job",
    "JobCancelled",
    "JobContext",
    "JobError",
    "JobFailed",
    "JobNotFound",
    "JobOptions",
    "JobStatus",
    "JobTimeout",
    "JsonSerde",
    "Keep",
    "LeaseLost",
    "Limiter",
    "ManualClock",
    "MemoryStorage",
    "MetricsCollector",
    "MissingExtra",
    "MsgpackSerde",
    "NewJob",
    "NoMetrics",
    "PermanentError",
    "Postpone",
    "Queue",
    "QueueBusy",
    "Reaper",
    "Reject",
    "RetriesExhausted",
    "Retry",
    "Serde",
    "SerdeError",
    "State",
    "Storage",
    "StorageClosed",
    "StorageDenied",
    "StorageError",
    "StorageFull",
    "StorageUnavailable",
    "StorageUnfit",
    "SyncQueue",
    "SystemClock",
    "Task",
    "TaskJob",
    "Toril",
    "TorilError",
    "TorilWarning",
    "TransientError",
    "UnknownTask",
    "UnsupportedFeature",
    "WaitTimeout",
    "Worker",
    "WorkerState",
    "__version__",
    "categorize_error",
    "content_id",
    "current_job",
    "open_storage",
]
