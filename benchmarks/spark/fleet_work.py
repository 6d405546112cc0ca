"""The job of the fleet's benchmark: nothing, so that the way of working is what is measured."""

from __future__ import annotations

from typing import Any

from toril import JobContext


async def work(job: JobContext[Any]) -> int:
    """Return at once."""
    return int(job.data["n"])
