"""Speak RESP over one connection: commands out in bundles, replies back in order.

A wire never repeats anything. When it breaks, every command without a reply is answered with
`Lost`, and whoever sent it decides.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, cast

from hiredis import ProtocolError, Reader, pack_command

from toril.clock import Clock, Timer
from toril.resp.replies import Argument, Lost, Reply, ServerSaid
from toril.resp.url import show_host
from toril.text import printable

Answer: TypeAlias = "Reply | ServerSaid | Lost"
See: TypeAlias = Callable[[Reply], None]

# A timer that fires this late tells of a blocked event loop, not of a silent server.
_LATE_S: Final = 0.25
NOTHING: Final = object()
"""What the parser says while a reply is incomplete."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One server: a host and port, or the path of a Unix socket."""

    host: str
    port: int
    path: str | None = None

    def __str__(self) -> str:
        return self.path if self.path is not None else show_host((self.host, self.port))


@dataclass(frozen=True, slots=True)
class Ghost:
    """A connection that broke with commands under way; its server may still run them."""

    run_id: str
    client_id: int


class _Slot(Protocol):
    """Where a reply goes: a future, or a collector of several replies."""

    def done(self) -> bool: ...

    def set_result(self, result: Answer, /) -> None: ...


# Typed more narrowly in hiredis than what it takes and gives.
pack_all: Final = cast("Callable[[tuple[Argument, ...]], bytes]", pack_command)
"""Write a command, given as a tuple, as RESP."""


def pack(*args: Argument) -> bytes:
    """Write a command as RESP."""
    return pack_all(args)


ASKING: Final = pack("ASKING")
"""Makes a node of a cluster answer for a slot it is just taking over."""


class Bundle:
    """Collects the replies of several commands sent as one; `see` is shown the last, if it is none
    of an error, before whoever waits for them goes on."""

    __slots__ = ("_answers", "_missing", "_see", "future")

    def __init__(
        self, count: int, future: asyncio.Future[list[Answer]], see: See | None = None
    ) -> None:
        self._answers: list[Answer] = []
        self._missing = count
        self._see = see
        self.future = future

    def done(self) -> bool:
        """Never: a cancelled bundle must still take its replies."""
        return False

    def set_result(self, result: Answer, /) -> None:
        """Take the next reply; the last one completes the future."""
        self._answers.append(result)
        self._missing -= 1
        if not self._missing and not self.future.done():
            try:
                if self._see is not None and not isinstance(result, Exception):
                    self._see(result)
            finally:
                self.future.set_result(self._answers)

    def renew(self) -> asyncio.Future[list[Answer]]:
        """Give a future for the replies, also after the first one was cancelled."""
        if self.future.cancelled():
            self._see = None
            self.future = self.future.get_loop().create_future()
            if not self._missing:
                self.future.set_result(self._answers)
        return self.future


class Glance:
    """Shows a reply to somebody before the one who waits for it goes on; errors to him only."""

    __slots__ = ("_future", "_see", "done")

    def __init__(self, future: asyncio.Future[Answer], see: See) -> None:
        self.done = future.done
        self._future = future
        self._see = see

    def set_result(self, result: Answer, /) -> None:
        """Take the reply."""
        try:
            if not isinstance(result, Exception):
                self._see(result)
        finally:
            self._future.set_result(result)


