"""A queue with Node on one side and toril on the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from tests.bullmq.peer import NEXT, Agent, NodeQueue
from tests.bullmq.sides import Lab
from toril import JobContext, Queue
from toril.storage import open_storage
from toril.storage.protocol import Batch, Claim, Rate

LIMIT_S: Final = 30.0

Handle = Callable[[JobContext[Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a toril handler."""

    id: str
    name: str
    data: Any
    attempt: int


class Recorder:
    """A handler that remembers its runs; it does what `handle` does."""

    def __init__(self, handle: Handle | None = None) -> None:
        self._handle = handle
        self._changed = asyncio.Event()
        self.runs: list[Run] = []
        self.ended = 0

    async def __call__(self, job: JobContext[Any]) -> Any:
        self.runs.append(Run(job.id, job.name, job.data, job.attempt))
        self._changed.set()
        try:
            return job.data if self._handle is None else await self._handle(job)
        finally:
            self.ended += 1
            self._changed.set()

    @property
    def ids(self) -> list[str]:
        """Which jobs ran, in order."""
        return [run.id for run in self.runs]

    async def ran(self, count: int) -> list[Run]:
        """Wait until that many runs have ended."""
        async with asyncio.timeout(LIMIT_S):
            while self.ended < count:
                self._changed.clear()
                await self._changed.wait()
        return self.runs

    async def started(self, count: int) -> list[Run]:
        """Wait until that many runs have begun."""
        async with asyncio.timeout(LIMIT_S):
            while len(self.runs) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.runs


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again until something is true."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            if await true():
                return
            await asyncio.sleep(0.01)


class Pair:
    """One queue and both its clients; `node` is 5.62.0, `next` is 6.x."""

    def __init__(self, agent: Agent, port: int, name: str) -> None:
        self.name = name
        self.url = f"bullmq+redis://127.0.0.1:{port}"
        self.storage = open_storage(self.url)
        self.queue: Queue[Any, Any] = Queue(name, self.storage)
        self.lab = Lab(agent, port, name)
        self.node = self.lab.node
        self.next = NodeQueue(agent, self.lab.queue, NEXT)

    def other(self, name: str) -> Queue[Any, Any]:
        """Another toril queue on the same storage."""
        return Queue(name, self.storage)

    async def claim(self, rate: Rate | None = None) -> Batch:
        """Claim one job by hand."""
        claim = Claim(token=str(uuid4()), worker_id="by-hand", count=1, lease_ms=30_000, rate=rate)
        return await self.storage.claim(self.name, claim)

    async def counted(self, state: str, count: int) -> None:
        """Wait until so many jobs are in a state."""

        async def there() -> bool:
            return (await self.node.counts())[state] == count

        await until(there)

    async def close(self) -> None:
        """Let everything go."""
        await self.queue.stop()
        self.lab.close()
