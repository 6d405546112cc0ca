"""Events as pages and places: what readers that divide their work among many ask of `Bulk`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import Server
from toril import EventsTrimmed
from toril.event import Cursor
from toril.ids import ulid
from toril.resp.sync import SyncClient
from toril.resp.url import parse_url
from toril.storage import open_bulk, open_storage
from toril.storage.columns import Bulk


@pytest.fixture(params=["file", "valkey", "bullmq"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file:{tmp_path / 'store'}"
    server: Server = request.getfixturevalue("valkey")
    layout = "bullmq+" if request.param == "bullmq" else ""
    return f"{layout}{server.url}?prefix=p{ulid()}"


@pytest.fixture
def bulk(url: str) -> Iterator[Bulk]:
    opened = open_bulk(url)
    yield opened
    opened.close()


def add(bulk: Bulk, queue: str, count: int, first: int = 0) -> None:
    """Add jobs: two events each."""
    ids = [f"job-{number}" for number in range(first, first + count)]
    bulk.write_jobs(queue, ids, [b"{}"] * count)


def numbers(bulk: Bulk, after: Cursor, until: Cursor, limit: int) -> list[int]:
    """Read page by page and name the events."""
    found: list[int] = []
    while (page := bulk.read_page("q", after, until, limit)).seen:
        assert len(page.columns["number"]) == page.seen <= limit
        assert bulk.number(page.reached) == bulk.number(after) + page.seen
        found += page.columns["number"]
        after = page.reached
    return found


def test_queues_are_named(bulk: Bulk) -> None:
    assert list(bulk.queues()) == []
    for name in ("q", "a.b", "last"):
        add(bulk, name, 1)
    assert list(bulk.queues()) == ["a.b", "last", "q"]


@pytest.mark.parametrize("limit", [1, 7, 100, 10_000])
def test_pages_of_every_size_bring_every_event_once(bulk: Bulk, limit: int) -> None:
    add(bulk, "q", 300)
    span = bulk.span("q")
    assert (bulk.number(span.first), bulk.number(span.last)) == (0, 600)
    assert numbers(bulk, span.first, span.last, limit) == list(range(1, 601))
    assert numbers(bulk, Cursor.START, span.last, limit) == list(range(1, 601))


def test_a_place_is_found_by_counting_and_divides_the_events(bulk: Bulk, url: str) -> None:
    add(bulk, "q", 300)
    span = bulk.span("q")
    middle = bulk.advance("q", span.first, 251)
    assert bulk.number(middle) == 251
    other = open_bulk(url)
    assert numbers(other, span.first, middle, 100) == list(range(1, 252))
    assert numbers(other, middle, span.last, 100) == list(range(252, 601))
    other.close()
    assert bulk.advance("q", middle, 10_000) == span.last
    assert bulk.advance("q", middle, 0) == middle


def test_a_place_is_the_same_in_another_process_and_later(bulk: Bulk, url: str) -> None:
    add(bulk, "q", 10)
    place = Cursor.parse(str(bulk.span("q").last))
    add(bulk, "q", 10, first=10)
    other = open_bulk(url)
    assert other.number(place) == 20
    page = other.read_page("q", place)
    assert page.columns["number"] == list(range(21, 41))
    assert page.reached == other.span("q").last
    other.close()


def test_an_unknown_queue_has_no_events(bulk: Bulk) -> None:
    span = bulk.span("q")
    assert bulk.number(span.first) == bulk.number(span.last) == 0
    assert bulk.read_page("q", Cursor.START).seen == 0
    assert bulk.advance("q", Cursor.START, 5) == span.last


async def test_a_page_over_trimmed_events_is_refused_with_their_number(
    bulk: Bulk, url: str
) -> None:
    add(bulk, "q", 300)
    place = bulk.advance("q", Cursor.START, 10)
    await trim(url, 100)
    span = bulk.span("q")
    dropped = bulk.number(span.first)
    assert 0 < 600 - dropped <= 600
    with pytest.raises(EventsTrimmed) as gap:
        bulk.read_page("q", place, span.last)
    assert gap.value.count == dropped - 10
    assert bulk.number(gap.value.resume) == dropped
    assert numbers(bulk, gap.value.resume, span.last, 50) == list(range(dropped + 1, 601))


async def trim(url: str, kept: int) -> None:
    """Keep only the newest events."""
    if url.startswith("bullmq+"):
        address = parse_url(url)
        client = SyncClient(address)
        key = f"{address.prefix}:{{q}}:events"
        client.call(key, "XTRIM", key, "MAXLEN", kept)
        client.close()
        return
    storage = open_storage(url)
    await storage.open()
    await storage.tune("q", events_kept=kept)  # type: ignore[attr-defined]
    await storage.close()
