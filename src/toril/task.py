"""Typed functions that run as jobs: bound and checked where they are called."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Self, TypeVar, Unpack, cast

from toril.context import JobContext
from toril.drafts import Described
from toril.errors import InvalidOption, TorilWarning
from toril.ids import ulid
from toril.intake import NewJob, OnFailed
from toril.options import JobOptions, JobOverrides
from toril.signature import Signature
from toril.text import printable
from toril.whence import caller

if TYPE_CHECKING:
    from toril.app import Toril
    from toril.intake import CancelResult
    from toril.job import JobStatus
    from toril.queue import Queue
    from toril.retry import Seconds

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Q = TypeVar("Q")

_HABITS: Final = ("apply_async", "delay", "kiq", "s", "send", "si")


class CallOptions(JobOverrides, total=False):
    """The options of a call: those of a job, its id, and how long `call` waits."""

    id: str
    on_failed: OnFailed
    wait: Seconds | None


@dataclass(frozen=True, slots=True)
class TaskJob(Generic[R]):
    """A call that was handed in."""

    id: str
    duplicate: bool
    """Whether a job of that id was there already; then nothing was queued."""
    task: Task[..., R] = field(repr=False)

    async def result(self, timeout: Seconds | None = 30) -> R:
        """Wait for the task's result; raises as `Queue.wait_until_finished`."""
        found = await self.task.queue.wait_until_finished(self.id, timeout)
        return cast("R", self.task.signature.load_result(found))

    async def status(self) -> JobStatus[Any] | None:
        """Tell how the job is, None where it is gone."""
        return await self.task.queue.get_status(self.id)

    async def cancel(self, *, running: bool = False) -> CancelResult:
        """Take the job back, as `Queue.cancel`."""
        return await self.task.queue.cancel(self.id, running=running)


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """A call of a task whose arguments were checked, for `Task.enqueue_many`."""

    task: Task[..., R]
    data: Mapping[str, Any]


