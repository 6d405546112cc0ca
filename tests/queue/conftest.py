"""Give each test a storage on a clock that is moved by hand, queues on it, and their end.

A storage joins the suite with a line in `STORAGES`; tests that need a particular storage make
their own.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Protocol, TypeAlias

import pytest

from toril import JobContext, ManualClock, MemoryStorage, Queue, State, Storage, Worker
from toril.storage.protocol import Claim, Claimed

AnyQueue: TypeAlias = Queue[Any, Any]
Context: TypeAlias = JobContext[Any]

STORAGES: dict[str, Callable[[ManualClock], Storage]] = {
    "memory": lambda clock: MemoryStorage(clock=clock),
}


class MakeQueue(Protocol):
    """Make a queue that is stopped at the end of the test."""

    def __call__(
        self, name: str = "emails", on: Storage | str | None = None, **options: Any
    ) -> AnyQueue: ...


class Work(Protocol):
    """Start a worker that is stopped at the end of the test, handing back what still runs."""

    async def __call__(self, queue: AnyQueue, handler: Any, **options: Any) -> Worker[Any, Any]: ...


class Gate:
    """A handler that says which jobs it began, and returns their data once it is opened."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.jobs: list[Context] = []
        self.opened = asyncio.Event()
        self._news = asyncio.Condition()

    async def __call__(self, job: Context) -> Any:
        self.jobs.append(job)
        async with self._news:
            self.begun.append(job.id)
            self._news.notify_all()
        await self.opened.wait()
        return job.data

    async def running(self, count: int = 1) -> None:
        """Wait until so many jobs have begun."""
        async with self._news:
            await self._news.wait_for(lambda: len(self.begun) >= count)


class RecordingStorage(MemoryStorage):
    """A memory storage that writes down which verbs are called."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.calls: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if not inspect.iscoroutinefunction(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            return value(*args, **kwargs)

        return call


async def echo(job: Context) -> Any:
    """Return the data."""
    return job.data


async def fail(job: Context) -> Any:
    """Raise, for good only when the attempts are used up."""
    raise RuntimeError(f"no {job.data}")


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    """Let the loop turn until something holds; the test's time limit ends it if it never does."""
    while not await holds():  # noqa: ASYNC110 - what holds may be a storage's answer
        await asyncio.sleep(0)


async def state_is(queue: AnyQueue, job_id: str, state: State) -> bool:
    """Tell whether a job is in a state."""
    status = await queue.get_status(job_id)
    return status is not None and status.state is state


async def claim_one(storage: Storage, queue: str = "emails", lease_ms: int = 30_000) -> Claimed:
    """Take a job as a worker would that is never heard of again."""
    claim = Claim(token="dead-token", worker_id="dead-worker", count=1, lease_ms=lease_ms)
    (claimed,) = (await storage.claim(queue, claim)).jobs
    return claimed


@pytest.fixture
def clock() -> ManualClock:
    """The time of queue and storage; it stands still until it is moved."""
    return ManualClock()


@pytest.fixture(params=list(STORAGES))
async def storage(request: pytest.FixtureRequest, clock: ManualClock) -> AsyncIterator[Storage]:
    """An open storage that holds nothing."""
    opened = STORAGES[request.param](clock)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def closing() -> AsyncIterator[AsyncExitStack]:
    """What is closed when the test is over, last first."""
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def make_queue(storage: Storage, clock: ManualClock, closing: AsyncExitStack) -> MakeQueue:
    """A factory for queues on the storage."""

    def make(name: str = "emails", on: Storage | str | None = None, **options: Any) -> AnyQueue:
        options.setdefault("clock", clock)
        queue: AnyQueue = Queue(name, storage if on is None else on, **options)
        closing.push_async_callback(queue.stop)
        return queue

    return make


@pytest.fixture
def queue(make_queue: MakeQueue) -> AnyQueue:
    """A queue nobody works on yet."""
    return make_queue()


@pytest.fixture
def work(closing: AsyncExitStack) -> Work:
    """A factory for running workers."""

    async def start(queue: AnyQueue, handler: Any, **options: Any) -> Worker[Any, Any]:
        worker: Worker[Any, Any] = Worker(queue, handler, **options)
        await worker.start()
        closing.push_async_callback(worker.stop, 0)
        return worker

    return start


@pytest.fixture
def recording(clock: ManualClock) -> RecordingStorage:
    """A storage that knows whether it was asked anything."""
    return RecordingStorage(clock)
