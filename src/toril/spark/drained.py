"""Tell whether a queue has work left for those who stop when it is drained."""

from __future__ import annotations

from typing import Final

from toril.clock import Clock
from toril.job import State
from toril.storage.protocol import Counts, Storage

SOON_MS: Final = 5_000
"""Delayed jobs that fall due within this time are waited for; also bounds the clocks' skew."""

_LOOKED_AT: Final = 100


async def is_drained(storage: Storage, queue: str, counts: Counts, clock: Clock) -> bool:
    """Tell whether nothing waits, nothing runs, and no retry is to come.

    `counts` are one snapshot, so a job on its way from running to waiting is in one of them. Of
    the delayed jobs those count that have run before or fall due soon, looked for among the
    hundred that are next.
    """
    if counts.ready or counts.active:
        return False
    if not counts.delayed:
        return True
    soon = clock.now_ms() + SOON_MS
    delayed = await storage.peek(queue, State.DELAYED, 0, _LOOKED_AT)
    if len(delayed) < min(counts.delayed, _LOOKED_AT):
        return False  # one has come into line since they were counted
    return not any(
        one.attempts_started or one.attempts_made or (one.due_ms or 0) <= soon for one in delayed
    )
