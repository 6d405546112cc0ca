"""Tell the server's time from this side: for the official scripts, which are told it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final

_FRESH_S: Final = 30.0
_LOOKS: Final = 3
_NEAR_MS: Final = 2.0
"""Bounds so near to each other need no other look."""
_SET_S: Final = 0.02
"""More than a clock that is slewed goes wrong while a look is fresh: somebody set it."""


class ServerTime:
    """The server's clock between two bounds.

    A reply says what time it was somewhere between question and answer. The middle would be a
    guess, wrong by up to half of the way: a job would start early. Several looks are put together
    to what all of them allow.
    """

    def __init__(self) -> None:
        self._bounds = (-math.inf, math.inf)  # ms by which the server's clock is ahead of ours
        self._at = -math.inf
        self._apart = 0.0
        self._looking = asyncio.Lock()

    async def read(self, ask: Callable[[], Awaitable[float]]) -> tuple[int, int]:
        """Give a time that the server has reached, and one that it has not passed, in ms."""
        if not self._is_fresh():
            async with self._looking:
                if not self._is_fresh():
                    await self._look(ask)
        least, most = self.bounds(time.time() * 1000)
        return math.floor(least), math.ceil(most)

    def bounds(self, here: float) -> tuple[float, float]:
        """Between which times the server's clock is when ours says `here`; all in ms."""
        least, most = self._bounds
        return here + least, here + most

    def saw(self, *, before: float, server: float, after: float) -> None:
        """Learn from a look: what our clock said before and after, and the server's between."""
        least, most = server - after, server - before
        known_least, known_most = self._bounds
        if least <= known_most and known_least <= most:
            least, most = max(least, known_least), min(most, known_most)
        self._bounds = least, most  # if they exclude each other, one of the clocks was set

    async def _look(self, ask: Callable[[], Awaitable[float]]) -> None:
        found = ServerTime()
        for _ in range(_LOOKS):
            before = time.time() * 1000
            server = await ask()
            found.saw(before=before, server=server, after=time.time() * 1000)
            least, most = found._bounds
            if most - least <= _NEAR_MS:
                break
        self._bounds = found._bounds
        self._at = time.monotonic()
        self._apart = time.time() - self._at

    def _is_fresh(self) -> bool:
        mono = time.monotonic()
        return mono - self._at <= _FRESH_S and abs(time.time() - mono - self._apart) <= _SET_S
