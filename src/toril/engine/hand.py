"""Hold the jobs a worker has in hand, and know how many more it may take."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Generic

from toril.context import JobContext
from toril.job import In
from toril.storage.protocol import Claimed


class Cause(Enum):
    """Why a handler was told to stop."""

    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LOST = "lost"
    SHUTDOWN = "shutdown"


class Run(Generic[In]):
    """One attempt of one job in this worker."""

    __slots__ = (
        "begun",
        "cause",
        "claimed",
        "context",
        "ended",
        "error",
        "plain",
        "result",
        "seconds",
        "started",
        "task",
    )

    def __init__(self, claimed: Claimed, context: JobContext[In], started: float) -> None:
        self.claimed = claimed
        self.context = context
        self.started = started
        self.seconds = 0.0
        self.begun = False
        # Its outcome is on its way; from here on the storage's answer to that decides.
        self.ended = False
        self.plain = False
        self.cause: Cause | None = None
        # The task it runs in, which other runs may have before and after it.
        self.task: asyncio.Task[None] | None = None
        # What hooks are told once the outcome is recorded.
        self.result: object = None
        self.error: BaseException | None = None

    def stop(self, cause: Cause) -> None:
        """Tell the handler to stop; the first cause counts, but a lost lease beats it."""
        if self.cause is None or cause is Cause.LOST:
            self.cause = cause
        if cause is Cause.LOST:
            self.context.lost = True
        else:
            self.context.cancelled = True

    def interrupt(self) -> None:
        """Raise `CancelledError` where the attempt waits.

        One that has not begun looks at `cause` when it does.
        """
        if self.task is not None and self.begun:
            self.task.cancel()


class Hand(Generic[In]):
    """The runs of one worker. A run keeps its place until its outcome is settled."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.runs: set[Run[In]] = set()
        self.closing = False
        # Places taken without a run: claims under way, and threads that outlive their run.
        self._taken = 0
        self._room = asyncio.Event()
        self._room.set()
        self._busy = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def free(self) -> int:
        """How many more jobs may be claimed."""
        return self.size - len(self.runs) - self._taken

    def add(self, *runs: Run[In]) -> None:
        """Give runs their places."""
        if runs and not self.runs:
            self._busy.set()
            self._empty.clear()
        self.runs.update(runs)
        if len(self.runs) + self._taken >= self.size:
            self._update_room()

    def remove(self, *runs: Run[In]) -> None:
        """Free the places of runs."""
        self.runs.difference_update(runs)
        if not self.runs:
            self._busy.clear()
            self._empty.set()
        if not self._room.is_set():
            self._update_room()

    def take(self, places: int) -> None:
        """Hold places for jobs that are not here yet, or no longer."""
        self._taken += places
        if self.free <= 0:
            self._update_room()

    def give_back(self, places: int) -> None:
        """Free places held by `take`."""
        self._taken -= places
        if not self._room.is_set():
            self._update_room()

    def close(self) -> None:
        """Take no more jobs; whoever waits for room goes on and sees it."""
        self.closing = True
        self._room.set()

    async def room(self) -> None:
        """Wait until a job may be claimed, or the hand closes."""
        await self._room.wait()

    async def busy(self) -> None:
        """Wait until there is a run."""
        await self._busy.wait()

    async def empty(self) -> None:
        """Wait until there is no run."""
        await self._empty.wait()

    def _update_room(self) -> None:
        if self.free > 0 or self.closing:
            self._room.set()
        else:
            self._room.clear()