class Wire(asyncio.Protocol):
    """One connection. `limit` is how long it may be silent while it owes a reply."""

    def __init__(
        self, clock: Clock, limit: float, on_lost: Callable[[Wire], None] | None = None
    ) -> None:
        self.limit = limit
        self.on_lost = on_lost
        self.client_id = 0
        self.run_id = ""
        self.name: str | None = None
        """What it is called just now, if not as all others."""
        self.info: dict[str, str] = {}
        self.lost: Lost | None = None
        self.owing = 0
        """Commands without a reply when the connection broke."""
        self.writes = 0
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._reader = Reader(replyError=ServerSaid, notEnoughData=NOTHING)
        self._waiting: deque[_Slot] = deque()
        self._loads: dict[str, asyncio.Future[Answer]] = {}
        self._out: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._timer: Timer | None = None
        self._quiet_since = 0.0
        self._due = 0.0
        self._gone: asyncio.Future[None] = self._loop.create_future()

    def allow(self, limit: float) -> None:
        """Change how long the connection may be silent, from now on."""
        if limit == self.limit:
            return
        self.limit = limit
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and self.lost is None:
            self._arm(self._quiet_since + limit)

    @property
    def ghost(self) -> Ghost | None:
        """What may still run on the server after this connection broke."""
        known = self.client_id and self.run_id
        return Ghost(self.run_id, self.client_id) if known and self.owing else None

    def send(self, packed: bytes, see: See | None = None) -> asyncio.Future[Answer]:
        """Send a command; the future gets the reply, whatever it is.

        At once if the server owes nothing, else with all others of this turn of the loop. `see` is
        shown the reply as soon as it is there; it must not raise.
        """
        future: asyncio.Future[Answer] = self._loop.create_future()
        if self.lost is not None:
            future.set_result(self.lost)
            return future
        idle = not self._waiting
        if idle:
            self._quiet_since = self._clock.monotonic()
        self._waiting.append(future if see is None else Glance(future, see))
        self._put([packed], idle)
        return future

    def send_all(self, packed: Sequence[bytes]) -> asyncio.Future[list[Answer]]:
        """Send several commands that nothing comes between; the future gets all replies."""
        return self.bundle(packed).future

    def bundle(self, packed: Sequence[bytes], see: See | None = None) -> Bundle:
        """Send several commands; give what collects their replies."""
        bundle = Bundle(len(packed), self._loop.create_future(), see)
        if self.lost is not None:
            for _ in packed:
                bundle.set_result(self.lost)
            return bundle
        idle = not self._waiting
        if idle:
            self._quiet_since = self._clock.monotonic()
        self._waiting.extend([bundle] * len(packed))
        self._put(packed, idle)
        return bundle

    def _put(self, packed: Sequence[bytes], idle: bool) -> None:
        if idle and not self._out:
            self._out.extend(packed)
            self._flush()
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.extend(packed)

    async def load(self, sha: str, packed: bytes) -> Answer:
        """Send the SCRIPT LOAD of a script once for all who ask while it is under way."""
        future = self._loads.get(sha)
        if future is None:
            future = self._loads[sha] = self.send(packed)
            future.add_done_callback(lambda _reply: self._loads.pop(sha))
        return await asyncio.shield(future)

    def break_off(self, reason: str) -> None:
        """Give the connection up; everything unanswered is answered with `Lost`."""
        self._fail(reason)
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Close the connection and wait until the event loop has let go of it."""
        self.on_lost = None
        self.break_off("closed by us")
        if self._transport is not None:
            await asyncio.wait([self._gone], timeout=1)

    def _flush(self) -> None:
        if self.lost is not None or self._transport is None or not self._out:
            return
        out, self._out = self._out, []
        # Without flow control on purpose: each caller waits for its reply, so what can pile up
        # is what callers hold anyway.
        self._transport.write(out[0] if len(out) == 1 else b"".join(out))
        self.writes += 1
        if self._timer is None:
            self._arm(self._quiet_since + self.limit)

    def _arm(self, due: float) -> None:
        self._due = due
        self._timer = self._clock.call_later(max(due - self._clock.monotonic(), 0), self._check)

    def _check(self) -> None:
        """Break off when the server was silent for `limit` while it owed a reply."""
        self._timer = None
        if not self._waiting or self.lost is not None:
            return
        now = self._clock.monotonic()
        if now - self._due > _LATE_S:
            # The reply may lie unread in the socket.
            self._quiet_since = now
        due = self._quiet_since + self.limit
        if now < due:
            self._arm(due)
        else:
            self.break_off(f"no reply within {self.limit:g} s")

    def _fail(self, reason: str) -> None:
        if self.lost is not None:
            return
        self.lost = Lost(reason)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, deque()
        self.owing = len(waiting)
        self._out.clear()
        for slot in waiting:
            if not slot.done():
                slot.set_result(self.lost)
        if self.on_lost is not None:
            self.on_lost(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection over."""
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != getattr(socket, "AF_UNIX", None):
            tune(sock)

    def data_received(self, data: bytes) -> None:
        """Hand out the replies in the order of the commands."""
        self._quiet_since = self._clock.monotonic()
        reader, waiting = self._reader, self._waiting
        reader.feed(data)
        try:
            while (reply := reader.gets()) is not NOTHING:
                if not waiting:
                    # A server that refuses a client says why before it hangs up.
                    self.break_off(str(reply.text if isinstance(reply, ServerSaid) else "unasked"))
                    return
                slot = waiting.popleft()
                if not slot.done():
                    slot.set_result(reply)
        except ProtocolError:
            self.break_off("not a RESP server, or the stream is damaged")

    def eof_received(self) -> None:
        """Let the transport close."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Answer everything that is left with `Lost`."""
        self._fail("closed by the server" if exc is None else reason_of(exc))
        if not self._gone.done():
            self._gone.set_result(None)


def tune(sock: socket.socket) -> None:
    """Send at once, and let the kernel notice a dead peer in about half a minute."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def reason_of(error: BaseException) -> str:
    """Say in a few words why a connection could not be made or kept."""
    match error:
        case ConnectionRefusedError():
            return "connection refused"
        case TimeoutError():
            return "timed out"
        case socket.gaierror():
            return f"cannot resolve the name ({error.strerror})"
        case FileNotFoundError():
            return "no such socket"
        case OSError(strerror=str(text)) if text:
            return text.lower()
        case OSError() if f"[Errno {errno.ECONNREFUSED}]" in str(error):
            # What asyncio makes of a name with several addresses.
            return "connection refused"
        case _:
            return printable(error, 200) or type(error).__name__
