"""Find schedulers that stopped, and jobs of schedulers that are gone.

On the BullMQ wire nobody watches the clock: each job of a scheduler makes the next one when it
starts. Where the chain broke, nothing runs and nothing tells.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from toril.doctor.census import Spot
from toril.doctor.finding import Finding, jobs, ok, problem, some, warning
from toril.doctor.ghosts import pages
from toril.doctor.lines import Line
from toril.doctor.visit import Visit

_PENDING: Final = ("wait", "paused", "prioritized", "delayed", "active")
_STEM: Final = b"repeat:"


async def check_schedulers(
    visit: Visit, spot: Spot, queue: str, lines: Sequence[Line]
) -> AsyncIterator[Finding]:
    """Hold the schedulers of a queue against their jobs."""
    last = visit.bounds.entries - 1
    (known,) = await visit.pipe(spot, [("ZRANGE", f"{spot.base}repeat", 0, last)])
    owners = await _owners(visit, spot, lines)
    if not known and not owners:
        return
    whole = not any(line.cut for line in lines if line.name in _PENDING)
    stopped = await _stopped(visit, spot, known, set(owners.values()), whole=whole)
    if stopped:
        what = "1 scheduler has" if len(stopped) == 1 else f"{len(stopped):,} schedulers have"
        yield problem(
            "schedulers",
            f"{what} no next job, and will never run again: {some(stopped)}",
            "upsert it again in Node (upsertJobScheduler), or remove it (removeJobScheduler)",
            queue=queue,
            count=len(stopped),
        )
    gone = await _without_scheduler(visit, spot, owners)
    if gone:
        yield warning(
            "schedulers",
            f"{jobs(len(gone))} of schedulers that are gone: {some(gone)}; each runs once more,"
            " then no more",
            f"toril job remove {queue} ID, or upsert the scheduler again in Node",
            queue=queue,
            count=len(gone),
        )
    if not stopped and not gone:
        what = "1 scheduler has" if len(known) == 1 else f"{len(known):,} schedulers have"
        yield ok("schedulers", f"{what} a next job, or came to an end", queue)


async def _owners(visit: Visit, spot: Spot, lines: Sequence[Line]) -> dict[bytes, bytes]:
    """The schedulers of the jobs that wait or run."""
    ids = [
        entry
        for line in lines
        if line.name in _PENDING
        for entry in line.entries
        if entry.startswith(_STEM)
    ]
    found: dict[bytes, bytes] = {}
    for page in pages(ids):
        keys = [("HGET", spot.base.encode() + one, "rjk") for one in page]
        owners = await visit.pipe(spot, keys)
        found |= {one: owner for one, owner in zip(page, owners, strict=True) if owner}
    return found


async def _stopped(
    visit: Visit, spot: Spot, known: Sequence[bytes], running: set[bytes], *, whole: bool
) -> list[bytes]:
    """Name those without a job; jobs of older repeatables are known only by a look at all lines."""
    now_ms = int((await visit.pipe(spot, [("TIME",)]))[0][0]) * 1000
    found: list[bytes] = []
    for page in pages(known):
        for scheduler, limit, count, end in await visit.run("schedulers", spot, *page):
            sure = whole or bool(count)  # older ones do not count their runs
            if sure and scheduler not in running and not _is_over(limit, count, end, now_ms):
                found.append(scheduler)
    return found


def _is_over(limit: bytes, count: bytes, end: bytes, now_ms: int) -> bool:
    if limit.isdigit() and count.isdigit() and int(count) >= int(limit):
        return True
    return end.isdigit() and int(end) <= now_ms


async def _without_scheduler(visit: Visit, spot: Spot, owners: dict[bytes, bytes]) -> list[bytes]:
    found: list[bytes] = []
    for page in pages(list(owners.items())):
        scores = await visit.pipe(
            spot, [("ZSCORE", f"{spot.base}repeat", owner) for _, owner in page]
        )
        there = await visit.pipe(spot, [("EXISTS", spot.base.encode() + one) for one, _ in page])
        found += [
            one
            for (one, _), score, exists in zip(page, scores, there, strict=True)
            if score is None and exists
        ]
    return found
