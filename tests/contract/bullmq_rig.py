"""A rig for the BullMQ storage: a real server, scripts that are told the time, keys that age.

Delays are numbers that scripts compare with the time they are told. Leases, guards and limits
are keys with a TTL, which follow the server's own clock. So the rig moves both: it tells another
time, and takes as much off every TTL.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from redis import Redis

from toril.clock import ManualClock
from toril.ids import ulid
from toril.outcome import Lease
from toril.resp.url import Address, Host, parse_url
from toril.storage.bullmq import BullmqStorage
from toril.storage.bullmq.keys import keys_of
from toril.testing import lose_next_reply

_SPARE_MS: Final = 3_600_000
"""What locks get beyond their time, so that none lapses while a step of a test takes long."""


class Pin(NamedTuple):
    """The TTL a key was given, its value then, and when that was."""

    left: int
    value: bytes | None
    at: float


class BullmqRig:
    """Moves the time that the scripts are told, and the TTL of all keys with it."""

    def __init__(
        self, address: Address | str, *, batch: bool = True, hosts: Sequence[Host] | None = None
    ) -> None:
        self.clock = ManualClock()
        self.storage = BullmqStorage(address, clock=self.clock, batch=batch)
        self.storage.now_ms = self.clock.now_ms()
        self._pinned: dict[bytes, Pin] = {}
        self._address = address = self.storage.address
        # Past the storage: the server must not be asked where the nodes are at every move.
        self._servers: list[Any] = [Redis(host, port) for host, port in hosts or address.hosts]
        self._pattern = f"{address.prefix}:*"

    def close(self) -> None:
        """Close the rig's own connections."""
        for server in self._servers:
            server.close()

    @classmethod
    def on(cls, url: str, *, batch: bool = True, hosts: Sequence[Host] | None = None) -> BullmqRig:
        """Make a rig under a prefix of its own, so that it starts with nothing.

        `hosts` are the servers without TLS or sentinels before them, if the URL names others.
        """
        mark = "&" if "?" in url else "?"
        return cls(parse_url(f"bullmq+{url}{mark}prefix=t{ulid()}"), batch=batch, hosts=hosts)

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
            asked = time.monotonic()
            with server.pipeline(transaction=False) as look, server.pipeline(False) as change:
                for key in keys:
                    look.pttl(key).get(key)
                found = look.execute()
                lefts: dict[bytes, tuple[int, bytes | None]] = {}
                for key, left, value in zip(keys, found[::2], found[1::2], strict=True):
                    if left >= 0:
                        left = self._true_left(key, left, value, asked) - ms
                        lefts[key] = left, value
                        spare = _SPARE_MS if _is_lock(key) else 0
                        _ = change.pexpire(key, left + spare) if left > 0 else change.delete(key)
                change.execute()
            now = time.monotonic()
            self._pinned |= {key: Pin(*one, now) for key, one in lefts.items()}

    def _true_left(self, key: bytes, left: int, value: bytes | None, asked: float) -> int:
        """What would be left of a TTL if no real time had passed; at most a little too short.

        A key that nobody touched has at most what it was given, less the time since then; a lock
        that nobody renewed has its spare time.
        """
        pin = self._pinned.get(key)
        if pin is not None and _is_lock(key):
            return pin.left if left > _SPARE_MS / 2 else left
        if pin is None or pin.value != value:
            return left
        untouched = left <= pin.left - (asked - pin.at) * 1000 + 1
        return pin.left if untouched else left

    async def _settle(self) -> None:
        """Let calls under way get to where they block: their commands are answered before ours."""
        for _ in range(3):
            await self.storage.cursor("nothing")
            await self.clock.settle(5)

    async def lapse(self, queue: str, lease: Lease) -> None:
        """Move past the end of the lease."""
        if await self.storage.lease_left_ms(queue, lease) is not None:
            self.hold()
            left = self._pinned[keys_of(self._address, queue).lock(lease.job_id).encode()].left
            await self.advance(max(0, left) + 1)

    async def crash(self, worker_id: str) -> None:
        """Do nothing: a dead worker is one that no longer calls."""

    def lose_reply(self, verb: str) -> None:
        """Break the answer of the next call."""
        lose_next_reply(self.storage, verb)


def _is_lock(key: bytes) -> bool:
    return key.endswith(b":lock")
