"""Wake blocked calls of this process, on their own loops, from any thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Iterable
from contextlib import suppress
from enum import StrEnum


class News(StrEnum):
    """What a blocked call may wait for."""

    WORK = "work"
    EVENTS = "events"
    ENDINGS = "endings"


class Waker:
    """One blocked call; told as often as there is news, heard when it looks."""

    __slots__ = ("_loop", "future", "ids")

    def __init__(self, ids: Collection[str] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self.ids = None if ids is None else frozenset(ids)
        self.future: asyncio.Future[None] = self._loop.create_future()

    def rearm(self) -> None:
        """Be ready for the next news; what was told before is heard."""
        if self.future.done():
            self.future = self._loop.create_future()

    def wake(self) -> None:
        """Tell the call, from any thread."""
        with suppress(RuntimeError):  # the loop has closed, and the call with it
            self._loop.call_soon_threadsafe(self._set)

    def _set(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class Bells:
    """The blocked calls of one storage, by queue and by what they wait for."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._wakers: dict[tuple[str, News], set[Waker]] = {}

    @property
    def quiet(self) -> bool:
        """Whether nobody waits."""
        return not self._wakers

    def add(self, queues: Iterable[str], news: News, waker: Waker) -> None:
        """Let a call hear of one kind of news."""
        with self._guard:
            for queue in queues:
                self._wakers.setdefault((queue, news), set()).add(waker)

    def discard(self, queues: Iterable[str], news: News, waker: Waker) -> None:
        """Let a call go."""
        with self._guard:
            for queue in queues:
                wakers = self._wakers.get((queue, news))
                if wakers is not None:
                    wakers.discard(waker)
                    if not wakers:
                        del self._wakers[queue, news]

    def ring(self, queue: str, news: News, ids: Collection[str] | None = None) -> None:
        """Wake who waits for that; with `ids`, only those who wait for one of them."""
        if not self._wakers:
            return
        with self._guard:
            wakers = list(self._wakers.get((queue, news), ()))
        for waker in wakers:
            if ids is None or waker.ids is None or not waker.ids.isdisjoint(ids):
                waker.wake()

    def ring_all(self) -> None:
        """Wake everybody, to look again."""
        with self._guard:
            wakers = {waker for some in self._wakers.values() for waker in some}
        for waker in wakers:
            waker.wake()

    def watched(self) -> list[tuple[str, News]]:
        """What somebody waits for."""
        with self._guard:
            return list(self._wakers)
