"""Run attempts in as few tasks as they need: those that never wait share one.

A task costs more than all else that a worker does for a job whose handler returns at once. So
attempts begin one after the other in one task, a lane, until one of them waits: it keeps that
task to itself until it ends. A lane costs those who wait more than a task of their own. So the
others get one each, and those after them, too, as long as one of them now and then, in a lane
again, turns out to wait. Every attempt has a context of its own, whichever task it runs in.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from types import coroutine
from typing import Any, Final, Generic

from toril.engine.hand import Run
from toril.job import In

_UNSEEN: Final = 31
"""So many attempts in a row run where it is not seen whether they wait."""


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
        # Whether a lane was opened and has not begun.
        self._coming = False
        # Whether the last attempt in a lane had to wait; most often the next one has to, too.
        self._waits = False
        # How many began in tasks of their own since then.
        self._alone = 0

    def start(self, run: Run[In]) -> None:
        """Let a run begin soon."""
        if self._waits and self._alone < _UNSEEN:
            self._alone += 1
            self._start_alone(run)
            return
        self._alone = 0
        self._ready.append(run)
        if not self._coming:
            self._open()

    def _start_alone(self, run: Run[In]) -> None:
        run.task = self._loop.create_task(self._attempt(run), context=self._context.copy())

    def _open(self) -> None:
        self._coming = True
        self._loop.create_task(self._lane(), context=self._context.copy())

    async def _lane(self) -> None:
        self._coming = False
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
                    while self._ready:
                        self._start_alone(self._ready.popleft())
                    await self._drive(attempt, context, awaited)
                    self._waits = True  # others may have ended without, meanwhile
                run.task = None
        finally:
            if self._ready and not self._coming:
                self._open()

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
