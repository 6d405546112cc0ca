"""Let a scheduler make its next job."""

from __future__ import annotations

from toril.storage.bullmq.keys import Keys
from toril.storage.bullmq.scripts import Command


def continue_commands(
    keys: Keys, job_id: str, fields: dict[bytes, bytes], now_ms: int
) -> list[Command]:
    """Write the commands that make the next job of a scheduler."""
    return []
