"""Make events, and lose them, for tests of what reads them."""

from __future__ import annotations

import asyncio

from toril.resp.sync import SyncClient
from toril.resp.url import parse_url
from toril.storage import open_bulk, open_storage


def add_jobs(url: str, queue: str, count: int, first: int = 0) -> None:
    """Add jobs: two events each."""
    bulk = open_bulk(url)
    ids = [f"job-{number}" for number in range(first, first + count)]
    bulk.write_jobs(queue, ids, [b"{}"] * count)
    bulk.close()


def keep_all(url: str, queue: str) -> None:
    """Let a queue keep more events than usual, which are ten or two hundred thousand."""
    if url.startswith("bullmq+"):
        base = _base(url, queue)
        _call(url, base, "HSET", base + "meta", "opts.maxLenEvents", 10_000_000)
    else:
        _tune(url, queue, 10_000_000)


def trim(url: str, queue: str, kept: int) -> None:
    """Cut off the oldest events: exactly so many entries stay on a server, about on file."""
    if not url.startswith("file:"):
        key = _base(url, queue) + "events"
        _call(url, key, "XTRIM", key, "MAXLEN", kept)
        return
    _tune(url, queue, kept)


def forget(url: str, queue: str) -> None:
    """Delete a queue's stream and its numbers, as FLUSHALL would."""
    base = _base(url, queue)
    _call(url, base, "DEL", base + "events")
    if not url.startswith("bullmq+"):
        _call(url, base, "HDEL", base + "meta", "e")


def stored(url: str, queue: str) -> list[tuple[int, str, str | None, int]]:
    """All events that the store has: number, kind, job and time."""
    bulk = open_bulk(url)
    place = bulk.span(queue).first
    found: list[tuple[int, str, str | None, int]] = []
    while (page := bulk.read_page(queue, place, limit=10_000)).seen:
        place, rows = page.reached, page.columns
        found += zip(rows["number"], rows["kind"], rows["job_id"], rows["time_ms"], strict=True)
    bulk.close()
    return found


def _tune(url: str, queue: str, kept: int) -> None:
    async def tune() -> None:
        storage = open_storage(url)
        await storage.open()
        await storage.tune(queue, events_kept=kept)  # type: ignore[attr-defined]
        await storage.close()

    asyncio.run(tune())


def _base(url: str, queue: str) -> str:
    address = parse_url(url)
    if address.layout == "bullmq":
        return f"{address.prefix or 'bull'}:{{{queue}}}:"
    return f"{{{address.prefix or 'jq'}:{queue}}}:"


def _call(url: str, key: str, *args: str | int) -> None:
    client = SyncClient(parse_url(url))
    client.call(key, *args)
    client.close()
