"""Find running jobs whose owner is gone: nobody holds their lease."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, cast

from toril.doctor.census import Spot
from toril.doctor.finding import Finding, Reap, jobs, ok, problem, some, them, warning
from toril.doctor.ghosts import pages
from toril.doctor.lines import Line
from toril.doctor.visit import Visit
from toril.storage.protocol import Storage

_NO_LIMIT: Final = 1_000_000
"""So often may a job stall here: to fail it is for its worker to decide."""
_ROUNDS: Final = 4
_PATIENCE_S: Final = 31.0
"""A little more than the time for which one look for stalled jobs keeps others from looking."""


async def lapsed_on_server(visit: Visit, spot: Spot, lines: Sequence[Line]) -> Sequence[bytes]:
    """Name the running jobs whose lease is over."""
    if spot.layout == "lean":
        seconds, micros = cast("list[bytes]", await visit.client.call(spot.base, "TIME"))
        now = int(seconds) * 1000 + int(micros) // 1000
        key, most = f"{spot.base}processing", visit.bounds.entries
        command = ("ZRANGEBYSCORE", key, "-inf", f"({now}", "LIMIT", 0, most)
        (ids,) = await visit.pipe(spot, [command])
        return cast("list[bytes]", ids)
    (active,) = [line for line in lines if line.name == "active"]
    found: list[bytes] = []
    base = spot.base.encode()
    for page in pages(active.entries):
        locks = await visit.pipe(spot, [("EXISTS", base + one + b":lock") for one in page])
        suspects = [one for one, lock in zip(page, locks, strict=True) if not lock]
        if suspects:
            found += await visit.run("unlocked", spot, visit.bounds.entries, *suspects)
    return found


def judge_lapsed(queue: str, lapsed: Sequence[bytes], workers: int) -> Finding:
    """Tell who will put such jobs back in line."""
    if not lapsed:
        return ok("leases", "every running job has an owner", queue)
    count = len(lapsed)
    owner = "has no owner, its lease is" if count == 1 else "have no owner, their leases are"
    text = f"{jobs(count)} in active {owner} over: {some(lapsed)}"
    if workers:
        return warning(
            "leases",
            f"{text}; its workers look for such jobs every 30 s",
            f"wait, or toril doctor --fix, which puts {them(count)} back in line at once",
            queue=queue,
            count=count,
            remedy=Reap(queue=queue),
        )
    return problem(
        "leases",
        f"{text}; a worker would put {them(count)} back in line, and there is none",
        f"toril worker APP, or toril doctor --fix, which puts {them(count)} back",
        queue=queue,
        count=count,
        remedy=Reap(queue=queue),
    )


async def reap(storage: Storage, queue: str) -> int:
    """Put jobs back as a worker would: what one look marks, the next one moves."""
    moved = 0
    left = _PATIENCE_S
    for _ in range(_ROUNDS):
        reaped = await storage.reap(queue, _NO_LIMIT, 1)
        moved += len(reaped.stalled) + len(reaped.doomed)
        pause = (reaped.next_in_ms + 1) / 1000
        if pause > left:
            break
        left -= pause
        await asyncio.sleep(pause)
    return moved
