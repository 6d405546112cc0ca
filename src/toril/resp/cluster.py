"""Find the server for a key: the only one, the master the sentinels name, or a cluster's node."""

from __future__ import annotations

import asyncio
import binascii
import ssl
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from toril.clock import Clock
from toril.errors import StorageClosed, StorageError
from toril.resp.greet import Settings, dial, hurried
from toril.resp.lane import Place
from toril.resp.node import Durability, Node
from toril.resp.replies import Lost, Reply, ServerSaid
from toril.resp.sentinel import ask_sentinels
from toril.resp.url import Address
from toril.resp.wire import Answer, Endpoint, pack

SLOTS: Final = 16384
_REFRESH_EVERY_S: Final = 0.2


def slot_of(key: str | bytes) -> int:
    """Give the cluster slot of a key; only the first `{tag}`, if not empty, counts."""
    data = key.encode() if isinstance(key, str) else key
    start = data.find(b"{")
    if start >= 0:
        end = data.find(b"}", start + 1)
        if end > start + 1:
            data = data[start + 1 : end]
    # The CRC of CCITT XMODEM, which is the cluster's.
    return binascii.crc_hqx(data, 0) % SLOTS


class SlotMap:
    """Which master serves which slot."""

    def __init__(self, ranges: Iterable[tuple[int, int, Endpoint]] = ()) -> None:
        self._ranges = sorted(ranges, key=lambda item: item[0])
        self._starts = [start for start, _, _ in self._ranges]
        self._moved: dict[int, Endpoint] = {}

    def find(self, slot: int) -> Endpoint | None:
        """Give the master of a slot, if one is known."""
        if slot in self._moved:
            return self._moved[slot]
        at = bisect_right(self._starts, slot) - 1
        if at < 0 or slot > self._ranges[at][1]:
            return None
        return self._ranges[at][2]

    def move(self, slot: int, endpoint: Endpoint) -> None:
        """Remember one MOVED until the whole map is read again."""
        self._moved[slot] = endpoint

    @property
    def masters(self) -> list[Endpoint]:
        """Every master once."""
        return list(dict.fromkeys([e for _, _, e in self._ranges] + list(self._moved.values())))


def read_slots(reply: object, asked: Endpoint) -> SlotMap:
    """Read the reply to CLUSTER SLOTS; a node without a name is on the host that was asked."""
    if not isinstance(reply, list) or not reply:
        raise Lost("the cluster has no slots yet")
    ranges: list[tuple[int, int, Endpoint]] = []
    for entry in reply:
        match entry:
            case [int(start), int(end), [host, int(port), *_], *_]:
                name = host.decode() if isinstance(host, bytes) and host != b"?" else ""
                ranges.append((start, end, Endpoint(name or asked.host, port)))
            case _:
                raise Lost("cannot read its CLUSTER SLOTS")
    return SlotMap(ranges)


class Router(Protocol):
    """Chooses the node for a key."""

    fixed: bool
    """Whether there is only one server it could ever be."""
    nap: float
    """How long to wait for one node before looking for another."""

    def node(self, key: str) -> Node:
        """Give the node that should serve the key; raise `Lost` if none is known yet."""
        ...

    def moved(self, slot: int, host: str, port: int, asked: Node, *, ask: bool) -> Node:
        """Follow a redirection."""
        ...

    async def refresh(self, hint: Node | None = None) -> None:
        """Look again who serves what."""

    async def nodes(self) -> list[Node]:
        """Give every node that holds keys."""
        ...

    async def close(self) -> None:
        """Close all connections."""


class Single:
    """One server, or one master behind sentinels."""

    nap = 60.0

    def __init__(self, node: Node, *, fixed: bool) -> None:
        self._node = node
        self.fixed = fixed

    def node(self, key: str) -> Node:
        """Give the node."""
        return self._node

    def moved(self, slot: int, host: str, port: int, asked: Node, *, ask: bool) -> Node:
        """Refuse: a server that redirects is part of a cluster."""
        raise StorageError(
            f"server at {asked.place} is part of a cluster; use a 'redis+cluster://' URL"
        )

    async def refresh(self, hint: Node | None = None) -> None:
        """Do nothing: a lane looks for its server at every attempt."""

    async def nodes(self) -> list[Node]:
        """Give the node."""
        return [self._node]

    async def close(self) -> None:
        """Close all connections."""
        await self._node.close()


