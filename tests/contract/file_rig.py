"""A rig for the file storage: a directory of its own, and a clock moved by hand."""

from __future__ import annotations

from pathlib import Path

from toril.clock import ManualClock
from toril.outcome import Lease
from toril.storage.file import FileStorage
from toril.testing import lose_next_reply


class FileRig:
    """Moves the clock that the storage reads."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.storage = FileStorage(directory, durability="memory", clock=self.clock)

    async def advance(self, ms: int) -> None:
        """Move the time and let blocked calls look again."""
        await self._settle()
        await self.clock.advance(ms / 1000)
        await self._settle()

    async def _settle(self) -> None:
        """Let calls under way get to where they block: their answers come before ours."""
        for _ in range(3):
            await self.storage.cursor("nothing")
            await self.storage.leave("nothing", "nobody")
            await self.clock.settle(5)

    async def lapse(self, queue: str, lease: Lease) -> None:
        """Move past the end of the lease."""
        left = await self.storage.lease_left_ms(queue, lease)
        if left is not None:
            await self.advance(max(0, left) + 1)

    async def crash(self, worker_id: str) -> None:
        """Do nothing: a dead worker is one that no longer calls."""

    def lose_reply(self, verb: str) -> None:
        """Break the answer of the next call."""
        lose_next_reply(self.storage, verb)
