"""Hold what checks of a server need: a connection of their own, and the storage above it.

A storage refuses to open on a server that is not fit; here that is a finding, and the look goes
on as far as it can.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Final

from toril.doctor.census import Spot, Walk
from toril.doctor.finding import Bounds
from toril.errors import StorageError
from toril.resp.client import Client
from toril.resp.embedded import EmbeddedServer
from toril.resp.greet import read_info
from toril.resp.replies import Argument
from toril.resp.script import Script
from toril.resp.url import Address
from toril.storage.bullmq.keys import keys_of
from toril.storage.protocol import Storage
from toril.storage.redis.layout import PREFIX

KEYS_PER_ENTRY: Final = 10
"""So many keys are passed over, for each entry of the bounds, in search of those of one queue."""
_DATABASES: Final = 16
"""So many databases are searched; a server has no more unless somebody asked for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One look at a server."""

    address: Address
    """As the user gave it."""
    reached: Address
    """The same, with the socket of an embedded server."""
    client: Client
    nodes: tuple[str, ...]
    """Every node that holds keys."""
    bounds: Bounds

    def walk(self) -> Walk:
        """Pass over keys as long as the records of one queue are worth it."""
        return Walk(self.client, self.nodes, self.bounds.entries * KEYS_PER_ENTRY)

    def spot(self, queue: str) -> Spot:
        """Where we keep a queue."""
        if self.address.layout == "bullmq":
            keys = keys_of(self.address, queue)
            return Spot(layout="bullmq", prefix=keys.prefix, name=keys.name, db=self.address.db)
        prefix = self.address.prefix or PREFIX
        return Spot(layout="lean", prefix=prefix, name=queue, db=self.address.db)

    async def run(self, name: str, spot: Spot, *args: Argument) -> Any:
        """Run one of the scripts beside this file on a queue."""
        return await self.client.run(script(name), spot.base, *args)

    async def pipe(self, spot: Spot, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Send commands together; raise the first error among the replies."""
        replies = await self.client.pipeline(spot.base, commands)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    @asynccontextmanager
    async def storage(self) -> AsyncIterator[Storage]:
        """Open the storage, also beside twins and on a server that evicts."""
        tagged = self.spot("q").is_tagged
        address = replace(self.reached, hash_tag=tagged if self.is_bullmq else True)
        storage: Storage
        if self.is_bullmq:
            from toril.storage.bullmq import BullmqStorage

            storage = BullmqStorage(address, allow_eviction=True)
        else:
            from toril.storage.redis import RedisStorage

            storage = RedisStorage(address, allow_eviction=True)
        await storage.open()
        try:
            yield storage
        finally:
            await storage.close()

    @property
    def is_bullmq(self) -> bool:
        """Whether its queues are BullMQ's."""
        return self.address.layout == "bullmq"

    @property
    def twins_known(self) -> bool:
        """Whether the user said which of two queues of one name is meant."""
        return self.address.hash_tag is not None

    @asynccontextmanager
    async def all_databases(self) -> AsyncIterator[Mapping[int, Client]]:
        """Connect to every database of the server that holds anything; ours is among them."""
        clients = {self.address.db: self.client}
        async with AsyncExitStack() as stack:
            for db in await self._databases():
                if db not in clients:
                    client = Client(replace(self.reached, db=db))
                    stack.push_async_callback(client.close)
                    try:
                        await client.open()
                    except StorageError:  # an ACL may forbid it
                        continue
                    clients[db] = client
            yield clients

    async def _databases(self) -> Sequence[int]:
        if self.address.kind == "cluster":
            return ()
        try:
            info = read_info(await self.client.call("", "INFO", "keyspace"))
        except StorageError:
            return ()
        found = (name.removeprefix("db") for name in info)
        return sorted(int(one) for one in found if one.isdecimal())[:_DATABASES]


@asynccontextmanager
async def visiting(address: Address, bounds: Bounds) -> AsyncIterator[Visit]:
    """Reach a server, the embedded one too, for as long as the look takes."""
    async with AsyncExitStack() as stack:
        # Whether the server can be as durable as asked is a finding, and nothing here needs it.
        reached = replace(address, durability="memory")
        if address.kind == "embedded":
            server = EmbeddedServer(address.path or None)
            await server.start()
            stack.push_async_callback(server.stop)
            reached = replace(reached, kind="unix", path=str(server.socket))
        client = Client(reached)
        stack.push_async_callback(client.close)
        await client.open()
        nodes = tuple(await client.pick_nodes())
        yield Visit(address=address, reached=reached, client=client, nodes=nodes, bounds=bounds)


@cache
def script(name: str) -> Script:
    """Read one of our scripts."""
    text = (files(__package__) / "lua" / f"{name}.lua").read_text("utf-8")
    return Script.of(name, text)
