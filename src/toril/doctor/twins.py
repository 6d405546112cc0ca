"""Find clients that cannot meet: queues of one name under other keys than ours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, cast

from toril.doctor.census import Spot, count_queues
from toril.doctor.finding import Finding, problem, warning
from toril.doctor.visit import Visit
from toril.errors import StorageDenied
from toril.resp.client import Client

_LINES: Final = {"bullmq": ("wait", "paused", "prioritized"), "lean": ("queue", "prioritized")}


async def check_place(visit: Visit, queue: str, spots: Sequence[Spot]) -> AsyncIterator[Finding]:
    """Look whether others keep a queue of this name elsewhere; `spots` are of our database."""
    own = visit.spot(queue)
    others = [spot for spot in spots if spot.bare == own.bare and spot != own]
    if await is_there(visit.client, own):
        for spot in others:
            if _would_be_missed(own, spot):
                found = await _find(visit.client, spot)
                yield _twin(queue, own, found, known=visit.twins_known)
        return
    elsewhere = [await _find(visit.client, spot) for spot in others]
    async with visit.all_databases() as clients:
        for db, client in clients.items():
            if db != own.db:
                nodes = await client.pick_nodes()
                census = await count_queues(client, nodes, visit.bounds, name=own.bare, db=db)
                elsewhere += [await _find(client, spot) for spot in census.spots]
    for found in elsewhere:
        yield _elsewhere(queue, own, found)
    if not elsewhere:
        yield warning(
            "place",
            f"queue '{queue}' has no keys under prefix '{own.prefix}', nor under another one",
            "toril queue list shows those that there are",
            queue=queue,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A queue elsewhere."""

    spot: Spot
    waiting: int
    writer: str | None
    """None where this user may not look."""

    @property
    def text(self) -> str:
        """Say how much it holds, and from whom."""
        if self.writer is None:
            return "(this user may not read it)"
        return f"({self.waiting:,} waiting), written by {self.writer}"


async def _find(client: Client, spot: Spot) -> _Found:
    try:
        waiting, writer = await _waiting(client, spot), await _writer(client, spot)
    except StorageDenied:
        return _Found(spot=spot, waiting=0, writer=None)
    return _Found(spot=spot, waiting=waiting, writer=writer)


def _would_be_missed(own: Spot, other: Spot) -> bool:
    """Whether a client of one may be meant for the other; prefixes keep them apart on purpose."""
    usual = {own.prefix, other.prefix} == {"bull", "jq"}
    return own.prefix == other.prefix or (own.layout != other.layout and usual)


def _twin(queue: str, own: Spot, other: _Found, *, known: bool) -> Finding:
    text = (
        f"queue '{queue}' is there twice: '{_shown(own)}' and '{_shown(other.spot)}' {other.text};"
        " clients of one never meet those of the other"
    )
    fix = f"{_way(own, other.spot)}; or empty one and delete it: toril queue obliterate {queue}"
    if known:
        return warning("twin", text, fix, queue=queue, count=other.waiting)
    return problem("twin", text, fix, queue=queue, code="E13", count=other.waiting)


def _elsewhere(queue: str, own: Spot, other: _Found) -> Finding:
    spot = other.spot
    place = "" if spot.db == own.db else f" in database {spot.db}"
    return problem(
        "place",
        f"queue '{queue}' has no keys under prefix '{own.prefix}'; found '{_shown(spot)}'{place}"
        f" {other.text}",
        _way(own, spot),
        queue=queue,
        code="E13",
        count=other.waiting,
    )


def _shown(spot: Spot) -> str:
    return spot.base.rstrip(":")


def _way(own: Spot, other: Spot) -> str:
    """What to write into our URL to meet the other."""
    parts: list[str] = []
    if other.layout != own.layout:
        parts.append(
            "put 'bullmq+' before the URL"
            if other.layout == "bullmq"
            else "leave 'bullmq+' out of the URL"
        )
    usual = "bull" if other.layout == "bullmq" else "jq"
    if other.prefix != own.prefix and (other.layout == own.layout or other.prefix != usual):
        parts.append(f'prefix="{other.prefix}"')
    if other.layout == "bullmq" and "{" not in other.prefix:
        tagged = own.is_tagged if own.layout == "bullmq" else True
        if other.is_tagged != tagged:
            switch = "on" if other.is_tagged else "off"
            named = "'{" + other.bare + "}'" if not other.is_tagged else f"'{other.bare}'"
            parts.append(f"hash_tag={switch}, or name the queue {named} in Node")
    if other.db != own.db:
        parts.append(f"end the URL with /{other.db}")
    return ", ".join(parts)


async def is_there(client: Client, spot: Spot) -> bool:
    """Whether a queue has any key."""
    names = ("meta", "id", "events", *_LINES[spot.layout], "delayed", "active", "completed")
    keys = [spot.base + name for name in names]
    return bool(await client.call(keys[0], "EXISTS", *keys))


async def _waiting(client: Client, spot: Spot) -> int:
    total = 0
    for name in _LINES[spot.layout]:
        key = spot.base + name
        command = "ZCARD" if name == "prioritized" else "LLEN"
        total += cast("int", await client.call(key, command, key))
    return total


async def _writer(client: Client, spot: Spot) -> str:
    if spot.layout == "lean":
        return "toril in its own layout"
    meta = spot.base + "meta"
    version = await client.call(meta, "HGET", meta, "version")
    # Node may be told not to leave its version; toril writes none, and braces unless told.
    return "a Node client" if version or not spot.is_tagged else "a BullMQ client"
