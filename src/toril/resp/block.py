"""Wait on the server: blocking commands, each on a connection of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from toril.clock import Clock, wait_future
from toril.errors import StorageError
from toril.resp.errand import Errand
from toril.resp.lane import Lane
from toril.resp.node import Node
from toril.resp.replies import Lost, Reply, ServerSaid
from toril.resp.wire import Answer, Bundle, See, Wire, pack

Orphan: TypeAlias = "Callable[[Reply], Awaitable[None]]"

MARGIN_S: Final = 2.0
"""What a blocking command may take beyond its own timeout."""
_UNBLOCK_EVERY_S: Final = 0.05
_LAST_WORDS_S: Final = 1.0


class Begun(NamedTuple):
    """Commands that were sent, and the connection that they wait on."""

    node: Node
    lane: Lane
    wire: Wire
    sent: Bundle
    before: int
    """Replies that come before theirs."""


class Blocker:
    """Runs blocking commands, and tidies up behind those that are cancelled."""

    def __init__(self, clock: Clock, command_timeout: float, name: str = "toril") -> None:
        self._clock = clock
        self._timeout = command_timeout
        self._name = name
        self._chores: set[asyncio.Task[None]] = set()

    async def block(
        self,
        errand: Errand,
        packed: bytes,
        timeout_s: float,
        orphan: Orphan | None,
        name: str | None = None,
        see: See | None = None,
        begun: Begun | None = None,
    ) -> Reply:
        """Send the command and wait for its reply; None when the connection broke meanwhile.

        With `name` the connection is called so while it blocks. `see` is shown the reply before
        the caller goes on. `begun` is what `begin` gave for the same command.
        """
        while True:
            try:
                if begun is None:
                    begun = await self._begin(errand, [packed], timeout_s, name, see)
                (answer,) = await self._end(errand, begun, orphan)
                begun = None
            except Lost as lost:
                await errand.recover(lost)
                continue
            if isinstance(answer, Lost):
                errand.check_open()
                return None
            if not isinstance(answer, ServerSaid):
                return answer
            await errand.recover(answer)

    async def block_then(
        self,
        errand: Errand,
        packed: bytes,
        then: bytes,
        timeout_s: float,
        cut: asyncio.Future[None],
        orphan: Orphan,
        name: str | None = None,
    ) -> Reply:
        """Send a blocking command and another that the server runs as soon as it blocks no more.

        Gives the second one's reply; None if it may not have run. Once `cut` is done the server is
        told to stop blocking.
        """
        both = [packed, then]
        try:
            begun = await self._begin(errand, both, timeout_s, name)
            blocked, answer = await self._end(errand, begun, orphan, cut)
        except Lost:
            return None
        if isinstance(blocked, ServerSaid):
            # It did not wait, so the next would not either, unless that is mended.
            try:
                await errand.recover(blocked)
            except StorageError:
                if not isinstance(answer, ServerSaid | Lost):
                    await orphan(answer)
                raise
        if isinstance(answer, Lost):
            errand.check_open()
        return None if isinstance(answer, ServerSaid | Lost) else answer

    async def finish(self) -> None:
        """Give cancelled commands a moment to be tidied up."""
        if self._chores:
            await asyncio.wait(self._chores, timeout=_LAST_WORDS_S)
        for chore in self._chores:
            chore.cancel()
        if self._chores:
            await asyncio.wait(self._chores)

    def begin(
        self, errand: Errand, packed: bytes, timeout_s: float, see: See | None
    ) -> Begun | None:
        """Send a command right now, for `block` to wait for; None if there is no connection yet."""
        node = errand.aim()
        lane = node.lend()
        wire = lane.wire
        if wire is None:
            node.give_back(lane)
            return None
        errand.take(lane, wire)
        return self._send(errand, node, lane, wire, [packed], timeout_s, None, see)

    async def _begin(
        self,
        errand: Errand,
        packed: Sequence[bytes],
        timeout_s: float,
        name: str | None,
        see: See | None = None,
    ) -> Begun:
        node = errand.aim()
        lane = node.lend()
        try:
            wire = await errand.enter(lane)
        except BaseException:
            node.give_back(lane)
            raise
        return self._send(errand, node, lane, wire, packed, timeout_s, name, see)

    def _send(
        self,
        errand: Errand,
        node: Node,
        lane: Lane,
        wire: Wire,
        packed: Sequence[bytes],
        timeout_s: float,
        name: str | None,
        see: See | None,
    ) -> Begun:
        wire.allow(timeout_s + MARGIN_S)
        commands = self._rename(wire, name)
        before = len(commands)
        for one in packed:
            commands += errand.prefix(one)
        return Begun(node, lane, wire, wire.bundle(commands, see), before)

    async def _end(
        self,
        errand: Errand,
        begun: Begun,
        orphan: Orphan | None,
        cut: asyncio.Future[None] | None = None,
    ) -> list[Answer]:
        node, lane, wire, sent, before = begun

        def cut_short(_cut: object) -> None:
            self._start(self._cut_short(node, wire, sent.future))

        if cut is not None:
            cut.add_done_callback(cut_short)
        try:
            answers = (await sent.future)[before:]
        except asyncio.CancelledError:
            # Also when the reply is there already: the caller will never see it.
            self._start(self._unblock(node, lane, wire, sent.renew(), orphan))
            raise
        finally:
            if cut is not None:
                cut.remove_done_callback(cut_short)
        node.give_back(lane)
        return answers[1::2] if errand.asking else answers

    def _rename(self, wire: Wire, name: str | None) -> list[bytes]:
        """Give the command that calls a connection by this name, if it has another one."""
        if wire.name == name:
            return []
        wire.name = name
        return [pack("CLIENT", "SETNAME", name or self._name)]

    def _start(self, chore: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(chore)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    async def _unblock(
        self,
        node: Node,
        lane: Lane,
        wire: Wire,
        sent: asyncio.Future[list[Answer]],
        orphan: Orphan | None,
    ) -> None:
        """End a command nobody waits for any more; hand what it brought to `orphan`."""
        try:
            if not await self._talk_out(node, wire, sent):
                # Killed through the command connection, so that it takes nothing from others.
                wire.break_off("cancelled while it blocked")
            answer = sent.result()[-1]
            # Blocking commands give nil or an empty list when they bring nothing.
            if orphan is not None and answer and not isinstance(answer, ServerSaid | Lost):
                await orphan(answer)
        finally:
            node.give_back(lane)

    async def _cut_short(self, node: Node, wire: Wire, sent: asyncio.Future[list[Answer]]) -> None:
        """End a command whose caller wants its reply now."""
        if not await self._talk_out(node, wire, sent):
            wire.break_off("cut short while it blocked")

    async def _talk_out(self, node: Node, wire: Wire, sent: asyncio.Future[list[Answer]]) -> bool:
        """Ask the server to stop blocking until it did; tell whether the reply came."""
        deadline = self._clock.monotonic() + self._timeout
        while not sent.done() and wire.client_id and self._clock.monotonic() < deadline:
            commands = node.commands.wire
            if commands is None:
                break
            # The blocking command may still be on its way; then the server knows of no block.
            asked = commands.send(pack("CLIENT", "UNBLOCK", wire.client_id))
            await wait_future(self._clock, sent, _UNBLOCK_EVERY_S)
            if asked.done() and isinstance(asked.result(), ServerSaid):
                break  # an ACL may forbid it
        return sent.done()
