"""A rig for the BullMQ storage: a real server, scripts that are told the time, keys that age.

Delays are numbers that scripts compare with the time they are told. Leases, guards and limits
are keys with a TTL, which follow the server's own clock. So the rig moves both: it tells another
time, and takes as much off every TTL.
"""

from __future__ import annotations

import time
from typing import Any

from redis import Redis

from toril.clock import ManualClock
from toril.ids import ulid
from toril.outcome import Lease
from toril.resp.url import Address, parse_url
from toril.storage.bullmq import BullmqStorage
from toril.testing import lose_next_reply

JITTER_MS = 15


class BullmqRig:
    """Moves the time that the scripts are told, and the TTL of all keys with it."""

    def __init__(self, address: Address | str, *, batch: bool = True) -> None:
        self.clock = ManualClock()
        self.storage = BullmqStorage(address, clock=self.clock, batch=batch)
        self.storage.now_ms = self.clock.now_ms()
        self._pinned: dict[bytes, int] = {}
        self._pinned_at = time.monotonic()
        address = self.storage.address
        # Past the storage: the server must not be asked where the nodes are at every move.
        self._servers: list[Any] = [Redis(host, port) for host, port in address.hosts]
        self._pattern = f"{address.prefix}:*"

    def close(self) -> None:
        """Close the rig's own connections."""
        for server in self._servers:
            server.close()

    @classmethod
    def on(cls, url: str, *, batch: bool = True) -> BullmqRig:
        """Make a rig under a prefix of its own, so that it starts with nothing."""
        mark = "&" if "?" in url else "?"
        return cls(parse_url(f"bullmq+{url}{mark}prefix=t{ulid()}"), batch=batch)

    async def advance(self, ms: int) -> None:
        """Move the time and let blocked calls look again."""
        await self._settle()
        self._age(ms)
        self.storage.now_ms += ms
        await self.clock.advance(ms / 1000)
        self.storage.poke()
        await self.clock.settle(5)

    def hold(self) -> None:
        """Give TTLs back the real time that passed."""
        self._age(0)

    def _age(self, ms: int) -> None:
        for server in self._servers:
            keys = list(server.scan_iter(self._pattern, 10_000, "string"))
            lefts = [server.pttl(key) for key in keys]
            for key, left in zip(keys, lefts, strict=True):
                if left >= 0:
                    self._pinned[key] = left = self._true_left(key, left) - ms
                    _ = server.pexpire(key, left) if left > 0 else server.delete(key)
        self._pinned_at = time.monotonic()

    def _true_left(self, key: bytes, left: int) -> int:
        """What would be left of a TTL if no real time had passed; at most a little too short."""
        passed = (time.monotonic() - self._pinned_at) * 1000
        pinned = self._pinned.get(key)
        untouched = pinned is not None and abs(pinned - passed - left) < JITTER_MS
        return pinned if pinned is not None and untouched else left

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
