"""Find dedup keys held by jobs that are gone: nothing can be queued under them any more."""

from __future__ import annotations

from typing import Final

from toril.doctor.census import Spot, glob
from toril.doctor.finding import Finding, Release, ok, problem, some, them
from toril.doctor.ghosts import pages
from toril.doctor.visit import KEYS_PER_ENTRY, Visit

_STEMS: Final = {"bullmq": "de:", "lean": "dedup:"}
_SCRIPTS: Final = {"bullmq": "holds", "lean": "holds_lean"}


async def check_holds(visit: Visit, spot: Spot, queue: str) -> Finding:
    """Look for such keys; those with a time to live free themselves."""
    stem, script = spot.base + _STEMS[spot.layout], _SCRIPTS[spot.layout]
    walk = visit.walk()
    found: dict[bytes, bytes] = {}
    async for keys in walk.over(f"{glob(stem)}*", "string"):
        for page in pages([key.removeprefix(stem).encode() for key in keys]):
            flat = await visit.run(script, spot, "look", *page)
            found |= dict(zip(flat[::2], flat[1::2], strict=True))
    if not found:
        most = visit.bounds.entries * KEYS_PER_ENTRY
        cut = f" (looked at {most:,} keys, there are more)" if walk.cut else ""
        return ok("dedup", f"no dedup key is held by a job that is gone{cut}", queue)
    it = them(len(found))
    what = "1 dedup key is" if len(found) == 1 else f"{len(found):,} dedup keys are"
    return problem(
        "dedup",
        f"{what} held by jobs that are gone, so that nothing can be added under {it}:"
        f" {some(list(found))}",
        f"toril doctor --fix frees {it}",
        queue=queue,
        count=len(found),
        remedy=Release(queue=queue, holds=tuple(found.items())),
    )


async def release(visit: Visit, remedy: Release) -> int:
    """Free keys that are still held by jobs that are gone."""
    spot = visit.spot(remedy.queue)
    freed = 0
    for page in pages([key for key, _ in remedy.holds]):
        freed += len(await visit.run(_SCRIPTS[spot.layout], spot, "free", *page)) // 2
    return freed
