"""A memory storage under a machine that takes one step after the other."""

from __future__ import annotations

from toril.testing.rig import MemoryRig


class QuietRig(MemoryRig):
    """Moves the clock at once: between two steps nobody is on the loop to be woken by it."""

    async def advance(self, ms: int) -> None:
        """Move the clock."""
        self.clock.shift(ms)
