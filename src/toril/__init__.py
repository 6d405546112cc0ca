"""toril: background jobs for asyncio, on a storage of your choice.

A *toril* is the pen where the bulls wait before they are let into the ring.
"""

from toril._version import __version__
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
    TorilError,
    TorilWarning,
    TransientError,
    UnsupportedFeature,
    WaitTimeout,
)
from toril.event import Cursor, Event, EventKind
from toril.ids import content_id
from toril.job import Dedup, Job, JobStatus, Keep, State
from toril.metrics import MetricsCollector, NoMetrics
from toril.options import JobOptions
from toril.outcome import Failure
from toril.queue import CancelResult, EnqueueResult, NewJob, Queue
from toril.reaper import Reaper
from toril.retry import Backoff, ErrorCategory, Postpone, Reject, Retry, categorize_error
from toril.serde import JsonSerde, MsgpackSerde, Serde
from toril.storage import open_storage
from toril.storage.memory import MemoryStorage
from toril.storage.protocol import Storage
from toril.sync import SyncQueue
from toril.worker import Worker, WorkerState
from toril.worker_options import Limiter

__all__ = [
    "Backoff",
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
    "SyncQueue",
    "SystemClock",
    "TorilError",
    "TorilWarning",
    "TransientError",
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
