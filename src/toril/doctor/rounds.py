"""Go through the checks of a Redis or Valkey server: the server itself, then its queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Final, cast

from toril.doctor.census import Census, Spot, count_queues
from toril.doctor.facts import gather
from toril.doctor.finding import Finding, Level, ok, problem, warning
from toril.doctor.flow import check_flow, look
from toril.doctor.ghosts import check_ghosts
from toril.doctor.holds import check_holds
from toril.doctor.leases import judge_lapsed, lapsed_on_server
from toril.doctor.lines import read_lines
from toril.doctor.records import check_records
from toril.doctor.rights import allowed, each, is_denied, refused
from toril.doctor.schedulers import check_schedulers
from toril.doctor.server import check_server
from toril.doctor.sidings import check_sidings
from toril.doctor.twins import check_place, is_there
from toril.doctor.visit import Visit
from toril.errors import StorageError
from toril.storage.protocol import Storage
from toril.storage.redis.layout import LAYOUT

_UNFIT: Final = ("version", "replication", "scripts")
"""Checks without which no queue can be opened."""
_QUEUES: Final = 200
"""So many queues are looked at; name those that are wanted where there are more."""


async def make_rounds(visit: Visit, names: Sequence[str]) -> AsyncIterator[Finding]:
    """Check the server, then the queues named, or all."""
    fit = True
    async for finding in _server(visit):
        fit &= finding.level is not Level.PROBLEM or finding.check not in _UNFIT
        yield finding
    if not fit:
        yield warning("queues", "queues were not looked at, as none can be opened here")
        return
    async with visit.storage() as storage:
        try:
            census = await count_queues(
                visit.client, visit.nodes, visit.bounds, db=visit.address.db
            )
        except StorageError as error:
            if not is_denied(error):
                raise
            yield refused("queues", error)
            census = Census(spots=(), cut=False)
        chosen = names or await _own(visit, storage, census)
        async for finding in _survey(visit, census, chosen, bool(names)):
            yield finding
        for name in chosen[:_QUEUES]:
            async for finding in _queue(visit, storage, name, census.spots):
                yield finding


async def _server(visit: Visit) -> AsyncIterator[Finding]:
    if visit.is_bullmq:
        yield _scripts()
    for node in visit.nodes:
        for finding in check_server(await gather(visit.client, node), visit.address):
            several = len(visit.nodes) > 1 and finding.check != "version"
            yield replace(finding, text=f"{node}: {finding.text}") if several else finding


def _scripts() -> Finding:
    from toril.storage.bullmq.official import VERSION, scripts

    try:
        count = len(scripts())
    except StorageError as error:
        text, _, fix = str(error).partition("fix: ")
        return problem("scripts", text.rstrip(" ;."), fix or None)
    return ok("scripts", f"the {count} official scripts of bullmq {VERSION} are as published")


async def _own(visit: Visit, storage: Storage, census: Census) -> Sequence[str]:
    """Name our queues: the layout of our own keeps a list, BullMQ does not."""
    if not visit.is_bullmq:
        return await storage.queues()
    return sorted({spot.bare for spot in census.spots if spot == visit.spot(spot.bare)})


async def _survey(
    visit: Visit, census: Census, names: Sequence[str], named: bool
) -> AsyncIterator[Finding]:
    prefix = visit.spot("q").prefix
    if census.cut:
        yield warning(
            "queues",
            f"the server holds more than {visit.bounds.keys:,} keys; queues beyond them were not"
            " looked for",
            "name the queues you mean: toril doctor QUEUE",
        )
    if named:
        return
    strange = Counter(
        _place(spot) for spot in census.spots if spot != visit.spot(spot.bare) and spot.bare
    )
    listed = ", ".join(f"{count:,} under {place}" for place, count in sorted(strange.items()))
    beside = f"; beside them {listed}" if listed else ""
    yield ok("queues", f"{len(names):,} under prefix '{prefix}'{beside}")
    if len(names) > _QUEUES:
        yield warning(
            "queues",
            f"only the first {_QUEUES} of {len(names):,} queues were looked at",
            "name the others: toril doctor QUEUE",
        )


def _place(spot: Spot) -> str:
    if spot.layout == "lean":
        return f"'{spot.prefix}' in toril's own layout"
    return f"'{spot.prefix}' of BullMQ, {'with' if spot.is_tagged else 'without'} braces"


async def _queue(
    visit: Visit, storage: Storage, queue: str, spots: Sequence[Spot]
) -> AsyncIterator[Finding]:
    async for finding in allowed("place", check_place(visit, queue, spots), queue):
        yield finding
    spot = visit.spot(queue)
    if not await is_there(visit.client, spot):
        return
    newer = await _newer_layout(visit, spot, queue)
    if newer is not None:
        yield newer
        return
    async for finding in allowed("lines", _contents(visit, storage, spot, queue), queue):
        yield finding


async def _contents(
    visit: Visit, storage: Storage, spot: Spot, queue: str
) -> AsyncIterator[Finding]:
    flow = await look(storage, queue, await _now_ms(visit, spot))
    for finding in check_flow(queue, flow):
        yield finding
    lines = await read_lines(visit, spot)

    async def leases() -> Finding:
        lapsed = await lapsed_on_server(visit, spot, lines)
        return judge_lapsed(queue, lapsed, len(flow.workers))

    checks = [
        ("leases", each(leases)),
        ("ghosts", check_ghosts(visit, spot, queue, lines)),
        ("records", each(lambda: check_records(visit, spot, queue, lines))),
        ("dedup", each(lambda: check_holds(visit, spot, queue))),
    ]
    if visit.is_bullmq:
        checks += [
            ("sidings", each(lambda: check_sidings(visit, spot, queue))),
            ("schedulers", check_schedulers(visit, spot, queue, lines)),
        ]
    for name, check in checks:
        async for finding in allowed(name, check, queue):
            yield finding


async def _newer_layout(visit: Visit, spot: Spot, queue: str) -> Finding | None:
    if visit.is_bullmq:
        return None
    (found,) = await visit.pipe(spot, [("HGET", f"{spot.base}meta", "layout")])
    if found is None or int(found) <= LAYOUT:
        return None
    text = f"it has layout {int(found)}, this toril knows {LAYOUT}; it was not looked at"
    return problem("layout", text, "upgrade toril", queue=queue)


async def _now_ms(visit: Visit, spot: Spot) -> int:
    seconds, micros = cast("list[bytes]", await visit.client.call(spot.base, "TIME"))
    return int(seconds) * 1000 + int(micros) // 1000
