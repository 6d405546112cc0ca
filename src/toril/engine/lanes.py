"""Run attempts in as few tasks as they need: those that never wait share one.

A task costs more than all else that a worker does for a job whose handler returns at once. So
attempts begin one after the other in one task, a lane, until one of them waits: it keeps that
task to itself until it ends, and each of the others gets a lane. Every attempt has a context of
its own, whichever lane it runs in.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from types import coroutine
from typing import Any, Generic

from toril.engine.hand import Run
from toril.job import In


class Lanes(Generic[In]):
    """Starts runs in the order they come, at the next turn of the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        attempt: Callable[[Run[In]], Coroutine[Any, Any, None]],
    ) -> None:
        self._loop = loop
        self._attempt = attempt
        self._context = copy_context()
        self._ready: deque[Run[In]] = deque()
        # Lanes that were opened and have not begun.
        self._coming = 0
        # Whether the last attempt had to wait for something; most often the next one has, too.
        self._waits = False

    def start(self, run: Run[In]) -> None:
        """Let a run begin soon."""
        self._ready.append(run)
        if self._waits or not self._coming:
            self._open(len(self._ready) if self._waits else 1)

    def _open(self, wanted: int) -> None:
        for _ in range(self._coming, min(wanted, len(self._ready))):
            self._coming += 1
            self._loop.create_task(self._lane(), context=self._context.copy())

    async def _lane(self) -> None:
        self._coming -= 1
        task = asyncio.current_task()
        try:
            # Whoever cancelled the task meant the run that had it: the next one gets another.
            while self._ready and task is not None and not task.cancelling():
                run = self._ready.popleft()
                run.task = task
                attempt = self._attempt(run)
                # A fresh copy, so that what one handler binds is unseen by the next.
                context = self._context.copy()
                try:
                    awaited = context.run(attempt.send, None)
                except StopIteration:
                    self._waits = False
                else:
                    self._waits = True
                    self._open(len(self._ready))
                    await self._drive(attempt, context, awaited)
                    self._waits = True  # others may have ended without, meanwhile
                run.task = None
        finally:
            self._open(1)

    @coroutine
    def _drive(
        self, attempt: Coroutine[Any, Any, None], context: Context, awaited: Any
    ) -> Generator[Any, Any, None]:
        """Go on in its context with an attempt that waits for something, until it ends."""
        step: Callable[[Any], Any]
        while True:
            try:
                step, value = attempt.send, (yield awaited)
            except BaseException as error:
                step, value = attempt.throw, error
            try:
                awaited = context.run(step, value)
            except StopIteration:
                return
