"""Tell the server's time from this side: for the official scripts, which are told it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

_FRESH_S: Final = 30.0
_LOOKS: Final = 3
_NEAR_MS: Final = 2.0
"""Bounds so near to each other need no other look."""
_ROUNDED_MS: Final = 0.001
"""Bounds that miss each other by no more meet: a time in ms is rounded to a quarter of this."""
_SET_S: Final = 0.02
"""More than a clock that is slewed goes wrong while a look is fresh: somebody set it."""


class Ahead(NamedTuple):
    """By how many ms the server's clock is ahead of ours, at least and at most.

    A reply tells what time it was somewhere between question and answer. To take the middle would
    be a guess, wrong by up to half of the way: a job would start early.
    """

    least: float = -math.inf
    most: float = math.inf

    def saw(self, *, before: float, server: float, after: float) -> Ahead:
        """Learn from a look: what our clock said before and after it, and the server's between."""
        least, most = server - after, server - before
        low, high = max(least, self.least), min(most, self.most)
        if low - high > _ROUNDED_MS:  # one of the clocks was set meanwhile
            return Ahead(least, most)
        return Ahead(min(low, high), max(low, high))


class ServerTime:
    """The server's clock, looked at now and then, and on every new line to it."""

    def __init__(
        self, ask: Callable[[], Awaitable[float]], line: Callable[[], object | None]
    ) -> None:
        self._ask = ask
        self._line = line
        self._asked_on: object | None = None
        self._ahead = Ahead()
        self._at = -math.inf
        self._apart = 0.0
        self._looking: asyncio.Future[None] | None = None

    async def read(self) -> tuple[int, int]:
        """Give a time that the server has reached, and one that it has not passed, in ms."""
        if not self._is_fresh():
            await self._look_together()
        here = time.time() * 1000
        return math.floor(here + self._ahead.least), math.ceil(here + self._ahead.most)

    async def _look_together(self) -> None:
        """Look, or wait for the look that is under way: where one fails, all of them did."""
        look = self._looking
        if look is None:
            look = self._looking = asyncio.ensure_future(self._look())
            look.add_done_callback(self._looked)
        await asyncio.wait([look])
        error = look.exception()
        if error is not None:
            # Anew for each caller: an error that many raise grows everybody's traceback.
            raise type(error)(*error.args)

    def _looked(self, look: asyncio.Future[None]) -> None:
        self._looking = None
        if not look.cancelled():
            look.exception()  # there may be nobody left to hear of it

    async def _look(self) -> None:
        ahead, asked_on = Ahead(), self._line()
        for _ in range(_LOOKS):
            before = time.time() * 1000
            server = await self._ask()
            ahead = ahead.saw(before=before, server=server, after=time.time() * 1000)
            if ahead.most - ahead.least <= _NEAR_MS:
                break
        self._ahead, self._asked_on = ahead, asked_on
        self._at = time.monotonic()
        self._apart = time.time() - self._at

    def _is_fresh(self) -> bool:
        mono, line = time.monotonic(), self._line()
        return (
            line is not None
            and self._asked_on is line
            and mono - self._at <= _FRESH_S
            and abs(time.time() - mono - self._apart) <= _SET_S
        )
