"""Keep the connections to one server apart: commands, durable commands, blocking ones."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from toril.clock import Clock, Timer
from toril.errors import StorageError, StorageUnavailable, UnsupportedFeature
from toril.resp.greet import Settings
from toril.resp.lane import Lane, Place
from toril.resp.replies import Lost, Reply, ServerSaid
from toril.resp.wire import Answer, Wire, pack

IDLE_S: Final = 60.0
"""How long an unused blocking connection is kept."""


_MARK: Final = ":toril-fence"


class Fence:
    """Lets the durable commands of one connection share a WAIT.

    WAIT covers the writes sent before it on the same connection, and holds up what comes after
    it. So one is under way at a time, and the next covers all that was sent meanwhile.

    A command that finds its work done, by a connection that broke or by somebody else, writes
    nothing, and a bare WAIT would then return at once with that work still on one machine only
    [measured on Valkey 9.1]. Hence the little write before it: the copies get the writes in
    order, so who has this one has all before it.
    """

    def __init__(self, wire: Wire, command: bytes) -> None:
        self._wire = wire
        self._command = command
        self._loop = asyncio.get_running_loop()
        self._group: asyncio.Future[Answer] | None = None
        self._key = ""
        self._busy = False
        self.waits = 0

    def join(self, key: str) -> asyncio.Future[Answer]:
        """Wait for everything sent until now to be safe; do not cancel the future."""
        if self._group is None:
            self._key = key
            self._group = self._loop.create_future()
            if not self._busy:
                self._busy = True
                self._loop.call_soon(self._send)
        return self._group

    def _send(self) -> None:
        group, self._group = self._group, None
        if group is None:
            self._busy = False
            return
        self.waits += 1

        def tell(replies: asyncio.Future[list[Answer]]) -> None:
            marked, waited = replies.result()
            # A full server takes no new key, but may well have taken the command before it.
            failed = isinstance(marked, ServerSaid) and marked.code != "OOM"
            if not group.done():
                group.set_result(marked if failed else waited)
            self._send()

        mark = pack("SET", f"{self._key}{_MARK}", "", "PX", 1000)
        self._wire.send_all([mark, self._command]).add_done_callback(tell)


class Durability:
    """What a durable command waits for after it ran."""

    def __init__(self, level: str, timeout: float) -> None:
        kind, _, count = level.partition(":")
        self.level = level
        self.local = kind == "local"
        self.replicas = int(count or 0)
        ms = max(int(timeout * 1000), 1)
        self.command = pack("WAITAOF", 1, 0, ms) if self.local else pack("WAIT", self.replicas, ms)
        self._timeout = timeout

    @property
    def wanted(self) -> bool:
        """Whether there is anything to wait for."""
        return self.local or self.replicas > 0

    def check(self, reply: Reply, where: object) -> None:
        """Raise unless the reply to WAIT says that enough copies exist."""
        count = reply[0] if isinstance(reply, list) and reply else reply
        reached = count if isinstance(count, int) else 0
        if reached >= (1 if self.local else self.replicas):
            return
        fact = "not on disk" if self.local else f"replicated {reached} of {self.replicas} times"
        raise StorageUnavailable(
            f"server at {where}: {fact} after {self._timeout:g} s, so not replicated as"
            f" durability={self.level} asks; the effect is unknown, repeating is safe"
        )

    def probe(self) -> bytes:
        """Give a command that shows at once whether the server can do this."""
        return pack("WAITAOF", 1, 0, 1) if self.local else pack("INFO", "replication")

    def admit(self, answer: Reply | StorageError, where: object) -> None:
        """Refuse a server that lacks what is asked for."""
        if isinstance(answer, StorageError):
            raise UnsupportedFeature(
                f"durability={self.level} on the server at {where}: needs appendonly yes and"
                f" WAITAOF (Redis 7.2, Valkey 7.2 or newer); {answer}"
            ) from None
        if self.local or not isinstance(answer, bytes):
            return
        lines = dict(line.partition(b":")[::2] for line in answer.splitlines())
        there = int(lines.get(b"connected_slaves", b"0"))
        if there < self.replicas:
            raise StorageUnavailable(
                f"durability={self.level} on the server at {where}: it has {there} replicas now"
            )


class Node:
    """One server and the connections to it."""

    def __init__(
        self,
        place: Place,
        settings: Settings,
        clock: Clock,
        context: ssl.SSLContext | None,
        durability: Durability,
    ) -> None:
        self.place = place
        self._settings = settings
        self._clock = clock
        self._context = context
        self._durability = durability
        self.commands = self._lane()
        self.durable = self._lane(self.commands) if durability.wanted else self.commands
        self.fence: Fence | None = None
        if durability.wanted:
            self.durable.on_connect = self._raise_fence
        self._idle: list[tuple[Lane, float]] = []
        self._retiring: Timer | None = None
        self._lent: set[Lane] = set()
        self._closing: set[asyncio.Task[None]] = set()

    def _lane(self, heir: Lane | None = None) -> Lane:
        return Lane(self.place, self._settings, self._clock, self._context, heir)

    def _raise_fence(self, wire: Wire) -> None:
        # WAIT itself may take the whole command timeout.
        wire.allow(2 * self._settings.command_timeout)
        self.fence = Fence(wire, self._durability.command)

    @property
    def blocking(self) -> int:
        """How many connections for blocking commands there are."""
        return len(self._idle) + len(self._lent)

    def lend(self) -> Lane:
        """Give a connection that nobody else uses until it is given back."""
        if self._idle:
            lane, _ = self._idle.pop()
        else:
            lane = self._lane(self.commands)
        self._lent.add(lane)
        return lane

    def give_back(self, lane: Lane) -> None:
        """Keep a connection for the next blocking command, for a while."""
        self._lent.discard(lane)
        self._idle.append((lane, self._clock.monotonic()))
        if self._retiring is None:
            self._retiring = self._clock.call_later(IDLE_S, self._retire)

    def _retire(self) -> None:
        """Let go of the connections that nobody used for so long; the last used come last."""
        self._retiring = None
        now = self._clock.monotonic()
        while self._idle and now - self._idle[0][1] >= IDLE_S:
            task = asyncio.ensure_future(self._idle.pop(0)[0].close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        if self._idle:
            left = self._idle[0][1] + IDLE_S - now
            self._retiring = self._clock.call_later(left, self._retire)

    async def close(self) -> None:
        """Close every connection."""
        if self._retiring is not None:
            self._retiring.cancel()
            self._retiring = None
        lanes = {lane for lane, _ in self._idle} | self._lent | {self.commands, self.durable}
        self._idle.clear()
        self._lent.clear()
        await asyncio.gather(*(lane.close() for lane in lanes), *self._closing)


async def durably(
    wire: Wire, node: Node, key: str, packed: list[bytes], durability: Durability
) -> Answer:
    """Send a command and the shared WAIT after it; give its reply once it is safe."""
    assert node.fence is not None
    sent = wire.send_all(packed)
    fenced = node.fence.join(key)
    answer = (await sent)[-1]
    if isinstance(answer, ServerSaid | Lost):
        return answer
    mark = await asyncio.shield(fenced)
    if isinstance(mark, ServerSaid | Lost):
        return mark
    durability.check(mark, node.place)
    return answer
