"""Find records that are in no line: jobs that nobody will ever run, or delete."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from toril.doctor.census import Spot, glob
from toril.doctor.finding import PAGE, Finding, ok, problem, some, them, warning
from toril.doctor.ghosts import pages
from toril.doctor.lines import Line
from toril.doctor.visit import Visit
from toril.storage.bullmq.keys import OWN_KEYS, QUEUE_KEYS

_SURE: Final = 100
"""So many are looked up at once, and in whole lists no more: a line of a report needs few."""
_JOB: Final = re.compile(r"[^:]+|repeat:.+:\d{10,}", re.DOTALL)


async def check_records(
    visit: Visit, spot: Spot, queue: str, lines: Sequence[Line]
) -> Sequence[Finding]:
    """Look for records that no line holds; not in a queue whose lists are too long to search."""
    too_long = [line for line in lines if line.kind == "list" and line.cut]
    if too_long:
        size = sum(line.size for line in too_long)
        text = f"records were not looked for: {size:,} entries in line are too many to search"
        return [ok("records", text, queue)]
    if spot.layout == "lean":
        return await _check_lean(visit, spot, queue, lines)
    found, looked, cut = await _lost(visit, spot, lines)
    return [_finding(queue, found, looked, cut)]


def _finding(queue: str, found: Sequence[bytes], looked: int, cut: bool) -> Finding:
    seen = f" (looked at {looked:,}, there are more)" if cut else ""
    if not found:
        return ok("records", f"every record is in a line{seen}", queue)
    least = "at least " if len(found) >= _SURE else ""
    what = f"{least}{_records(len(found))} {'is' if len(found) == 1 else 'are'}"
    return problem(
        "records",
        f"{what} in no line, so that nobody will run or delete {them(len(found))}:"
        f" {some(found)}{seen}",
        f"toril job show {queue} ID; then hand it in again, or toril job remove {queue} ID",
        queue=queue,
        count=len(found),
    )


async def _lost(
    visit: Visit, spot: Spot, lines: Sequence[Line]
) -> tuple[Sequence[bytes], int, bool]:
    placed = {entry for line in lines for entry in line.entries}
    found: list[bytes] = []
    looked = 0
    walk = visit.walk()
    async for keys in walk.over(f"{glob(spot.base)}*", "hash"):
        ids = [
            one.encode() for one in (key.removeprefix(spot.base) for key in keys) if _is_job(one)
        ]
        looked += len(ids)
        for page in pages([one for one in ids if one not in placed], _SURE):
            found += await visit.run("records", spot, "quick", *page)
        if looked >= visit.bounds.entries:
            break
    cut = walk.cut or looked >= visit.bounds.entries
    suspects = list(dict.fromkeys(found))[:_SURE]
    sure = await visit.run("records", spot, "sure", *suspects) if suspects else []
    return sure, looked, cut


def _is_job(name: str) -> bool:
    return bool(_JOB.fullmatch(name)) and name not in QUEUE_KEYS and name not in OWN_KEYS


async def _check_lean(
    visit: Visit, spot: Spot, queue: str, lines: Sequence[Line]
) -> Sequence[Finding]:
    line = {entry for line in lines if line.kind == "list" for entry in line.entries}
    lost: list[bytes] = []
    waiting: list[bytes] = []
    broken: list[bytes] = []
    looked, cut = 0, False
    for part in ("jobs", "ended"):
        cursor = b"0"
        while not cut:
            cursor, count, *found = await visit.run("records_lean", spot, part, cursor, PAGE)
            looked += count
            lost += found[0]
            waiting += (entry for entry in found[1] if entry not in line)
            broken += found[2]
            if cursor == b"0":
                break
            cut = looked >= visit.bounds.entries
    if waiting:
        lost += await visit.run("waiting_lean", spot, *waiting[:_SURE])
    lost = list(dict.fromkeys(lost))
    return [
        _finding(queue, lost, looked, cut),
        *await _broken(visit, spot, queue, broken),
    ]


async def _broken(
    visit: Visit, spot: Spot, queue: str, unreadable: Sequence[bytes]
) -> Sequence[Finding]:
    found = []
    if unreadable:
        found.append(
            warning(
                "broken",
                f"{_records(len(unreadable))} cannot be read: {some(unreadable)}; whoever claims"
                " one fails it and keeps its bytes",
                queue=queue,
                count=len(unreadable),
            )
        )
    (kept,) = await visit.pipe(spot, [("HLEN", f"{spot.base}broken")])
    if kept:
        found.append(
            warning(
                "broken",
                f"{_records(kept)} of the past could not be read; what was left is in"
                f" '{spot.base}broken'",
                f"look at them with HGETALL, then DEL '{spot.base}broken'",
                queue=queue,
                count=kept,
            )
        )
    return found


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count:,} records"
