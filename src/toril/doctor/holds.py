"""Find dedup keys held by jobs that are gone: nothing can be queued under them any more."""

from __future__ import annotations

from toril.doctor.census import Spot, Walk, glob
from toril.doctor.finding import Finding, Release, ok, problem, some
from toril.doctor.ghosts import pages
from toril.doctor.visit import Visit


async def check_holds(visit: Visit, spot: Spot, queue: str) -> Finding:
    """Look for such keys of a BullMQ queue; those with a time to live free themselves."""
    stem = f"{spot.base}de:"
    walk = Walk(visit.client, visit.bounds.entries * 10)
    found: dict[bytes, bytes] = {}
    async for keys in walk.over(f"{glob(stem)}*", "string"):
        for page in pages([key.removeprefix(stem).encode() for key in keys]):
            flat = await visit.run("holds", spot, "look", *page)
            found |= dict(zip(flat[::2], flat[1::2], strict=True))
    if not found:
        return ok("dedup", "no dedup key is held by a job that is gone", queue)
    what = "1 dedup key is" if len(found) == 1 else f"{len(found):,} dedup keys are"
    return problem(
        "dedup",
        f"{what} held by jobs that are gone, so that nothing can be added under them:"
        f" {some(list(found))}",
        "toril doctor --fix frees them",
        queue=queue,
        count=len(found),
        remedy=Release(queue=queue, holds=tuple(found.items())),
    )


async def release(visit: Visit, remedy: Release) -> int:
    """Free keys that are still held by jobs that are gone."""
    spot = visit.spot(remedy.queue)
    freed = 0
    for page in pages([key for key, _ in remedy.holds]):
        freed += len(await visit.run("holds", spot, "free", *page)) // 2
    return freed
