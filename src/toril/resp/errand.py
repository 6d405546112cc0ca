"""Carry one call through: to the right node, over broken connections, until patience ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, assert_never

from toril.clock import Clock
from toril.errors import StorageUnavailable
from toril.resp.cluster import Router
from toril.resp.lane import Lane
from toril.resp.node import Node
from toril.resp.replies import (
    Lost,
    Redirect,
    Refusal,
    Reload,
    ServerSaid,
    Stale,
    Wait,
    judge,
    refusal,
)
from toril.resp.script import Script
from toril.resp.wire import ASKING, Answer, Wire, pack

UNKNOWN: Final = "whether the call took effect is unknown, repeating is safe"
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5


def unreached(
    where: str, reason: str, seconds: float, tries: int, *, sent: bool
) -> StorageUnavailable:
    """Make the error for a server that was waited for in vain."""
    counted = f", {tries} failed attempts in {seconds:g} s" if tries else f", waited {seconds:g} s"
    if sent:
        return StorageUnavailable(f"toril[E01] server at {where} ({reason}{counted}): {UNKNOWN}")
    return StorageUnavailable(
        f"toril[E01] cannot reach {where} ({reason}{counted}); nothing was sent"
    )


class Errand:
    """One call under way: where it goes next and how long it may still try.

    Patience is counted from the first trouble. Scripts are loaded again on the connection that
    did not know them, once for all calls that wait for it.
    """

    __slots__ = (
        "_clock",
        "_deadline",
        "_patience",
        "_pause",
        "_pinned",
        "_redirect",
        "_router",
        "_scripts",
        "_sent",
        "asking",
        "durable",
        "key",
        "lane",
        "node",
        "repeats",
        "wire",
    )

    def __init__(
        self,
        router: Router,
        key: str,
        clock: Clock,
        patience: float,
        scripts: Mapping[str, Script],
        *,
        durable: bool = False,
        pinned: Node | None = None,
    ) -> None:
        self.node: Node | None = None
        self.lane: Lane | None = None
        self.wire: Wire | None = None
        self.asking = False
        self.durable = durable
        self.repeats = 0
        self._router = router
        self.key = key
        self._clock = clock
        self._patience = patience
        self._scripts = scripts
        self._deadline: float | None = None
        self._pause = _FIRST_PAUSE_S
        self._redirect: Node | None = None
        self._pinned = pinned
        self._sent = False

    async def find(self) -> Wire:
        """Give a connection to the node whose turn it is; raise `Lost` if there is none yet."""
        node = self.aim()
        return await self.enter(node.durable if self.durable else node.commands)

    async def enter(self, lane: Lane) -> Wire:
        """Give the connection of a lane; raise `Lost` if it cannot be made yet."""
        self.lane = lane
        wire = lane.wire
        if wire is None:
            self._start_clock()
            wire = await lane.ready(min(self._left(), self._router.nap))
        return self.take(lane, wire)

    def take(self, lane: Lane, wire: Wire) -> Wire:
        """Go by this connection of a lane."""
        self.lane, self.wire, self._sent = lane, wire, True
        return wire

    async def send(self, packed: bytes) -> Answer:
        """Send a command to the node whose turn it is; trouble is an answer too."""
        try:
            wire = await self.find()
        except Lost as lost:
            return lost
        if not self.asking:
            return await wire.send(packed)
        return (await wire.send_all(self.prefix(packed)))[-1]

    async def send_all(self, packed: list[bytes]) -> list[Answer]:
        """Send commands together to the node whose turn it is."""
        try:
            wire = await self.find()
        except Lost as lost:
            return [lost] * len(packed)
        if not self.asking:
            return await wire.send_all(packed)
        asked = await wire.send_all([part for one in packed for part in (ASKING, one)])
        return asked[1::2]

    def aim(self) -> Node:
        """Choose the node: the one a redirection named, or the one that serves the key."""
        self.asking = self._redirect is not None
        node, self._redirect = self._redirect or self._pinned, None
        self.node = node or self._router.node(self.key)
        return self.node

    def resume(self, wire: Wire) -> None:
        """Take over after a first try that was made without an errand."""
        self.aim()
        assert self.node is not None
        self.lane, self.wire, self._sent = self.node.commands, wire, True

    def prefix(self, packed: bytes) -> list[bytes]:
        """Put ASKING before a command that was redirected for this once."""
        return [ASKING, packed] if self.asking else [packed]

    def check_open(self) -> None:
        """Raise StorageClosed if the lane was closed under the call."""
        if self.lane is not None:
            self.lane.check_open()

    async def recover(self, trouble: ServerSaid | Lost, shas: Iterable[str] = ()) -> None:
        """Do what makes another try worthwhile, or raise what the caller is to know."""
        self._start_clock()
        self.repeats += 1
        if isinstance(trouble, Lost):
            self._check(str(trouble))
            await self._router.refresh(self.node)
            return
        verdict = judge(trouble)
        match verdict:
            case Reload():
                await self._reload(trouble, shas)
            case Redirect():
                self._check(trouble.text)
                self._follow(verdict)
            case Wait():
                self._check(trouble.text)
                await self._rest()
            case Stale():
                await self._leave(trouble)
            case Refusal():
                raise refusal(trouble, self.where) from None
            case _:
                assert_never(verdict)

    @property
    def where(self) -> str:
        """The server as messages name it."""
        return str(self.node.place) if self.node is not None else "the cluster"

    def _start_clock(self) -> None:
        if self._deadline is None:
            self._deadline = self._clock.monotonic() + self._patience

    def _left(self) -> float:
        assert self._deadline is not None
        return max(self._deadline - self._clock.monotonic(), 0)

    def _check(self, reason: str) -> None:
        if self._left() > 0:
            return
        tries = self.lane.tries if self.lane is not None else 0
        raise unreached(self.where, reason, self._patience, tries, sent=self._sent) from None

    async def _rest(self) -> None:
        await self._clock.sleep(min(self._pause, self._left()))
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_S)

    def _follow(self, to: Redirect) -> None:
        assert self.node is not None
        node = self._router.moved(to.slot, to.host, to.port, self.node, ask=to.ask)
        # After MOVED the map itself leads there.
        self._redirect = node if to.ask else None

    async def _leave(self, trouble: ServerSaid) -> None:
        """Let go of a replica; where another server can be the master, look for it."""
        if self.lane is not None:
            self.lane.drop(trouble.text)
        if self._router.fixed or self._left() <= 0:
            raise refusal(trouble, self.where) from None
        await self._router.refresh(self.node)
        await self._rest()

    async def _reload(self, trouble: ServerSaid, shas: Iterable[str]) -> None:
        scripts = [self._scripts[sha] for sha in shas if sha in self._scripts]
        if not scripts or self.wire is None:
            raise refusal(trouble, self.where) from None
        self._check(trouble.text)
        for script in scripts:
            answer = await self.wire.load(script.sha, pack("SCRIPT", "LOAD", script.text))
            if isinstance(answer, ServerSaid) and not isinstance(judge(answer), Wait):
                raise refusal(answer, self.where) from None