class Task(Generic[P, R]):
    """A typed function of an app: `await task.enqueue(…)` takes what the function takes."""

    def __init__(
        self,
        app: Toril,
        function: Callable[P, Any],
        name: str,
        queue: str,
        changes: JobOverrides,
    ) -> None:
        self.app = app
        self.function = function
        self.name = name
        self.queue_name = queue
        self.signature = Signature(function, name)
        self._changes = cast("CallOptions", changes)
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __repr__(self) -> str:
        return f"<Task {self.signature} on queue {self.queue_name!r}>"

    def __getattr__(self, name: str) -> Any:
        if name in _HABITS:
            raise AttributeError(
                f"toril[E07] Task has no .{name}(); in toril it is await {self.name}.enqueue(…),"
                f" for {self.signature}. fix: see 'toril explain E07' for the words of"
                " Celery, RQ, Dramatiq and taskiq"
            )
        raise AttributeError(f"Task has no attribute {name!r}")

    @property
    def queue(self) -> Queue[Any, Any]:
        """The queue its jobs go to."""
        return self.app.queue(self.queue_name)

    def options(self, **changes: Unpack[CallOptions]) -> Self:
        """Give the same task with other options: `task.options(delay=5).enqueue(…)`."""
        merged = cast("CallOptions", {**self._changes, **changes})
        jobs = {k: v for k, v in merged.items() if k not in ("id", "on_failed", "wait")}
        self.app.defaults.override(jobs)
        twin = copy.copy(self)  # shares the signature, which is costly to make
        twin._changes = merged
        return twin

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, TaskJob[R]]:
        """Hand the call in as a job; arguments are checked here, not in the worker."""
        data = self.signature.dump(args, kwargs)
        return _Awaited(self._enqueue(data), f"{self.name}.enqueue(…)")

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Hand the call in and wait for its result; 30 s, or what `options(wait=…)` says."""
        data = self.signature.dump(args, kwargs)
        return _Awaited(self._call(data), f"{self.name}.call(…)")

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Check a call and keep it, with the options it has here, for `enqueue_many`."""
        return Call(self, self.signature.dump(args, kwargs))

    def enqueue_many(self, calls: Iterable[Call[R]]) -> Coroutine[Any, Any, Sequence[TaskJob[R]]]:
        """Hand in many calls with as few messages as possible; not a transaction.

        `await resize.enqueue_many(resize.bind(path, width=200) for path in paths)`. Options and
        ids of their own: `resize.options(id=path).bind(path)`.
        """
        many = self._check_calls(calls)
        kinds = {call.task._changes.get("on_failed", "requeue") for call in many}
        if len(kinds) > 1:
            given = " and ".join(sorted(map(repr, kinds)))
            raise InvalidOption(
                f"{self.name}.enqueue_many(…) got calls with on_failed={given}; hand them in apart"
            )
        on_failed = kinds.pop() if kinds else "requeue"
        return _Awaited(self._enqueue_many(many, on_failed), f"{self.name}.enqueue_many(…)")

    def _check_calls(self, calls: Iterable[Call[R]]) -> list[Call[R]]:
        if not isinstance(calls, Iterable):
            raise InvalidOption(f"calls={printable(calls, 60)}: give a list of {self.name}.bind(…)")
        many = list(calls)
        for number, call in enumerate(many):
            if not isinstance(call, Call) or call.task.signature is not self.signature:
                raise InvalidOption(
                    f"calls[{number}]={printable(call, 60)}: give {self.name}.bind(…), a call of"
                    " this task; each task hands in its own"
                )
        return many

    async def _enqueue_many(
        self, many: Sequence[Call[R]], on_failed: OnFailed
    ) -> Sequence[TaskJob[R]]:
        queue, jobs = self.queue, list[NewJob[Any]]()
        last: JobOverrides = {}
        options: JobOptions | None = None
        for call in many:
            changes, job_id, _, _ = call.task._chosen()
            if changes != last:
                last = changes
                options = queue.defaults.override(cast("Mapping[str, object]", changes))
            chosen = options if changes else None
            jobs.append(NewJob(name=self.name, data=call.data, id=job_id, options=chosen))
        found = await queue.enqueue_many(jobs, on_failed=on_failed)

        def describe(number: int) -> TaskJob[R]:
            one = found[number]
            return TaskJob(one.id, one.status != "queued", many[number].task)

        return Described(len(found), describe)

    async def _enqueue(self, data: dict[str, Any]) -> TaskJob[R]:
        changes, given, on_failed, _ = self._chosen()
        job_id = ulid() if given is None else given
        found = await self.queue.enqueue(
            job_id, data, name=self.name, on_failed=on_failed, **changes
        )
        return TaskJob(found.id, found.status != "queued", self)

    async def _call(self, data: dict[str, Any]) -> R:
        changes, given, on_failed, wait = self._chosen()
        job_id = ulid() if given is None else given
        limit = changes.pop("timeout", None)
        found = await self.queue.enqueue_and_wait(
            job_id,
            data,
            name=self.name,
            on_failed=on_failed,
            timeout=wait,
            job_timeout=limit,
            **changes,  # type: ignore[misc]  # without `timeout`, which was taken out
        )
        return cast("R", self.signature.load_result(found))

    def _chosen(self) -> tuple[JobOverrides, str | None, OnFailed, Seconds | None]:
        chosen: dict[str, Any] = {**self._changes}
        job_id = chosen.pop("id", None)
        on_failed, wait = chosen.pop("on_failed", "requeue"), chosen.pop("wait", 30)
        return cast("JobOverrides", chosen), job_id, on_failed, wait

    def handler(self) -> Callable[[JobContext[Any]], Any]:
        """Give what a worker runs for this task's jobs."""
        function, signature = self.function, self.signature
        if inspect.iscoroutinefunction(function):

            async def run(job: JobContext[Any]) -> Any:
                bound = signature.load(job.data, job.id)
                return signature.dump_result(await function(*bound.args, **bound.kwargs))

            return run

        def run_plain(job: JobContext[Any]) -> Any:
            bound = signature.load(job.data, job.id)
            return signature.dump_result(function(*bound.args, **bound.kwargs))

        return run_plain


class PlainTask(Task[P, R]):
    """A task made of a plain function; calling it calls the function, here and now."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast("R", self.function(*args, **kwargs))


class AsyncTask(Task[P, R]):
    """A task made of an `async def`; calling it calls the function, here and now."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        return cast("Coroutine[Any, Any, R]", self.function(*args, **kwargs))


class _Awaited(Coroutine[Any, Any, T]):
    """A coroutine that says so, in words and with its place, when it was forgotten."""

    def __init__(self, inner: Coroutine[Any, Any, T], what: str) -> None:
        self._inner = inner
        self._what = what
        self._place = caller()
        self._begun = False

    def send(self, value: Any, /) -> Any:
        self._begun = True
        return self._inner.send(value)

    def throw(self, error: Any, value: Any = None, trace: Any = None, /) -> Any:
        self._begun = True
        return self._inner.throw(error if value is None else value)

    def close(self) -> None:
        self._begun = True
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, T]:
        self._begun = True
        return self._inner.__await__()

    def __del__(self) -> None:
        if not self._begun:
            self._inner.close()
            warnings.warn(
                f"toril[E06] {self._what} at {self._place} was never awaited, so nothing was"
                " queued. fix: await it, or use SyncQueue outside async code",
                TorilWarning,
                stacklevel=2,
            )