class Cluster:
    """The masters of a cluster and the map of their slots."""

    fixed = False
    nap = 0.5

    def __init__(
        self,
        address: Address,
        settings: Settings,
        clock: Clock,
        context: ssl.SSLContext | None,
        make_node: Callable[[Endpoint], Node],
    ) -> None:
        self._seeds = [Endpoint(host, port) for host, port in address.hosts]
        self._address = address
        self._settings = hurried(settings)
        self._clock = clock
        self._context = context
        self._make_node = make_node
        self._nodes: dict[Endpoint, Node] = {}
        self._map = SlotMap()
        self._reading: asyncio.Task[None] | None = None
        self._read_at = -_REFRESH_EVERY_S
        self._closed = False

    def node(self, key: str) -> Node:
        """Give the node that should serve the key."""
        endpoint = self._map.find(slot_of(key))
        if endpoint is None:
            raise Lost("no node serves this slot")
        return self._node_at(endpoint)

    def moved(self, slot: int, host: str, port: int, asked: Node, *, ask: bool) -> Node:
        """Follow a redirection; a MOVED is remembered and the map read again soon."""
        here = next((e for e, node in self._nodes.items() if node is asked), self._seeds[0])
        endpoint = Endpoint(host or here.host, port)
        if not ask:
            self._map.move(slot, endpoint)
            self._start_reading()
        return self._node_at(endpoint)

    async def refresh(self, hint: Node | None = None) -> None:
        """Read the map again, at most every 200 ms, all callers together."""
        await asyncio.shield(self._start_reading())

    async def nodes(self) -> list[Node]:
        """Give every master."""
        await self.refresh()
        return [self._node_at(endpoint) for endpoint in self._map.masters]

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        await asyncio.gather(*(node.close() for node in self._nodes.values()))

    def _node_at(self, endpoint: Endpoint) -> Node:
        if endpoint not in self._nodes:
            self._nodes[endpoint] = self._make_node(endpoint)
        return self._nodes[endpoint]

    def _start_reading(self) -> asyncio.Task[None]:
        if self._closed:
            raise StorageClosed(f"client of {self._address.safe} was closed")
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        return self._reading

    async def _read(self) -> None:
        wait = self._read_at + _REFRESH_EVERY_S - self._clock.monotonic()
        await self._clock.sleep(max(wait, 0))
        self._read_at = self._clock.monotonic()
        for endpoint in dict.fromkeys([*self._map.masters, *self._seeds]):
            try:
                reply = await ask_once(
                    endpoint,
                    self._address,
                    self._settings,
                    self._clock,
                    self._context,
                    pack("CLUSTER", "SLOTS"),
                )
                if isinstance(reply, ServerSaid):
                    raise StorageError(f"server at {endpoint}: {reply.text}")
                self._map = read_slots(reply, endpoint)
            except (Lost, StorageError):
                # Who waits for a node finds out by itself that the map did not change.
                continue
            else:
                return


async def ask_once(
    endpoint: Endpoint,
    address: Address,
    settings: Settings,
    clock: Clock,
    context: ssl.SSLContext | None,
    packed: bytes,
) -> Reply | ServerSaid:
    """Ask one question over a connection made for it."""
    wire = await dial(endpoint, address, settings, clock, context=context)
    try:
        answer: Answer = await wire.send(packed)
    finally:
        await wire.close()
    if isinstance(answer, Lost):
        raise answer
    return answer


async def find_master(
    address: Address, settings: Settings, clock: Clock, context: ssl.SSLContext | None
) -> Endpoint:
    """Ask the sentinels, one after the other, where the master is."""
    steps = ask_sentinels(address)
    try:
        endpoint, asked, question = next(steps)
        while True:
            answer: Answer | StorageError
            try:
                answer = await ask_once(
                    endpoint, asked, hurried(settings), clock, context, question
                )
            except (Lost, StorageError) as error:
                answer = error
            endpoint, asked, question = steps.send(answer)
    except StopIteration as end:
        found: Endpoint = end.value
        return found


def make_router(
    address: Address, settings: Settings, clock: Clock, context: ssl.SSLContext | None
) -> Router:
    """Make the router that the kind of address calls for."""
    durability = Durability(settings.durability, settings.command_timeout)

    def node_at(endpoint: Endpoint) -> Node:
        async def find() -> Endpoint:
            return endpoint

        place = Place(address, find, shown=str(endpoint), alone=address.kind != "cluster")
        return Node(place, settings, clock, context, durability)

    if address.kind == "cluster":
        return Cluster(address, settings, clock, context, node_at)
    if address.kind == "sentinel":

        async def find() -> Endpoint:
            place.shown = str(endpoint := await find_master(address, settings, clock, context))
            return endpoint

        place = Place(address, find, shown=f"master '{address.master}'", master=True)
        return Single(Node(place, settings, clock, context, durability), fixed=False)
    host, port = address.hosts[0] if address.hosts else ("", 0)
    return Single(node_at(Endpoint(host, port, address.path)), fixed=True)
