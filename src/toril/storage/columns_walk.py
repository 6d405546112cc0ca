"""Walk through a line or a sorted set that changes meanwhile, and pass by nothing that stays.

Where a page begins is told by what was read last, not by a number: of a sorted set by score and
id, of a line by reading a little again of what was read, from the end at which new ones come in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, cast

from toril.job import State
from toril.storage.columns import Columns, Slice

_AGAIN: Final = 32
"""Entries of each part that are read again, to see that none in front of them was taken out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page: what was listed, and the columns of those of it that are jobs in the state.

    `keys` names the rows of the columns. `last` is where a sorted set was left: id and score.
    """

    looked: int
    listed: Sequence[str]
    keys: Sequence[str]
    columns: Columns
    scores: Sequence[str] = ()
    last: tuple[str, str] = ("", "")


def walk_line(
    read: Callable[[int], Page], seen: set[str], parts: int, most: int
) -> Iterator[Columns]:
    """Read a line by how many entries to skip; `seen` grows by what was listed."""
    again = min(_AGAIN * parts, most // 2)
    at = 0
    while True:
        skip = max(0, at - again)
        page = read(skip)
        while skip and page.listed and page.listed[0] not in seen:
            # More were taken out in front of here than were read again.
            skip = max(0, skip - most)
            page = read(skip)
        yield pick(page.columns, [key not in seen for key in page.keys])
        seen.update(page.listed)
        at = skip + page.looked
        if page.looked < most:
            return


def walk_sorted(
    read: Callable[[tuple[str, str]], Page], most: int, moving: bool = False
) -> Iterator[Columns]:
    """Read a sorted set by the id and the score read last.

    `moving` tells that scores of its members grow: then each that came must be remembered.
    """
    last, ties = ("", ""), set[str]()
    while True:
        page = read(last)
        yield pick(page.columns, [key not in ties for key in page.keys])
        if page.looked < most:
            return
        if page.last[1] != last[1] and not moving:
            ties = set()
        scored = zip(page.listed, page.scores, strict=True)
        ties.update(key for key, score in scored if moving or score == page.last[1])
        last = page.last


def pick(columns: Columns, wanted: Sequence[bool]) -> Columns:
    """Leave out rows."""
    if all(wanted):
        return columns
    first = wanted.index(True) if True in wanted else len(wanted)
    if all(wanted[first:]):  # what was read again stands in front
        return {name: values[first:] for name, values in columns.items()}
    return {
        name: [one for one, keep in zip(values, wanted, strict=True) if keep]
        for name, values in columns.items()
    }


def cut_line(state: State, parts: int, count: int) -> list[Slice]:
    """Cut a line by a hash of the ids; each part lists all of it and reads its own."""
    return [
        Slice(state=state, part=part, parts=parts, count=count // parts) for part in range(parts)
    ]


def cut_sorted(
    call: Callable[..., object],
    key: str,
    state: State,
    parts: int,
    since_ms: int | None,
    until_ms: int | None,
) -> list[Slice]:
    """Cut a sorted set by the scores of some of its members; those of one score stay together."""
    low = "" if since_ms is None else str(since_ms)
    high = "" if until_ms is None else str(until_ms)
    first = cast("int", call("ZCOUNT", key, "-inf", f"({low}")) if low else 0
    stop = cast("int", call("ZCOUNT", key, "-inf", f"({high}" if high else "+inf"))
    count = max(0, stop - first)
    places = [low]
    for part in range(1, min(parts, count)):
        at = first + count * part // parts
        found = cast("list[bytes]", call("ZRANGE", key, at, at, "WITHSCORES"))
        if found and found[1].decode() not in places:
            places.append(found[1].decode())
    bounds = zip(places, [*places[1:], high], strict=True)
    each = count // len(places)
    return [Slice(state=state, low=one, high=other, count=each) for one, other in bounds]
