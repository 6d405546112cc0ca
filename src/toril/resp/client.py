"""Talk to a server, a master behind sentinels or a cluster, through breaks and restarts.

Every command given to a client must be safe to repeat: when a connection breaks, calls without
a reply are sent again on the next one, after the old one was killed on the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from toril.clock import Clock, SystemClock
from toril.errors import (
    InvalidOption,
    StorageClosed,
    StorageDenied,
    StorageError,
    StorageUnavailable,
)
from toril.resp.block import Blocker, Orphan
from toril.resp.cluster import Router, make_router
from toril.resp.errand import UNKNOWN, Errand
from toril.resp.greet import Settings, read_info, tls_context
from toril.resp.lane import Lane
from toril.resp.node import Durability, Node, durably
from toril.resp.replies import (
    Argument,
    Lost,
    Reply,
    ServerSaid,
    is_transaction,
    shown,
    trouble_in,
    worth_repeating,
)
from toril.resp.script import Script, shas_of
from toril.resp.sync import SyncClient
from toril.resp.url import Address
from toril.resp.wire import Answer, See, Wire, pack, pack_all

__all__ = ["Client", "Reply", "See", "ServerInfo", "Settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """What a server says of itself."""

    name: str
    version: tuple[int, ...]
    maxmemory_policy: str
    aof: bool
    role: str
    cluster: bool


class Client:
    """Sends commands to the server of an address; belongs to one event loop."""

    def __init__(
        self, address: Address, settings: Settings | None = None, clock: Clock | None = None
    ) -> None:
        if address.kind == "embedded":
            raise InvalidOption(f"{address.safe}: start the embedded server, then use its socket")
        self.address = address
        self.settings = Settings.of(address, settings)
        self._clock = clock or SystemClock()
        self._durability = Durability(self.settings.durability, self.settings.command_timeout)
        self._router: Router | None = None
        self._lane: Lane | None = None
        self._scripts: dict[str, Script] = {}
        self._hidden: set[str] = set()
        self._picked: dict[str, Node] = {}
        self._blocker = Blocker(
            self._clock, self.settings.command_timeout, self.settings.client_name
        )

    def __repr__(self) -> str:
        return f"Client({self.address.safe!r})"

    async def open(self) -> None:
        """Connect, log in and check what was asked for; do nothing when open already."""
        if self._router is not None:
            return
        loop = asyncio.get_running_loop()
        context = await loop.run_in_executor(None, tls_context, self.address)
        router = self._router = make_router(self.address, self.settings, self._clock, context)
        try:
            await self._meet(router)
        except BaseException:
            await self.close()
            raise
        if self.address.kind != "cluster":
            self._lane = router.node("").commands

    async def close(self) -> None:
        """Close every connection; calls under way get StorageClosed. Never hangs."""
        self._lane = None
        self._picked = {}
        router, self._router = self._router, None
        if router is None:
            return
        await self._blocker.finish()
        await router.close()

    async def call(self, key: str, *args: Argument) -> Reply:
        """Send one command; `key` only chooses the node of a cluster."""
        packed = pack_all(args)
        lane = self._lane
        if lane is None or (wire := lane.wire) is None:
            return await self._insist(self._errand(key), packed)
        answer = await wire.send(packed)
        if not isinstance(answer, Exception):
            return answer
        return await self._insist(self._errand(key), packed, answer, wire)

    def line(self, key: str) -> object | None:
        """Give the connection that `call` would use; another one may lead to another server."""
        try:
            return self._open_router().node(key).commands.wire
        except Lost:
            return None

    async def exists(self, key: str) -> bool:
        """Tell whether there is a key; one that an ACL hides is not there, and not asked for again.

        The server notes every refusal for its owner to read.
        """
        if key in self._hidden:
            return False
        try:
            return bool(await self.call(key, "EXISTS", key))
        except StorageDenied:
            self._hidden.add(key)
            return False

    async def run(
        self,
        script: Script,
        key: str,
        *args: Argument,
        durable: bool = False,
        again: Argument | None = None,
        see: See | None = None,
    ) -> Reply:
        """Run a script with one key; a server that does not know it gets it first.

        A durable run returns when the effect is as safe as `durability` asks. `again` takes the
        place of the last argument when the call is repeated, for scripts that must know. `see` is
        shown the reply before the caller goes on.
        """
        sha = script.sha
        if sha not in self._scripts:
            self._scripts[sha] = script
        packed = pack_all(("EVALSHA", sha, 1, key, *args))
        lane = self._lane
        answer: Answer = None
        wire = None if lane is None or (durable and self._durability.wanted) else lane.wire
        if wire is not None:
            answer = await wire.send(packed, see)
            if not isinstance(answer, Exception):
                return answer
        repeat = None if again is None else ("EVALSHA", sha, 1, key, *args[:-1], again)
        errand = self._errand(key, durable)
        reply = await self._insist(errand, packed, answer, wire, shas=(sha,), repeat=repeat)
        if see is not None:
            see(reply)
        return reply

    def learn(self, *scripts: Script) -> None:
        """Make scripts known, so that an EVALSHA inside a pipeline can be loaded again."""
        self._scripts.update((script.sha, script) for script in scripts)

    async def pipeline(
        self, key: str, commands: Sequence[Sequence[Argument]], *, once: bool = False
    ) -> list[Reply | Exception]:
        """Send commands together; give their replies or errors in order.

        What can be waited out is repeated, for a MULTI … EXEC as a whole, else command by command.
        Raises only when the server cannot be reached. With `once` nothing is sent a second time
        that may have run: StorageUnavailable tells the caller to look what became of it.
        """
        packed = [pack(*command) for command in commands]
        whole = is_transaction(commands)
        fresh: list[Answer] = []
        lane = self._lane
        wire = None
        if len(packed) == 1 and lane is not None and (wire := lane.wire) is not None:
            fresh = [await wire.send(packed[0])]
            if not worth_repeating(fresh[0]):
                return [shown(fresh[0], lane.place)]
        answers: list[Answer] = [None] * len(packed)
        errand = self._errand(key)
        if wire is not None:
            errand.resume(wire)
        todo = list(range(len(packed)))
        while todo:
            fresh = fresh or await errand.send_all([packed[at] for at in todo])
            for at, answer in zip(todo, fresh, strict=True):
                answers[at] = answer
            again = [at for at in todo if worth_repeating(answers[at])]
            if not again:
                break
            fresh = []
            todo = todo if whole else again
            trouble = trouble_in(answers[again[0]])
            try:
                await errand.recover(trouble, shas_of(commands[at] for at in todo))
            except StorageError:
                if isinstance(trouble, Lost):
                    raise
                break
            if once and (whole or isinstance(trouble, Lost)):
                raise StorageUnavailable(f"server at {errand.where}: {trouble}; {UNKNOWN}")
        return [shown(answer, errand.where) for answer in answers]

    async def block(
        self,
        key: str,
        *args: Argument,
        timeout_s: float,
        orphan: Orphan | None = None,
        name: str | None = None,
        see: See | None = None,
    ) -> Reply:
        """Send a blocking command on a connection of its own, which may be given a name.

        A connection that breaks while it blocks counts as a timeout (None): the caller looks
        for itself. When the coroutine is cancelled the server is told to stop blocking, and what
        it had handed out already goes to `orphan`. `see` is shown the reply before the caller
        goes on.
        """
        errand = self._errand(key)
        return await self._blocker.block(errand, pack_all(args), timeout_s, orphan, name, see)

    def block_soon(
        self, key: str, *args: Argument, timeout_s: float, see: See
    ) -> Callable[[], Awaitable[Reply]]:
        """Send a blocking command before this returns, where there is a connection for it.

        What it gives waits for the reply, and raises, as `block` does; it must be called.
        """
        if self._router is None:
            return partial(self.block, key, *args, timeout_s=timeout_s, see=see)
        errand, packed = self._errand(key), pack_all(args)
        begun = self._blocker.begin(errand, packed, timeout_s, see)
        return partial(self._blocker.block, errand, packed, timeout_s, None, None, see, begun)

    async def run_after(
        self,
        blocking: Sequence[Argument],
        script: Script,
        key: str,
        *args: Argument,
        timeout_s: float,
        cut: asyncio.Future[None],
        orphan: Orphan,
        name: str | None = None,
    ) -> Reply:
        """Run a script right when a blocking command ends, on a connection of its own.

        None when it may not have run: the caller runs it by itself then, if it is safe to repeat.
        It blocks until `cut` is done at most. What it gave a caller that was cancelled goes to
        `orphan`.
        """
        self._scripts.setdefault(script.sha, script)
        then = pack_all(("EVALSHA", script.sha, 1, key, *args))
        return await self._blocker.block_then(
            self._errand(key), pack_all(tuple(blocking)), then, timeout_s, cut, orphan, name
        )

    def sync(self) -> SyncClient:
        """Make a blocking twin with its own connection, for use in one other thread."""
        return SyncClient(self.address, self.settings)

    async def server_version(self) -> ServerInfo | None:
        """Ask the server who it is and how it is set up; None where an ACL forbids to ask."""
        sections = ("server", "memory", "persistence", "replication", "cluster")
        try:
            info = read_info(await self.call("", "INFO", *sections))
        except StorageDenied:
            return None
        valkey = "valkey_version" in info
        version = info["valkey_version" if valkey else "redis_version"]
        return ServerInfo(
            name="valkey" if valkey else "redis",
            version=tuple(int(part) for part in version.split(".") if part.isdecimal()),
            maxmemory_policy=info.get("maxmemory_policy", ""),
            aof=info.get("aof_enabled") == "1",
            role=info.get("role", ""),
            cluster=info.get("cluster_enabled") == "1",
        )

    async def pick_nodes(self) -> list[str]:
        """Name every node that holds keys, for `call_at`."""
        self._picked = {str(node.place): node for node in await self._open_router().nodes()}
        return list(self._picked)

    async def call_at(self, name: str, *args: Argument) -> Reply:
        """Send one command to the node of this name, whatever its keys are."""
        if name not in self._picked:
            # Only then: the map of a cluster is read at most every 200 ms.
            await self.pick_nodes()
        node = self._picked.get(name)
        if node is None:
            raise StorageUnavailable(f"server at {name}: not a master of this cluster any more")
        return await self._insist(self._errand("", pinned=node), pack(*args))

    def _open_router(self) -> Router:
        if self._router is None:
            raise StorageClosed(f"client of {self.address.safe} is not open; call open() first")
        return self._router

    def _errand(self, key: str, durable: bool = False, pinned: Node | None = None) -> Errand:
        return Errand(
            self._open_router(),
            key,
            self._clock,
            self.settings.patience,
            self._scripts,
            durable=durable and self._durability.wanted,
            pinned=pinned,
        )

    async def _insist(
        self,
        errand: Errand,
        packed: bytes,
        answer: Answer = None,
        wire: Wire | None = None,
        shas: tuple[str, ...] = (),
        repeat: Sequence[Argument] | None = None,
    ) -> Reply:
        """Repeat a command until it is answered; `answer` is what a first try on `wire` gave.

        `repeat` is what to send from the second time on, if it differs.
        """
        if wire is None:
            answer = await self._try(errand, packed)
        else:
            errand.resume(wire)
        while isinstance(answer, ServerSaid | Lost):
            await errand.recover(answer, shas)
            if repeat is not None:
                packed, repeat = pack(*repeat), None
            answer = await self._try(errand, packed)
        return answer

    async def _try(self, errand: Errand, packed: bytes) -> Answer:
        if not errand.durable:
            return await errand.send(packed)
        try:
            wire = await errand.find()
        except Lost as lost:
            return lost
        assert errand.node is not None
        return await durably(wire, errand.node, errand.key, errand.prefix(packed), self._durability)

    async def _meet(self, router: Router) -> None:
        """Reach every node once, and ask it for the durability that was chosen."""
        await router.refresh()
        if not self._durability.wanted:
            await self._insist(self._errand(""), pack("PING"))
            return
        for node in await router.nodes():
            errand = self._errand("", pinned=node)
            try:
                answer: Reply | StorageError = await self._insist(errand, self._durability.probe())
            except StorageUnavailable:
                raise
            except StorageError as error:
                answer = error
            self._durability.admit(answer, node.place)
