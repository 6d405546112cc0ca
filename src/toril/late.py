"""Explain why a result did not come in time, as far as the storage can tell."""

from __future__ import annotations

from typing import Final

from toril.errors import StorageError
from toril.job import State
from toril.storage.protocol import Storage

_PAGE: Final = 100
_FARTHEST: Final = 1000
"""So far into a line is looked for a job; further back its place matters little."""


def late(job_id: str, limit_s: float) -> str:
    """Begin the message."""
    return f"toril[E09] no result for job {job_id!r} after {limit_s:g} s"


async def why_late(storage: Storage, queue: str, job_id: str, serving: str) -> str:
    """Say how the job is, who works on the queue, and what would help."""
    try:
        (record,) = await storage.get(queue, [job_id])
        workers = len(await storage.workers(queue))
        if record is None:
            return f"it is no longer in queue {queue!r}"
        place = await _place_in_line(storage, queue, job_id, record.state)
    except StorageError as error:
        return str(error)
    if not workers:
        return (
            f"it is {record.state}{place}, and no worker serves queue {queue!r}."
            f" fix: start one, as: toril worker {serving}; or raise timeout="
        )
    return (
        f"it is {record.state}{place}, {workers} worker{'s serve' if workers > 1 else ' serves'}"
        " the queue. fix: wait longer with timeout=, or start more workers"
    )


async def _place_in_line(storage: Storage, queue: str, job_id: str, state: State) -> str:
    if state not in (State.WAITING, State.PRIORITIZED):
        return ""
    ahead = 0
    if state is State.PRIORITIZED:  # those without a priority run first
        ahead = (await storage.counts(queue)).of(State.WAITING)
    for start in range(0, _FARTHEST, _PAGE):
        page = await storage.peek(queue, state, start, start + _PAGE)
        for number, record in enumerate(page, ahead + start + 1):
            if record.spec.id == job_id:
                return f" at position {number:,}"
        if len(page) < _PAGE:
            return ""
    return f" behind {ahead + _FARTHEST:,} others or more"
