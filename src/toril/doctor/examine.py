"""Examine a storage by its URL, and mend what can be mended without loss."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import assert_never

from toril.doctor.finding import (
    Bounds,
    Finding,
    Merge,
    Reap,
    Release,
    Remedy,
    Report,
    Strike,
    jobs,
    ok,
)
from toril.doctor.flow import check_flow, look
from toril.doctor.folder import check_folder
from toril.doctor.ghosts import strike
from toril.doctor.holds import release
from toril.doctor.leases import reap
from toril.doctor.rounds import make_rounds
from toril.doctor.visit import Visit, visiting
from toril.ids import check_name
from toril.resp.url import parse_url
from toril.storage import open_storage
from toril.storage.file import FileStorage
from toril.storage.protocol import Storage


async def examine(url: str, queues: Sequence[str] = (), bounds: Bounds | None = None) -> Report:
    """Check a storage and its queues, or some of them; nothing is changed.

    Raises StorageUnavailable or StorageDenied where the storage cannot be reached at all.
    """
    limits = bounds or Bounds()
    names = [check_name("queue", name) for name in queues]
    if _is_server(url):
        async with visiting(parse_url(url), limits) as visit:
            found = [one async for one in make_rounds(visit, names)]
            return Report(url=visit.address.safe, findings=tuple(found))
    async with _opened(open_storage(url)) as storage:
        if isinstance(storage, FileStorage):
            found = [one async for one in check_folder(storage, names, limits)]
        else:
            found = [one async for one in _check_contract(storage, names)]
        return Report(url=storage.url, findings=tuple(found))


async def mend(url: str, remedies: Sequence[Remedy], bounds: Bounds | None = None) -> list[str]:
    """Do what was proposed, as far as it still applies; tell what was done."""
    if not _is_server(url):
        async with _opened(open_storage(url)) as storage:
            return [await _apply(one, storage, None) for one in remedies]
    async with visiting(parse_url(url), bounds or Bounds()) as visit, visit.storage() as storage:
        return [await _apply(one, storage, visit) for one in remedies]


async def _apply(remedy: Remedy, storage: Storage, visit: Visit | None) -> str:
    match remedy:
        case Reap(queue=queue):
            return f"{queue}: put {jobs(await reap(storage, queue))} back in line"
        case Merge(queue=queue, paused=paused):
            await storage.pause(queue, paused)
            return f"{queue}: put its waiting jobs into one line"
        case Strike(queue=queue, line=line):
            assert visit is not None
            return f"{queue}: took {await strike(visit, remedy):,} out of '{line}'"
        case Release(queue=queue):
            assert visit is not None
            return f"{queue}: freed {await release(visit, remedy):,} dedup keys"
        case _:
            assert_never(remedy)


async def _check_contract(storage: Storage, names: Sequence[str]) -> AsyncIterator[Finding]:
    """Check what any storage can tell."""
    queues = names or await storage.queues()
    yield ok("queues", f"{len(queues):,} at {storage.url}")
    for queue in queues:
        for finding in check_flow(queue, await look(storage, queue, _now_ms())):
            yield finding


def _now_ms() -> int:
    from toril.clock import SystemClock

    return SystemClock().now_ms()


def _is_server(url: str) -> bool:
    """Whether a URL names a Redis or Valkey server; `open_storage` knows all schemes."""
    if url.startswith(("memory:", "file:")):
        return False
    scheme = url.partition(":")[0].lower().removeprefix("bullmq+")
    return scheme.partition("+")[0] in ("redis", "rediss", "unix", "embedded")


@asynccontextmanager
async def _opened(storage: Storage) -> AsyncIterator[Storage]:
    await storage.open()
    try:
        yield storage
    finally:
        await storage.close()
