"""A rig for the lean layout: a real server, and scripts that are told the time."""

from __future__ import annotations

from toril.clock import ManualClock
from toril.ids import ulid
from toril.outcome import Lease
from toril.resp.url import Address, parse_url
from toril.storage.redis import RedisStorage
from toril.testing import lose_next_reply


class RedisRig:
    """Moves the time that the scripts are told."""

    def __init__(self, address: Address | str) -> None:
        self.clock = ManualClock()
        self.storage = RedisStorage(address, clock=self.clock)
        self.storage.now_ms = self.clock.now_ms()

    @classmethod
    def on(cls, url: str) -> RedisRig:
        """Make a rig under a prefix of its own, so that it starts with nothing."""
        mark = "&" if "?" in url else "?"
        return cls(parse_url(f"{url}{mark}prefix=t{ulid()}"))

    async def advance(self, ms: int) -> None:
        """Move the time and let blocked calls look again."""
        await self._settle()
        self.storage.now_ms += ms
        await self.clock.advance(ms / 1000)
        self.storage.poke()
        await self.clock.settle(5)

    async def _settle(self) -> None:
        """Let calls under way get to where they block: their commands are answered before ours."""
        for _ in range(3):
            await self.storage.cursor("nothing")
            await self.clock.settle(5)

    async def lapse(self, queue: str, lease: Lease) -> None:
        """Move past the end of the lease."""
        left = await self.storage.lease_left_ms(queue, lease)
        if left is not None:
            await self.advance(max(0, left) + 1)

    async def crash(self, worker_id: str) -> None:
        """Do nothing: a dead worker is one that no longer calls."""

    def lose_reply(self, verb: str) -> None:
        """Break the answer of the next call."""
        lose_next_reply(self.storage, verb)
