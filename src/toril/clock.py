"""Tell the time and set timers, for real or by hand.

Everything in toril that waits takes a `Clock`, so that tests move hours in microseconds and
never sleep.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
import time
from collections.abc import Callable, Generator
from types import coroutine
from typing import Protocol, TypeVar

from toril.errors import InvalidInput

T = TypeVar("T")

_NS = 1_000_000_000
# About 30 years: keeps call_later(math.inf) an integer.
_FOREVER_S = 1e9


class Timer(Protocol):
    """A callback that is due later and can still be called off."""

    def cancel(self) -> None:
        """Call the callback off; do nothing if it ran already."""


class Clock(Protocol):
    """Where time comes from."""

    def now_ms(self) -> int:
        """Give the wall clock as milliseconds since 1970; it may jump."""
        ...

    def monotonic(self) -> float:
        """Give seconds since some fixed point; they never go back."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Run the callback on the current event loop after so many seconds."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""


async def wait_future(clock: Clock, future: asyncio.Future[T], seconds: float | None) -> bool:
    """Wait until the future is done or the time has passed; tell whether it is done.

    Never cancels the future and never raises what it holds. Without `seconds` there is no limit.
    """
    if future.done():
        return True
    if seconds is not None and seconds <= 0:
        # One turn of the loop, or polling with zero would starve whoever resolves the future.
        await asyncio.sleep(0)
        return future.done()
    woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(_done: object = None) -> None:
        if not woken.done():
            woken.set_result(None)

    timer = None if seconds is None else clock.call_later(seconds, wake)
    future.add_done_callback(wake)
    try:
        await woken
    finally:
        future.remove_done_callback(wake)
        if timer is not None:
            timer.cancel()
    return future.done()


@coroutine
def give_way(turns: int) -> Generator[None, None, None]:
    """Let others go first, for so many turns of the loop."""
    for _ in range(turns):
        yield


class SystemClock:
    """The machine's clocks and the running event loop's timers."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Give the wall clock as milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Give seconds since some fixed point."""
        return time.monotonic()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Run the callback on the running event loop after so many seconds."""
        return asyncio.get_running_loop().call_later(seconds, callback)

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""
        await asyncio.sleep(seconds)


class ManualClock:
    """A clock that stands still until it is moved.

    `advance` fires timers one by one at their exact due times; `shift` does the same for code
    without an event loop. An exception in a callback comes out of whoever moved the clock.
    Reading the time and setting timers is allowed from any thread.
    """

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = now_ms
        # Integer nanoseconds: ten steps of 0.1 s must reach a timer set for 1 s.
        self._elapsed_ns = 0
        self._numbers = itertools.count()
        self._timers: list[tuple[int, int, _ManualTimer]] = []
        self._guard = threading.Lock()

    def now_ms(self) -> int:
        """Give the wall clock as milliseconds since 1970."""
        return self._start_ms + self._elapsed_ns // 1_000_000

    def monotonic(self) -> float:
        """Give the seconds this clock was moved by."""
        return self._elapsed_ns / _NS

    @property
    def pending(self) -> int:
        """Count the timers that are neither fired nor cancelled."""
        with self._guard:
            return sum(not timer.over for _, _, timer in self._timers)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Run the callback once the clock was moved so far; without delay, in the next turn.

        It runs on the loop that is running now. Without one it runs in the thread that moves the
        clock, and even a zero delay waits for a move.
        """
        loop = _running_loop()
        if seconds <= 0 and loop is not None:
            return loop.call_soon(callback)
        timer = _ManualTimer(callback, loop)
        with self._guard:
            due_ns = _whole_ms(self._elapsed_ns + _to_ns(max(seconds, 0)))
            heapq.heappush(self._timers, (due_ns, next(self._numbers), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        """Return once the clock was moved so far."""
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await wait_future(self, never, seconds)

    async def advance(self, seconds: float) -> None:
        """Move on, firing due timers in order and letting the loop settle after each."""
        await self.settle()
        target_ns = self._elapsed_ns + _forward(_to_ns(seconds))
        while (timer := self._next_due(target_ns)) is not None:
            timer.fire()
            await self.settle()
        await self.settle()

    async def settle(self, turns: int = 50) -> None:
        """Let the event loop turn until ready tasks have come to rest; threads are not awaited."""
        for _ in range(turns):
            await asyncio.sleep(0)

    def shift(self, ms: int) -> None:
        """Move on by milliseconds, firing due timers in order before it returns.

        Timers of an event loop that runs elsewhere are handed to that loop.
        """
        target_ns = self._elapsed_ns + _forward(ms * 1_000_000)
        while (timer := self._next_due(target_ns)) is not None:
            timer.fire()

    def _next_due(self, target_ns: int) -> _ManualTimer | None:
        """Take the next live timer up to the target and move to its due time, or to the target."""
        with self._guard:
            while self._timers and self._timers[0][0] <= target_ns:
                due_ns, _, timer = heapq.heappop(self._timers)
                if not timer.over:
                    self._elapsed_ns = max(self._elapsed_ns, due_ns)
                    return timer
            self._elapsed_ns = max(self._elapsed_ns, target_ns)
            return None


class _ManualTimer:
    __slots__ = ("_callback", "_loop")

    def __init__(
        self, callback: Callable[[], object], loop: asyncio.AbstractEventLoop | None
    ) -> None:
        self._callback: Callable[[], object] | None = callback
        self._loop = loop

    @property
    def over(self) -> bool:
        return self._callback is None

    def cancel(self) -> None:
        self._callback = None

    def fire(self) -> None:
        if self._loop is None or self._loop is _running_loop():
            self._run()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _to_ns(seconds: float) -> int:
    return round(min(seconds, _FOREVER_S) * _NS)


def _whole_ms(ns: int) -> int:
    """Round up: `now_ms` knows no fractions, so a timer at one would be late for its reader."""
    return -(-ns // 1_000_000) * 1_000_000


def _forward(step_ns: int) -> int:
    if step_ns < 0:
        raise InvalidInput(f"a clock cannot move back by {-step_ns / _NS} s; make a new one")
    return step_ns
