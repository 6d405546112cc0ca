"""Find out which handler keeps the event loop from going on, from another thread."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from toril.engine.hand import Run
from toril.engine.journal import Journal
from toril.whence import running_line


class Standstill:
    """A loop that does not answer: whose turn it is, at which line, and who waits for it."""

    def __init__(self, task: str, line: str, others: int, *, renewed: bool = True) -> None:
        self._renewed = renewed
        self._task = task
        self._line = line
        self._others = others
        self._told = False

    @classmethod
    def of(
        cls, loop: asyncio.AbstractEventLoop, thread: int, runs: Sequence[Run[Any]]
    ) -> Standstill:
        """Look at the loop's thread as it is now."""
        frame = sys._current_frames().get(thread)
        current = asyncio.current_task(loop)
        # A run that waits to begin, or has ended, has no task; nor has a loop between two tasks.
        guilty = next((run for run in runs if run.task and run.task is current), None)
        return cls(
            "" if guilty is None else guilty.claimed.spec.name,
            "" if frame is None else running_line(frame),
            len(runs) - (guilty is not None),
        )

    def tell(self, journal: Journal, seconds: float) -> None:
        """Log it, once."""
        if not self._told:
            self._told = True
            journal.loop_blocked(
                seconds,
                task=self._task,
                line=self._line,
                others=self._others,
                renewed=self._renewed,
            )
