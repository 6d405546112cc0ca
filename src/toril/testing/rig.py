"""Drive a storage through time, crashes and lost replies without ever sleeping."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from toril.clock import ManualClock
from toril.errors import StorageUnavailable
from toril.outcome import Lease
from toril.storage.memory import MemoryStorage
from toril.storage.protocol import Storage


class Rig(Protocol):
    """What the checks need besides the storage itself; write one for yours."""

    @property
    def storage(self) -> Storage:
        """An open storage that holds nothing."""
        ...

    async def advance(self, ms: int) -> None:
        """Let that much of the storage's time pass."""
        ...

    async def lapse(self, queue: str, lease: Lease) -> None:
        """Let time pass until the lease, unless renewed, is over."""
        ...

    async def crash(self, worker_id: str) -> None:
        """Let a worker's process die: it says nothing more, its connections break."""
        ...

    def lose_reply(self, verb: str) -> None:
        """Let the next call of the verb take effect and then raise `StorageUnavailable`."""
        ...


def lose_next_reply(storage: object, verb: str) -> None:
    """Break the answer, not the effect, of a storage's next call of `verb`."""
    call: Callable[..., Awaitable[object]] = getattr(storage, verb)

    async def call_and_lose(*args: object, **kwargs: object) -> object:
        delattr(storage, verb)  # the class's own method shows again
        await call(*args, **kwargs)
        raise StorageUnavailable(f"the reply to {verb} was lost on purpose")

    setattr(storage, verb, call_and_lose)


class MemoryRig:
    """A memory storage on a manual clock."""

    def __init__(self, storage: MemoryStorage, clock: ManualClock) -> None:
        self.storage = storage
        self.clock = clock

    async def advance(self, ms: int) -> None:
        """Move the clock."""
        await self.clock.advance(ms / 1000)

    async def lapse(self, queue: str, lease: Lease) -> None:
        """Move the clock past the end of the lease."""
        until = self.storage.leased_until_ms(queue, lease)
        if until is not None:
            await self.advance(max(0, until - self.clock.now_ms()) + 1)

    async def crash(self, worker_id: str) -> None:
        """Do nothing: a dead worker of this storage is one that no longer calls."""

    def lose_reply(self, verb: str) -> None:
        """Break the answer of the next call."""
        lose_next_reply(self.storage, verb)
