"""Find entries of lines whose job has no record: workers stumble over them, counts include them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final, TypeVar, cast

from toril.doctor.census import Spot
from toril.doctor.finding import PAGE, Finding, Strike, ok, problem, some, them
from toril.doctor.lines import LINES, Line
from toril.doctor.visit import Visit

T = TypeVar("T")

_SCRIPTS: Final = {"bullmq": "missing", "lean": "missing_lean"}
_MARKER: Final = b"0:"
"""Older clients put a marker into the line that is no job."""


async def check_ghosts(
    visit: Visit, spot: Spot, queue: str, lines: Sequence[Line]
) -> AsyncIterator[Finding]:
    """Look for entries without a record, each twice: the second time in one step."""
    clean = True
    for line in lines:
        found = await _ghosts(visit, spot, line)
        if found:
            clean = False
            yield problem(
                "ghosts",
                f"{_entries(len(found), line.name)} no record: {some(found)}",
                f"toril doctor --fix takes {them(len(found))} out",
                queue=queue,
                count=len(found),
                remedy=Strike(queue=queue, line=line.name, entries=tuple(found)),
            )
    if clean:
        looked, size = sum(len(one.entries) for one in lines), sum(one.size for one in lines)
        cut = f" (looked at {looked:,} of {size:,})" if looked < size else ""
        yield ok("ghosts", f"every entry of its lines has a record{cut}", queue)


async def strike(visit: Visit, remedy: Strike) -> int:
    """Take entries out that still have no record."""
    spot = visit.spot(remedy.queue)
    kind = LINES[spot.layout][remedy.line]
    gone = 0
    for page in pages(remedy.entries):
        gone += len(await _search(visit, spot, remedy.line, kind, "strike", page))
    return gone


async def _ghosts(visit: Visit, spot: Spot, line: Line) -> list[bytes]:
    found: list[bytes] = []
    for page in pages(line.entries):
        suspects = await _without_record(visit, spot, line, page)
        if suspects:
            found += await _search(visit, spot, line.name, line.kind, "look", suspects)
    return found


async def _search(
    visit: Visit, spot: Spot, line: str, kind: str, act: str, entries: Sequence[bytes]
) -> list[bytes]:
    """Look at entries, and on request take them out, in one step."""
    name, most = _SCRIPTS[spot.layout], visit.bounds.entries
    return cast("list[bytes]", await visit.run(name, spot, line, kind, act, most, *entries))


async def _without_record(
    visit: Visit, spot: Spot, line: Line, page: Sequence[bytes]
) -> list[bytes]:
    if spot.layout == "lean":
        ids = [entry.partition(b":")[2] if line.kind == "list" else entry for entry in page]
        (records,) = await visit.pipe(spot, [("HMGET", f"{spot.base}jobs", *ids)])
        return [entry for entry, record in zip(page, records, strict=True) if record is None]
    base = spot.base.encode()
    there = await visit.pipe(spot, [("EXISTS", base + entry) for entry in page])
    return [
        entry
        for entry, one in zip(page, there, strict=True)
        if not one and not entry.startswith(_MARKER)
    ]


def pages(items: Sequence[T], size: int = PAGE) -> Iterator[Sequence[T]]:
    """Cut a sequence into what one call takes."""
    return (items[start : start + size] for start in range(0, len(items), size))


def _entries(count: int, line: str) -> str:
    return f"1 entry of '{line}' has" if count == 1 else f"{count:,} entries of '{line}' have"
