"""The queue for code that does not await: scripts, web views, Spark executors.

Each `SyncQueue` keeps an ordinary `Queue` on an event loop of its own, in a thread of its own;
every verb is sent there and its answer waited for.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar

from toril.clock import Clock
from toril.errors import EventsTrimmed, StorageClosed, TorilError
from toril.event import Cursor, Event
from toril.job import In, Out
from toril.metrics import EnqueueMetrics
from toril.options import JobOptions
from toril.queue import Queue
from toril.retry import Seconds, to_ms, to_seconds
from toril.serde import Serde
from toril.storage.memory import MemoryStorage
from toril.storage.protocol import Storage

P = ParamSpec("P")
T = TypeVar("T")

_EVENTS_BLOCK_S: Final = 5.0


class _Home(Generic[In, Out]):
    """One queue with the thread and the event loop it lives on.

    Nothing here refers to the `SyncQueue`, so that a forgotten one can be collected.
    """

    def __init__(self, queue: Queue[In, Out]) -> None:
        self.queue = queue
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._calls: set[Future[Any]] = set()
        self._closed = False
        self._trouble: BaseException | None = None

    @property
    def begun(self) -> bool:
        """Whether it was ever used."""
        return self._loop is not None

    def call(self, verb: Callable[[Queue[In, Out]], Coroutine[Any, Any, T]]) -> T:
        """Run a verb on the loop and wait; when the wait is interrupted, call it off."""
        future: Future[T] | None = None
        try:  # around the submission too: an interrupt may come right after it
            with self._guard:
                if self._closed:
                    raise self._closed_error()
                future = asyncio.run_coroutine_threadsafe(self._run(verb), self._running_loop())
                self._calls.add(future)
            future.add_done_callback(self._calls.discard)
            return future.result()
        except CancelledError:
            raise self._closed_error() from None
        except BaseException:
            if future is not None:
                future.cancel()
            raise

    def close(self) -> None:
        """Stop the queue and end the thread; raise what went wrong meanwhile."""
        with self._guard:
            self.let_go()
        if self._thread is not None:
            self._thread.join()
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble

    def let_go(self) -> None:
        """Have the thread end by itself; takes no lock, so a finalizer may call it."""
        self._closed = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._stop.set)

    def _closed_error(self) -> StorageClosed:
        return StorageClosed(f"queue {self.queue.name!r} was closed; make another SyncQueue")

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        if self._thread is None:
            name = f"toril-sync-{self.queue.name}"
            self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        if self._thread.ident is None:  # new, or a start that was interrupted
            self._thread.start()
        return self._loop

    def _serve(self) -> None:
        loop = self._loop
        assert loop is not None
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(self._live())
        except BaseException as error:
            self._trouble = error
        finally:
            with self._guard:
                self._closed = True
            for late in tuple(self._calls):  # or whoever waits for it would wait for ever
                late.cancel()

    async def _live(self) -> None:
        await self._stop.wait()
        # First the calls: one that goes on would open the storage again.
        while tasks := tuple(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        await self.queue.stop()

    async def _run(self, verb: Callable[[Queue[In, Out]], Coroutine[Any, Any, T]]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            return await verb(self.queue)
        finally:
            self._tasks.discard(task)


def _blocking(
    verb: Callable[Concatenate[Queue[In, Out], P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncQueue[In, Out], P], T]:
    """Make the blocking twin of a queue's verb, with its parameters and its docstring."""

    @functools.wraps(verb)
    def call(self: SyncQueue[In, Out], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(call.__name__, lambda queue: verb(queue, *args, **kwargs))

    return call


class SyncQueue(Generic[In, Out]):
    """A named queue on a storage with blocking verbs, which take and return what `Queue`'s do.

    Threads may share it. Its own thread starts at the first call and ends with `close` or
    `with`; at the end of the process it is simply gone, as after a kill. Jobs are worked
    elsewhere, by a `Worker`.

    After a fork the child connects anew, if the storage is named by a URL. Give a URL also
    because a storage other than memory belongs to one event loop: this queue's own.
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
        def make() -> Queue[In, Out]:
            return Queue(
                name,
                storage,
                serde=serde,
                result_serde=result_serde,
                defaults=defaults,
                clock=clock,
                metrics=metrics,
            )

        queue = make()
        self.name = queue.name
        self.url = queue.storage.url
        self._make = make
        self._portable = not isinstance(queue.storage, MemoryStorage) and (
            storage is None or isinstance(storage, str)
        )
        # By process: a child must not touch its parent's, they share connections.
        self._homes: dict[int, _Home[In, Out]] = {}
        self._move_in(_Home(queue))

    def __repr__(self) -> str:
        return f"<SyncQueue {self.name!r} on {self.url}>"

    # -- life ------------------------------------------------------------------------------

    def close(self) -> None:
        """Let the storage go and end the thread; calls under way raise `StorageClosed`."""
        _refuse_loop("close")
        home = self._homes.get(os.getpid())
        if home is not None:  # a forked child may have had no use for it
            home.close()

    def __enter__(self) -> Self:
        self._call("__enter__", lambda queue: queue.start())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _call(self, name: str, verb: Callable[[Queue[In, Out]], Coroutine[Any, Any, T]]) -> T:
        _refuse_loop(name)
        home = self._homes.get(os.getpid()) or self._move_in(self._home_after_fork())
        return home.call(verb)

    def _move_in(self, home: _Home[In, Out]) -> _Home[In, Out]:
        first = self._homes.setdefault(os.getpid(), home)
        if first is home:
            # Not at exit: nothing can be awaited then.
            weakref.finalize(self, _forget, os.getpid(), home).atexit = False
        return first

    def _home_after_fork(self) -> _Home[In, Out]:
        parents = next(reversed(self._homes.values()))
        if not parents.begun:
            return _Home(parents.queue)
        if not self._portable:
            raise TorilError(
                f"queue {self.name!r} on {self.url} was in use when this process was forked, and "
                "its storage cannot be shared; make a SyncQueue in each process, by URL"
            )
        return _Home(self._make())

    # -- hand in ---------------------------------------------------------------------------

    enqueue = _blocking(Queue.enqueue)
    enqueue_and_wait = _blocking(Queue.enqueue_and_wait)
    enqueue_many = _blocking(Queue.enqueue_many)
    add = _blocking(Queue.add)
    add_many = _blocking(Queue.add_many)
    add_bulk = _blocking(Queue.add_bulk)
    wait_until_finished = _blocking(Queue.wait_until_finished)
    cancel = _blocking(Queue.cancel)

    # -- look ------------------------------------------------------------------------------

    get_result = _blocking(Queue.get_result)
    get_status = _blocking(Queue.get_status)
    update_result_ttl = _blocking(Queue.update_result_ttl)
    get_job = _blocking(Queue.get_job)
    get_jobs = _blocking(Queue.get_jobs)
    get_job_counts = _blocking(Queue.get_job_counts)
    get_workers = _blocking(Queue.get_workers)
    logs = _blocking(Queue.logs)

    def events(
        self,
        after: Cursor | None = None,
        *,
        skip_trimmed: bool = False,
        timeout: Seconds | None = None,
    ) -> Iterator[Event]:
        """Follow what happens, from this call on or after a cursor.

        Ends when nothing has happened for `timeout`, without it never. Raises
        `EventsTrimmed` when events were dropped before they could be read, unless
        `skip_trimmed`.
        """
        limit = None if timeout is None else to_seconds("timeout", timeout)
        place = self._call("events", _newest) if after is None else after

        def follow(place: Cursor) -> Iterator[Event]:
            read = functools.partial(_page, skip_trimmed=skip_trimmed, limit=limit)
            while page := self._call("events", functools.partial(read, after=place)):
                yield from page
                place = page[-1].cursor

        return follow(place)

    # -- tend ------------------------------------------------------------------------------

    pause = _blocking(Queue.pause)
    resume = _blocking(Queue.resume)
    is_paused = _blocking(Queue.is_paused)
    remove_job = _blocking(Queue.remove_job)
    clean = _blocking(Queue.clean)
    drain = _blocking(Queue.drain)
    obliterate = _blocking(Queue.obliterate)
    retry_jobs = _blocking(Queue.retry_jobs)
    promote_jobs = _blocking(Queue.promote_jobs)
    promote = _blocking(Queue.promote)
    retry_job = _blocking(Queue.retry_job)
    change_priority = _blocking(Queue.change_priority)
    change_delay = _blocking(Queue.change_delay)
    update_data = _blocking(Queue.update_data)
    tune = _blocking(Queue.tune)


def _refuse_loop(name: str) -> None:
    """Refuse to block an event loop, and with it perhaps the worker that is waited for."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise TorilError(
        f"SyncQueue.{name}: an event loop runs in this thread and would be blocked; "
        "use Queue with await"
    )


def _forget(pid: int, home: _Home[Any, Any]) -> None:
    if pid == os.getpid():
        home.let_go()


async def _newest(queue: Queue[In, Out]) -> Cursor:
    await queue.start()
    return await queue.storage.cursor(queue.name)


async def _page(
    queue: Queue[In, Out], *, after: Cursor, skip_trimmed: bool, limit: float | None
) -> Sequence[Event]:
    """Read the next events; none if nothing happens for `limit`."""
    await queue.start()
    now = queue.clock.monotonic
    end = None if limit is None else now() + limit
    while True:
        left = _EVENTS_BLOCK_S if end is None else max(0.0, end - now())
        block_ms = to_ms(min(left, _EVENTS_BLOCK_S))
        try:
            events = await queue.storage.events(queue.name, after, block_ms=block_ms)
        except EventsTrimmed as gap:
            if not skip_trimmed:
                raise
            after = gap.resume
            continue
        if events or not left:
            return events
