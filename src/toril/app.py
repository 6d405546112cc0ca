"""An app: typed tasks, the queues they go to, and the workers that run them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, cast, overload

from toril.errors import InvalidOption, TorilError
from toril.ids import check_name
from toril.metrics import EnqueueMetrics
from toril.options import JobOptions, JobOverrides
from toril.queue import Queue, find_storage
from toril.task import AsyncTask, P, PlainTask, R, Task
from toril.text import printable, suggest

if TYPE_CHECKING:
    from toril.metrics import MetricsCollector
    from toril.storage.protocol import Storage
    from toril.worker import Worker
    from toril.worker_options import WorkerOverrides


class Toril:
    """Holds tasks. `queue` is where they go unless they say otherwise.

    `storage` as for `Queue`; nothing is opened before it is used, and `async with` (or `close`)
    lets it go again. `metrics` collects for its queues and workers.
    """

    def __init__(
        self,
        queue: str = "default",
        storage: Storage | str | None = None,
        *,
        defaults: JobOptions | None = None,
        metrics: MetricsCollector | None = None,
    ) -> None:
        self.default_queue = check_name("queue", queue)
        self.defaults = JobOptions() if defaults is None else defaults
        self.metrics = metrics
        self._asked = storage
        self._storage: Storage | None = None
        self._queues: dict[str, Queue[Any, Any]] = {}
        self._tasks: dict[str, Task[..., Any]] = {}

    def __repr__(self) -> str:
        return f"<Toril app: {len(self._tasks)} tasks on {', '.join(self.queue_names)}>"

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """The tasks by name."""
        return MappingProxyType(self._tasks)

    @property
    def queue_names(self) -> tuple[str, ...]:
        """The queues its tasks go to."""
        return tuple(dict.fromkeys(task.queue_name for task in self._tasks.values())) or (
            self.default_queue,
        )

    @property
    def storage(self) -> Storage:
        """The storage all its queues share."""
        if self._storage is None:
            self._storage = find_storage(self._asked)
        return self._storage

    def use(self, storage: Storage | str) -> None:
        """Take another storage than the one it was made with; before its first use only."""
        if self._storage is not None:
            raise TorilError(f"{self!r} uses {self._storage.url} already; call use() before")
        self._asked = storage

    def measure(self, metrics: MetricsCollector) -> None:
        """Take a collector, for what is handed in from now on and for workers made later."""
        self.metrics = metrics
        for queue in self._queues.values():
            queue.metrics = self._enqueue_metrics

    def queue(self, name: str | None = None) -> Queue[Any, Any]:
        """Give one of its queues, on the shared storage."""
        chosen = self.default_queue if name is None else name
        if chosen not in self._queues:
            made: Queue[Any, Any] = Queue(
                chosen, self.storage, defaults=self.defaults, metrics=self._enqueue_metrics
            )
            made.serving = self._module() or made.serving
            self._queues[chosen] = made
        return self._queues[chosen]

    @property
    def _enqueue_metrics(self) -> EnqueueMetrics | None:
        return self.metrics if isinstance(self.metrics, EnqueueMetrics) else None

    def _module(self) -> str:
        """The module its first task was defined in, as a command would name it."""
        name: str = next((one.function.__module__ for one in self._tasks.values()), "")
        if name != "__main__":
            return name
        return Path(getattr(sys.modules[name], "__file__", None) or "").stem

    # -- tasks -----------------------------------------------------------------------------

    @overload
    def task(  # type: ignore[overload-overlap]  # an async function gives a coroutine, too
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...
    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        **options: Unpack[JobOverrides],
    ) -> _Decorator: ...
    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        **options: Unpack[JobOverrides],
    ) -> Any:
        """Make a function a task: `@app.task` or `@app.task(attempts=3)`."""
        decorate = _Decorator(self, name, queue, options)
        return decorate if function is None else decorate(function)

    def add(self, task: Task[..., Any]) -> None:
        """Take a task in; its name must be new."""
        if task.name in self._tasks:
            raise InvalidOption(
                f"task '{task.name}' is defined twice; give one of them another name:"
                " @app.task(name=…)"
            )
        self._tasks[task.name] = task

    # -- work ------------------------------------------------------------------------------

    def worker(
        self, queue: str | None = None, **options: Unpack[WorkerOverrides]
    ) -> Worker[Any, Any]:
        """Make a worker for the tasks of one queue."""
        from toril.worker import Worker  # those who only produce need none of it

        name = self.default_queue if queue is None else queue
        handlers = {
            task.name: task.handler() for task in self._tasks.values() if task.queue_name == name
        }
        if not handlers:
            known = self.queue_names
            raise InvalidOption(
                f"no task goes to queue '{printable(name, 60)}'.{suggest(name, known)}"
                f" Queues with tasks: {', '.join(known)}"
            )
        if self.metrics is not None:
            options.setdefault("metrics", self.metrics)
        return Worker(self.queue(name), handlers, **options)

    async def close(self) -> None:
        """Let the queues go."""
        for queue in self._queues.values():
            await queue.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class _Decorator:
    """What `@app.task(…)` gives."""

    def __init__(
        self, app: Toril, name: str | None, queue: str | None, options: JobOverrides
    ) -> None:
        self._app = app
        self._name = name
        self._queue = app.default_queue if queue is None else check_name("queue", queue)
        app.defaults.override(cast("Mapping[str, object]", options))
        self._options = options

    @overload
    def __call__(  # type: ignore[overload-overlap]  # as above
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        if not callable(function) or isinstance(function, Task):
            raise InvalidOption(f"@app.task: {printable(function, 60)} is not a function")
        name = check_name("handler", self._name or function.__name__)
        kind = AsyncTask if inspect.iscoroutinefunction(function) else PlainTask
        made: Task[..., Any] = kind(self._app, function, name, self._queue, self._options)
        self._app.add(made)
        return made
