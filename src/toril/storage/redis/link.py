"""The connection under the verbs: its life, its scripts, the list of queues."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from toril.clock import Clock, SystemClock
from toril.errors import StorageClosed
from toril.ids import token, ulid
from toril.resp.client import Client, Reply, Settings
from toril.resp.embedded import EmbeddedServer
from toril.resp.fit import check_fit
from toril.resp.url import Address, parse_url
from toril.resp.wakeups import WakeUps
from toril.storage.protocol import ALL_FEATURES, Feature
from toril.storage.redis.intake import Intake
from toril.storage.redis.layout import (
    LAYOUT,
    PREFIX,
    base_of,
    check_layout,
    check_twin,
    chunks,
    twins_of,
)
from toril.storage.redis.scripts import script
from toril.storage.redis.waits import Replies, wake_ups

_REGISTERED_S: Final = 60.0

Argument = str | bytes | int


class Link:
    """Opens and closes, runs scripts, and remembers what was asked before."""

    def __init__(
        self,
        url: str | Address = "redis://127.0.0.1:6379",
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        allow_eviction: bool = False,
    ) -> None:
        self.address = parse_url(url) if isinstance(url, str) else url
        self.clock: Clock = clock or SystemClock()
        self.now_ms = 0
        """What the scripts take for the time; 0, outside of tests, for the server's clock."""
        self._allow_eviction = allow_eviction
        self._settings = settings
        self._server: EmbeddedServer | None = None
        self._link: Client | None = None
        self._opened = 0
        self._opening = asyncio.Lock()
        self._me = ulid()
        self._intake = Intake(self._me)
        self._tokens: OrderedDict[str, None] = OrderedDict()
        self._registered: dict[str, float] = {}
        self._met: set[str] = set()
        """Queues that were looked at before the first claim."""
        self._answered = False
        """Whether a hand-in was answered: the server knows the script, calls keep their order."""
        self._outlooks: dict[str, float] = {}
        self._listed: dict[tuple[str, str], float] = {}
        self._awaiting: set[str] = set()
        """Queues whose server was given the script of claims that wait."""
        self._wakes: dict[str, WakeUps] = {}
        self._replies: dict[str, Replies] = {}

    def __repr__(self) -> str:
        return f"RedisStorage({self.url!r})"

    @property
    def features(self) -> frozenset[Feature]:
        """Everything."""
        return ALL_FEATURES

    @property
    def url(self) -> str:
        """Where it is, without secrets."""
        return self.address.safe

    # -- life ------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect and check the server; pairs with `close`."""
        async with self._opening:
            if not self._opened:
                await self._connect()
            self._opened += 1

    async def _connect(self) -> None:
        address = self.address
        try:
            if address.kind == "embedded":
                self._server = EmbeddedServer(address.path or None)
                await self._server.start()
                address = replace(address, kind="unix", path=str(self._server.socket))
            self._link = Client(address, self._settings)
            await self._link.open()
            server = await self._link.server_version()
            check_fit(self.url, server, allow_eviction=self._allow_eviction)
        except BaseException:
            await self._disconnect()
            raise

    async def _disconnect(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()
        server, self._server = self._server, None
        if server is not None:
            await server.stop()
        self._awaiting.clear()
        self._met.clear()

    @property
    def _client(self) -> Client:
        if self._link is None:
            raise StorageClosed(f"{self!r} is not open; use `async with`, or await open() first")
        return self._link

    async def close(self) -> None:
        """End one `open`; at the last one blocked calls return."""
        async with self._opening:
            self._opened = max(0, self._opened - 1)
            if not self._opened:
                await self._end_waits()
                await self._disconnect()

    async def _end_waits(self) -> None:
        waits: list[WakeUps | Replies] = [*self._wakes.values(), *self._replies.values()]
        self._wakes, self._replies = {}, {}
        await asyncio.gather(*(one.close() for one in waits))

    def _base(self, queue: str) -> str:
        return base_of(self.address.prefix, queue)

    def _run(
        self,
        name: str,
        queue: str,
        *args: Argument,
        durable: bool = False,
        again: Argument | None = None,
    ) -> Awaitable[Any]:
        return self._client.run(
            script(name), self._base(queue), self.now_ms, *args, durable=durable, again=again
        )

    def _is_registered(self, queue: str) -> bool:
        """Tell whether the queue was entered into the list of queues a short while ago."""
        entered = self._registered.get(queue)
        return entered is not None and entered > self.clock.monotonic() - _REGISTERED_S

    async def _register(self, queue: str) -> None:
        """Enter the queue into the list of queues; refuse what `_meet` refuses."""
        now = self.clock.monotonic()
        await self._check_twins(queue)
        meta = self._base(queue) + "meta"
        await self._client.call(meta, "HSETNX", meta, "layout", LAYOUT)
        await self._check_layout(queue)
        names = f"{self.address.prefix or PREFIX}:queues"
        await self._client.call(names, "SADD", names, queue)
        self._registered[queue] = now

    async def _meet(self, queue: str) -> None:
        """Before the first claim: refuse a twin that other clients use, and a newer layout."""
        await self._check_twins(queue)
        await self._check_layout(queue)
        self._met.add(queue)

    async def _check_twins(self, queue: str) -> None:
        for twin in twins_of(self.address, queue):
            check_twin(self.address, queue, twin, await self._client.exists(twin))

    async def _check_layout(self, queue: str) -> None:
        meta = self._base(queue) + "meta"
        layout = cast("bytes | None", await self._client.call(meta, "HGET", meta, "layout"))
        check_layout(layout, queue, self.url)

    def _wake(self, queue: str) -> WakeUps:
        wakes = self._wakes.get(queue)
        if wakes is None:
            wakes = self._wakes[queue] = wake_ups(self._client, self._base(queue))
        return wakes

    async def _call(self, key: str, *args: Argument) -> Reply:
        self._check_open()
        return await self._client.call(key, *args)

    def _check_open(self) -> None:
        _ = self._client

    async def _letters(
        self, name: str, queue: str, ids: Sequence[str], *args: Argument
    ) -> Sequence[str]:
        letters = ""
        for some in chunks(ids):
            # The last two: what a repeat is known by, and whether it is one.
            mine = (*args, *some, token(), 0)
            letters += (await self._run(name, queue, *mine, again=1)).decode()
        return letters

    async def _flags(
        self, name: str, queue: str, ids: Sequence[str], *args: Argument
    ) -> Sequence[bool]:
        flags: list[bool] = []
        for some in chunks(ids):
            flags += [bool(flag) for flag in await self._run(name, queue, *args, *some)]
        return flags
