"""What a handler gets: its job, and the ways to talk back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic

from toril.errors import InvalidInput, LeaseLost, UnsupportedFeature
from toril.job import In
from toril.outcome import LOST, Answer, AnswerKind, Lease
from toril.serde import JsonSerde
from toril.storage.protocol import Claimed, Notes, Storage
from toril.text import printable

_JSON = JsonSerde()
_Send = Callable[[Lease], Awaitable[Sequence[Answer]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What the jobs of one worker share."""

    queue: str
    worker_id: str
    storage: Storage
    loop: asyncio.AbstractEventLoop
    thread: int
    attempts: int | None = None
    strict_progress: bool = False


class JobContext(Generic[In]):
    """A running job. `cancelled` and `lost` may turn true while the handler runs."""

    __slots__ = ("_claimed", "_desk", "cancelled", "data", "deadline", "id", "lost", "name")

    def __init__(self, claimed: Claimed, desk: Desk, data: In) -> None:
        self._claimed = claimed
        self._desk = desk
        self.id: str = claimed.spec.id
        self.name: str = claimed.spec.name
        self.data: In = data
        self.cancelled: bool = False
        """Somebody asked for this job to stop."""
        self.lost: bool = False
        """The lease is gone: another worker may run the job, this run's result is dropped."""
        self.deadline: float | None = None
        """When the job's `timeout` ends it, on the worker's monotonic clock."""

    def __repr__(self) -> str:
        return f"<JobContext {self.id!r} attempt {self.attempt}/{self.max_attempts}>"

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self._desk.queue

    @property
    def worker_id(self) -> str:
        """The worker that runs the job."""
        return self._desk.worker_id

    @property
    def attempt(self) -> int:
        """Which try this is, from 1; stalls and postponements do not count."""
        return self._claimed.lease.attempt

    @property
    def max_attempts(self) -> int:
        """How many tries the job has; the worker may have a say of its own."""
        return self._desk.attempts or self._claimed.spec.terms.attempts

    @property
    def stalls(self) -> int:
        """How often a worker died or froze on this job."""
        return self._claimed.stalls

    @property
    def correlation_id(self) -> str | None:
        """What ties the job to the request that made it."""
        return self._claimed.spec.terms.correlation_id

    @property
    def created_at(self) -> datetime:
        """When the job was added, by the storage's clock."""
        return datetime.fromtimestamp(self._claimed.created_ms / 1000, UTC)

    def progress(self, value: object) -> Awaitable[None]:
        """Record how far the job is, as any JSON value; a `strict_progress` worker takes 0 to 100.

        Works in `async def` and plain handlers alike; in the latter it blocks. Raises
        `LeaseLost` when the job belongs to somebody else; then nothing is written.
        """
        if self._desk.strict_progress:
            self._check_percent(value)
        payload = _JSON.dumps(value)
        notes = self._notes("progress")
        return self._write(lambda lease: notes.progress(self.queue, [(lease, payload)]))

    def log(self, line: str) -> Awaitable[None]:
        """Append a line to the job's log; like `progress` in all else."""
        notes = self._notes("logs")
        return self._write(lambda lease: notes.log(self.queue, [(lease, line)]))

    def _check_percent(self, value: object) -> None:
        if type(value) is not int or not 0 <= value <= 100:
            raise InvalidInput(
                f"progress of job {self.id!r} in {self.queue!r}: {printable(value, 60)} is not a "
                "whole number from 0 to 100; give one, or make the Worker without strict_progress"
            )

    def _notes(self, what: str) -> Notes:
        storage = self._desk.storage
        if not isinstance(storage, Notes):
            raise UnsupportedFeature(f"{type(storage).__name__} keeps no {what} of jobs")
        return storage

    def _write(self, send: _Send) -> Awaitable[None]:
        desk = self._desk
        if threading.get_ident() == desk.thread:
            # A task of its own: a forgotten `await` still writes.
            task = desk.loop.create_task(self._send(send))
            task.add_done_callback(_retrieve)
            return task
        asyncio.run_coroutine_threadsafe(self._send(send), desk.loop).result()
        return _Written()

    async def _send(self, send: _Send) -> None:
        lease = self._claimed.lease
        answers = [LOST] if self.lost else await send(lease)
        if answers[0].kind is not AnswerKind.DONE:
            raise LeaseLost(
                f"job {self.id!r} in {self.queue!r}: attempt {lease.attempt} no longer owns it; "
                "stop working on it, or raise lease=",
                job_id=self.id,
            )


class _Written:
    """An awaitable for what is already done."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


def _retrieve(task: asyncio.Task[None]) -> None:
    """Mark the exception of an unawaited write as seen; the run itself learns of the loss."""
    if not task.cancelled():
        task.exception()


current_job: ContextVar[JobContext[object] | None] = ContextVar("toril_current_job", default=None)
"""The job that runs in this context, for log filters."""
