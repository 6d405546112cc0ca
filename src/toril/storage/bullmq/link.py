"""Hold the connection of a BullMQ storage, its clock and what it knows of queues."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar, cast

from toril.clock import Clock, SystemClock
from toril.errors import InvalidOption, StorageClosed
from toril.job import KEEP_ALL, Keep
from toril.resp.client import Client, Reply, See, Settings
from toril.resp.embedded import EmbeddedServer
from toril.resp.fit import check_fit
from toril.resp.replies import Argument
from toril.resp.script import Script
from toril.resp.url import Address, Ids, parse_url
from toril.resp.wakeups import WakeUps
from toril.storage.bullmq.joins import Joins
from toril.storage.bullmq.keys import Keys, check_tagging, check_twins, keys_of, twins_of
from toril.storage.bullmq.leases import Fate
from toril.storage.bullmq.official import OWN, own, scripts
from toril.storage.bullmq.scripts import USED, Command
from toril.storage.bullmq.server_time import ServerTime
from toril.storage.bullmq.waits import Endings, wake_ups
from toril.storage.protocol import ALL_FEATURES, Feature

CHUNK: Final = 100
"""Items per call of a script of ours: keeps it under two milliseconds of server time."""

ENDING_KEPT_MS: Final = 60_000
_TOKENS: Final = 4096
"""Claim tokens remembered, to know a repeated claim by."""
_KNOWN_S: Final = 60.0
_BOUND_S: Final = 1.0
"""How long a queue that was paused or had bounds is taken to be so still."""

T = TypeVar("T")


class Link:
    """The connection to a server, alone, behind sentinels or as a cluster."""

    def __init__(
        self,
        url: str | Address = "bullmq+redis://127.0.0.1:6379",
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        allow_eviction: bool = False,
        batch: bool = True,
        keep_completed: Keep = KEEP_ALL,
        keep_failed: Keep = KEEP_ALL,
        ids: Ids | None = None,
        metrics: int | None = None,
    ) -> None:
        self.address = parse_url(url) if isinstance(url, str) else url
        if self.address.layout != "bullmq":
            raise InvalidOption(f"{self.address.safe}: not a BullMQ URL; write 'bullmq+redis://…'")
        check_tagging(self.address)
        if ids not in (None, "ulid", "counter"):
            raise InvalidOption(f"ids={ids!r}: must be 'ulid' or 'counter'")
        if metrics is not None and (type(metrics) is not int or metrics < 1):
            raise InvalidOption(f"metrics={metrics!r}: must be a number of minutes to keep, from 1")
        scripts()  # a missing extra or a changed file shows now, not at the first job
        self.clock: Clock = clock or SystemClock()
        self.now_ms = 0
        """What scripts are told as the time; 0, outside of tests: they ask the server's clock."""
        self.batch = batch
        """Whether plain jobs go through our batch scripts; the official ones do the rest."""
        self.keep_completed = keep_completed
        self.keep_failed = keep_failed
        self.ids = ids or self.address.ids
        """Who makes the ids that callers leave out: we, or the counter of the queue, as for Node.
        Only with ours can a hand-in whose answer was lost be sent again."""
        self.metrics = metrics or self.address.metrics
        """How many minutes of counts of finished jobs are kept; None to count none."""
        self._allow_eviction = allow_eviction
        self._settings = settings
        self._server: EmbeddedServer | None = None
        self._link: Client | None = None
        self._opened = 0
        self._opening = asyncio.Lock()
        self._times: dict[str, ServerTime] = {}
        self._known: dict[str, float] = {}
        self._keys: dict[str, Keys] = {}
        self._tokens: OrderedDict[str, int] = OrderedDict()
        self._sent = 0
        self._fates: dict[str, Fate] = {}
        self._bound: dict[tuple[str, str], float] = {}
        self._seen: dict[tuple[str, str], float] = {}
        self._wakes: dict[str, WakeUps] = {}
        self._endings: dict[str, Endings] = {}
        self._joins: dict[tuple[str, str], Joins] = {}
        self._answered: set[str] = set()
        """Batch scripts that have run: the server knows them, and calls keep their order."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def features(self) -> frozenset[Feature]:
        """Everything but bytes that are not JSON: Node must be able to read them."""
        return ALL_FEATURES - {Feature.ANY_SERDE}

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
            self._link.learn(*_all_scripts())
            await self._link.open()
            server = await self._link.server_version()
            check_fit(self.url, server, allow_eviction=self._allow_eviction)
        except BaseException:
            await self._disconnect()
            raise

    async def close(self) -> None:
        """End one `open`; at the last one blocked calls return."""
        async with self._opening:
            self._opened = max(0, self._opened - 1)
            if not self._opened:
                waits: list[WakeUps | Endings] = [*self._wakes.values(), *self._endings.values()]
                self._wakes, self._endings = {}, {}
                await asyncio.gather(*(one.close() for one in waits))
                await self._disconnect()

    async def _disconnect(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()
        server, self._server = self._server, None
        if server is not None:
            await server.stop()
        self._known.clear()
        self._times.clear()

    @property
    def client(self) -> Client:
        """The open connection."""
        if self._link is None:
            raise StorageClosed(f"{self!r} is not open; use `async with`, or await open() first")
        return self._link

    # -- queues ----------------------------------------------------------------------------

    def keys(self, queue: str) -> Keys:
        """The keys of a queue."""
        found = self._keys.get(queue)
        if found is None:
            found = self._keys[queue] = keys_of(self.address, queue)
        return found

    async def meet(self, queue: str) -> Keys:
        """The keys of a queue, after a look for twins that its other clients would not see."""
        client, now = self.client, self.clock.monotonic()
        if self._known.get(queue, float("-inf")) <= now - _KNOWN_S:
            if self.address.hash_tag is None and "{" not in queue:
                untagged, lean = twins_of(self.address, queue)
                found = [await client.exists(key) for key in (untagged, lean)]
                check_twins(self.address, queue, *found)
            if queue not in self._known:
                await self._load(queue)
            self._known[queue] = now
        return self.keys(queue)

    async def _load(self, queue: str) -> None:
        """Give the queue's server the scripts it lacks.

        The client would do it too, one by one; but then the commands of a first pipeline might
        run in another order than they were sent in.
        """
        base = self.keys(queue).base
        wanted = _all_scripts()
        there = await self.client.call(base, "SCRIPT", "EXISTS", *(one.sha for one in wanted))
        known = cast("list[int]", there)
        lacking = [one for one, here in zip(wanted, known, strict=True) if not here]
        if lacking:
            await self.pipe(queue, [("SCRIPT", "LOAD", one.text) for one in lacking])

    async def now(self, queue: str) -> int:
        """The time in ms on the clock of the queue's server, rather behind than ahead of it.

        For the official scripts; our own ask the server themselves. By this one jobs come due.
        """
        return (await self._now(queue))[0]

    async def later(self, queue: str) -> int:
        """The same, rather ahead than behind: by this one a time of waiting begins."""
        return (await self._now(queue))[1]

    async def _now(self, queue: str) -> tuple[int, int]:
        if self.now_ms:
            return self.now_ms, self.now_ms
        # The nodes of a cluster have a clock each.
        place = self.keys(queue).base if self.address.kind == "cluster" else ""
        if place not in self._times:
            line = partial(self.client.line, place)
            self._times[place] = ServerTime(partial(self._ask_time, place), line)
        return await self._times[place].read()

    async def _ask_time(self, place: str) -> float:
        seconds, micros = cast("list[bytes]", await self.client.call(place, "TIME"))
        return int(seconds) * 1000 + int(micros) / 1000

    def know(self, token: str) -> int:
        """Tell how often a claim's token was sent before, and remember it."""
        again = self._tokens.get(token, 0)
        self._tokens[token] = again + 1
        if len(self._tokens) > _TOKENS:
            self._tokens.popitem(last=False)
        return again

    def takes(self, script: str, queue: str) -> bool:
        """Whether a batch script may do something in a queue, as far as we know."""
        return self.batch and self._bound.get((script, queue), 0.0) <= self.clock.monotonic()

    def refuses(self, script: str, queue: str) -> None:
        """Note that a batch script leaves everything to the official ones, which ask no more."""
        self._bound[script, queue] = self.clock.monotonic() + _BOUND_S

    def wake(self, queue: str) -> WakeUps:
        """Those who wait for work in a queue."""
        wakes = self._wakes.get(queue)
        if wakes is None:
            wakes = self._wakes[queue] = wake_ups(self.client, self.keys(queue).of("marker"))
        return wakes

    # -- calls -----------------------------------------------------------------------------

    def own(
        self,
        name: str,
        queue: str,
        *args: Argument,
        durable: bool = False,
        see: See | None = None,
    ) -> Awaitable[Any]:
        """Run one of our own scripts; `see` is shown the reply before the caller goes on."""
        base = self.keys(queue).base
        return self.client.run(own(name), base, self.now_ms, *args, durable=durable, see=see)

    def own_command(self, name: str, queue: str, *args: Argument) -> Command:
        """Write the command that runs one of our own scripts, for a pipeline."""
        script = own(name)
        return ("EVALSHA", script.sha, 1, self.keys(queue).base, self.now_ms, *args)

    async def official(self, queue: str, command: Command) -> Reply:
        """Run an official script."""
        return await self.client.call(self.keys(queue).base, *command)

    async def secure(self, queue: str) -> None:
        """Return when what was written is as safe as `durability` asks."""
        if self.client.settings.durability != "memory":
            # Copies get the writes in order: who has this one has those before it.
            await self.own("mark", queue, durable=True)

    async def pipe(
        self, queue: str, commands: Sequence[Command], *, once: bool = False
    ) -> list[Any]:
        """Send commands together; raise the first error among the replies."""
        replies = await self.client.pipeline(self.keys(queue).base, commands, once=once)
        for reply in replies:
            check_reply(reply)
        return replies


def _all_scripts() -> list[Script]:
    return [*(scripts()[name] for name in USED), *(own(name) for name in OWN)]


def check_reply(reply: object) -> None:
    """Raise an error among replies, also one inside a transaction."""
    for part in reply if isinstance(reply, list) else (reply,):
        if isinstance(part, Exception):
            raise part


def chunks(items: Sequence[T], size: int = CHUNK) -> Iterable[Sequence[T]]:
    """Cut a sequence into pieces."""
    return (items[first : first + size] for first in range(0, len(items), size))
