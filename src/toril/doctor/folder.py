"""Check a file storage: its disk, its promise, its queues."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Sequence
from typing import Final

from toril.doctor.finding import Bounds, Finding, ok, warning
from toril.doctor.flow import check_flow, look
from toril.doctor.leases import judge_lapsed
from toril.job import State
from toril.storage.file import FileStorage
from toril.storage.file.directory import DATABASE

_SPARE: Final = 100 * 1024 * 1024
"""Less free space than this is little: a checkpoint and a burst of jobs may need it."""


async def check_folder(
    storage: FileStorage, names: Sequence[str], bounds: Bounds
) -> AsyncIterator[Finding]:
    """Check an open file storage, then the queues named, or all."""
    yield _space(storage)
    yield _promise(storage)
    queues = await storage.queues()
    if not names:
        yield ok("queues", f"{len(queues):,} in {storage.address.directory}")
    for queue in names or queues:
        if queue not in queues:
            yield warning(
                "place",
                f"queue '{queue}' holds nothing in {storage.address.directory}",
                "toril queue list shows those that do",
                queue=queue,
            )
            continue
        async for finding in _queue(storage, queue, bounds):
            yield finding


def _space(storage: FileStorage) -> Finding:
    directory = storage.address.directory
    free = shutil.disk_usage(directory).free
    size = (directory / DATABASE).stat().st_size
    text = f"{free / 1e6:,.0f} MB free, {size / 1e6:,.1f} MB used, in {directory}"
    if free < max(_SPARE, size):
        fix = "free space, or delete finished jobs: toril queue clean QUEUE --older-than 7d"
        return warning("disk", text, fix)
    return ok("disk", text)


def _promise(storage: FileStorage) -> Finding:
    if storage.address.durability == "memory":
        return warning(
            "persistence",
            "durability=memory: a loss of power may take the newest jobs",
            "leave durability out of the URL",
        )
    return ok("persistence", "every change is on the disk before it is answered")


async def _queue(storage: FileStorage, queue: str, bounds: Bounds) -> AsyncIterator[Finding]:
    flow = await look(storage, queue, storage.clock.now_ms())
    for finding in check_flow(queue, flow):
        yield finding
    active = min(flow.counts.of(State.ACTIVE), bounds.entries)
    lapsed = await storage.lapsed(queue, active) if active else ()
    yield judge_lapsed(queue, [one.encode() for one in lapsed], len(flow.workers))
