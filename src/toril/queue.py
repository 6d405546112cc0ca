"""The queue as its users hold it: hand in jobs, wait for results, look after them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Self,
    Unpack,
    cast,
)

from toril.adding import AddingQueue
from toril.clock import Clock, SystemClock, wait_future
from toril.engine.waiter import Waiter
from toril.errors import (
    InvalidOption,
    JobCancelled,
    JobFailed,
    JobNotFound,
    StorageError,
    TorilError,
    WaitTimeout,
)
from toril.hooks import HOOK_KINDS, H, Hook, HookKind
from toril.ids import check_name
from toril.intake import RESULT_TTL_S, CancelResult, OnFailed
from toril.job import In, JobStatus, Out, State
from toril.late import late, why_late
from toril.metrics import EnqueueMetrics
from toril.options import JobOptions, JobOverrides, WaitOverrides
from toril.retry import Seconds, to_ms, to_seconds
from toril.serde import MAX_BYTES, JsonSerde, Serde
from toril.storage import open_storage
from toril.storage.protocol import Ending, EndingKind, Feature, Storage
from toril.tend import known_id, to_time
from toril.text import printable, suggest

if TYPE_CHECKING:
    from toril.engine.execute import Handler
    from toril.worker import Worker
    from toril.worker_options import WorkerOverrides

_LAST_LOOK_S: Final = 1.0


class Queue(AddingQueue[In, Out]):
    """A named queue on a storage.

    `storage` is a URL, a `Storage`, or None for the environment's `TORIL_URL`, else for a Valkey
    server of this project's own, started when needed. The queue opens
    what it needs at first use; `async with` closes it again and runs the worker that `execute`
    set up. Several queues may share one `Storage`.
    """

    def __init__(
        self,
        name: str,
        storage: Storage | str | None = None,
        *,
        serde: Serde[In] | None = None,
        result_serde: Serde[Out] | None = None,
        defaults: JobOptions | None = None,
        clock: Clock | None = None,
        metrics: EnqueueMetrics | None = None,
    ) -> None:
        options = JobOptions() if defaults is None else defaults
        if not isinstance(options, JobOptions):
            raise InvalidOption(f"defaults={defaults!r}: give JobOptions(…)")
        if not isinstance(metrics, EnqueueMetrics | None):
            raise InvalidOption(
                f"metrics={printable(metrics, 60)}: give a collector that has jobs_enqueued(queue,"
                " name, count), such as PrometheusMetrics"
            )
        plain: JsonSerde[Any] = JsonSerde(max_bytes=max(options.size_limit, MAX_BYTES))
        super().__init__(
            check_name("queue", name),
            find_storage(storage),
            serde or plain,
            result_serde or plain,
            options,
        )
        self.clock: Clock = clock or getattr(self.storage, "clock", None) or SystemClock()
        for one in (self.serde, self.result_serde):
            if one.format != "json":
                self.require(Feature.ANY_SERDE, f"serde {one.format!r}")
        self.metrics = metrics
        """Counts what is handed in here; None counts nothing."""
        self.serving = "MODULE"
        """What `toril worker` would be given to serve this queue; an app knows better."""
        self._worker: Worker[In, Out] | None = None
        self._hooks: list[tuple[HookKind, Hook]] = []
        self._waiter = Waiter(self.storage, self.name, self.clock)

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} on {self.storage.url}>"

    @property
    def worker(self) -> Worker[In, Out] | None:
        """The worker that `execute` set up."""
        return self._worker

    # -- life ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the storage and start the worker that `execute` set up."""
        await self._open()
        if self._worker is not None:
            await self._worker.start()

    async def stop(self) -> None:
        """Stop the worker in order, then let the storage go."""
        try:
            if self._worker is not None:
                await self._worker.stop()
        finally:
            await self._waiter.close()
            await self._close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    # -- hand in ---------------------------------------------------------------------------

    async def enqueue_and_wait(
        self,
        id: str,
        data: In,
        *,
        timeout: Seconds | None = 30,
        job_timeout: Seconds | None = None,
        name: str = "job",
        on_failed: OnFailed = "requeue",
        **options: Unpack[WaitOverrides],
    ) -> Out:
        """Hand in a job by id and return its result, from the cache if it has run before.

        `timeout` bounds the wait, `job_timeout` the handler.
        Raises `JobFailed`, `JobCancelled`, or `WaitTimeout`; after the latter the job goes on.
        """
        limit = None if timeout is None else to_seconds("timeout", timeout)
        changes = cast("JobOverrides", options)
        if job_timeout is not None:
            changes = {**changes, "timeout": job_timeout}
        spec = self._enqueue_spec(id, data, name, on_failed, changes, reply=True)
        receipt = await self._hand_in(spec)
        return await self._await_result(receipt.id, limit)

    async def wait_until_finished(self, id: str, timeout: Seconds | None = 30) -> Out:
        """Wait for a job handed in before, and return its result.

        Raises as `enqueue_and_wait`, and `JobNotFound` for an unknown id.
        """
        limit = None if timeout is None else to_seconds("timeout", timeout)
        job_id = known_id(id)
        await self._open()
        return await self._await_result(job_id, limit)

    # -- results ---------------------------------------------------------------------------

    async def _await_result(self, job_id: str, limit_s: float | None) -> Out:
        ending = await self._waiter.wait(job_id, limit_s)
        if ending is None:
            ending = await self._look_again(job_id, limit_s or 0)
        return self._unwrap(ending)

    async def _look_again(self, job_id: str, limit_s: float) -> Ending:
        """Take a last look; a storage that is away must not make the wait much longer."""
        looking = asyncio.ensure_future(self._last_look(job_id, limit_s))
        try:
            if not await wait_future(self.clock, looking, _LAST_LOOK_S):
                away = f"{self.storage.url} does not answer"
                raise WaitTimeout(f"{late(job_id, limit_s)}: {away}", job_id=job_id)
        finally:
            looking.cancel()
        return looking.result()

    async def _last_look(self, job_id: str, limit_s: float) -> Ending:
        """Find the end that came with the time limit, or say why there is none."""
        try:
            endings = await self.storage.finished(self.name, [job_id], 0)
        except StorageError:
            endings = ()
        if not endings:
            why = await why_late(self.storage, self.name, job_id, self.serving)
            raise WaitTimeout(f"{late(job_id, limit_s)}: {why}", job_id=job_id)
        return endings[0]

    def _unwrap(self, ending: Ending) -> Out:
        job_id, failure = ending.id, ending.failure
        if ending.kind is EndingKind.COMPLETED:
            return cast("Out", self._result(ending.result))
        if ending.kind is EndingKind.CANCELLED:
            raise JobCancelled(f"job {job_id!r} was cancelled", job_id=job_id)
        if failure is None:
            raise JobNotFound(
                f"toril[E09] no result: job {job_id!r} is not in queue {self.name!r}: never"
                " added, removed, or past its result_ttl"
                f" ({RESULT_TTL_S:g} s for the reliable verbs, unless told otherwise)."
                " fix: fetch results sooner, or give the job a longer result_ttl=",
                job_id=job_id,
            )
        raise JobFailed(failure.told(job_id), job_id=job_id, original_error=failure)

    async def get_result(self, id: str, default: Out | None = None) -> Out | None:
        """Return the result of a completed job, `default` while there is none.

        A job that returned None has a result: None.
        """
        (record,) = await self._get([id])
        if record is None or record.state is not State.COMPLETED:
            return default
        return self._result(record.result)

    async def get_status(self, id: str) -> JobStatus[Out] | None:
        """Tell how a job is, None if it is unknown."""
        (record,) = await self._get([id])
        if record is None:
            return None
        return JobStatus(
            id=id,
            state=record.state,
            created_at=to_time(record.created_ms),
            attempts=record.attempts_made,
            result=self._result(record.result),
            error=record.failure,
        )

    async def update_result_ttl(self, id: str, ttl: Seconds | None) -> bool:
        """Keep a finished job for `ttl` from now (None: for good); False if it is not there."""
        keep_ms = None if ttl is None else to_ms(to_seconds("ttl", ttl, above=True))
        job_id = known_id(id)
        await self._open()
        (kept,) = await self.storage.keep(self.name, [job_id], keep_ms)
        return kept

    async def cancel(self, id: str, *, running: bool = False) -> CancelResult:
        """Take back a job that has not started; with `running`, ask the worker of one that has."""
        job_id = known_id(id)
        await self._open()
        (status,) = await self.storage.cancel(self.name, [job_id], running)
        return CancelResult(id=id, status=status)

    # -- work ------------------------------------------------------------------------------

    def execute(
        self,
        handler: Handler[In, Out] | Mapping[str, Handler[In, Out]],
        **options: Unpack[WorkerOverrides],
    ) -> Worker[In, Out]:
        """Set up the worker that `start` and `async with` run."""
        if self._worker is not None:
            raise TorilError(f"queue {self.name!r} has a worker already; make a Worker for more")
        from toril.worker import Worker  # those who only produce need none of it

        self._worker = Worker(self, handler, **options)
        for kind, hook in self._hooks:
            self._worker.hooks.on(kind, hook)
        return self._worker

    def on(self, kind: HookKind) -> Callable[[H], H]:
        """Decorate a callback for something that happens in this queue's own worker."""
        if kind not in HOOK_KINDS:
            raise InvalidOption(
                f"unknown hook {kind!r}.{suggest(str(kind), HOOK_KINDS)} "
                f"Known: {', '.join(HOOK_KINDS)}"
            )

        def register(hook: H) -> H:
            self._hooks.append((kind, hook))
            if self._worker is not None:
                self._worker.hooks.on(kind, hook)
            return hook

        return register


def find_storage(storage: Storage | str | None) -> Storage:
    """Give the storage of a URL, itself, or of `TORIL_URL`, else the embedded one."""
    if storage is None:
        storage = os.environ.get("TORIL_URL") or "embedded:"
    if isinstance(storage, str):
        return open_storage(storage)
    if not callable(getattr(storage, "enqueue", None)):
        raise InvalidOption(f"storage={printable(storage, 60)}: give a URL such as 'memory:'")
    return storage
