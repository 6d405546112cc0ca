"""Columns in and out of the storages that have the facet `Bulk`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.servers import Server
from toril import EventsTrimmed, InvalidName, Queue, UnsupportedFeature, Worker
from toril.context import JobContext
from toril.event import Cursor
from toril.ids import ulid
from toril.job import State, Terms
from toril.resp.embedded_look import look
from toril.storage import open_bulk, open_storage
from toril.storage.columns import Bulk
from toril.storage.protocol import Storage


@pytest.fixture(params=["file", "valkey"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file:{tmp_path / 'store'}"
    server: Server = request.getfixturevalue("valkey")
    return f"{server.url}?prefix=b{ulid()}"


@pytest.fixture
def bulk(url: str) -> Iterator[Bulk]:
    opened = open_bulk(url)
    yield opened
    opened.close()


@pytest.fixture
async def storage(url: str) -> AsyncIterator[Storage]:
    opened = open_storage(url)
    await opened.open()
    yield opened
    await opened.close()


async def work(storage: Storage) -> Queue[object, object]:
    """Run jobs of several fates and return their queue."""
    queue: Queue[object, object] = Queue("q", storage)

    async def handler(job: JobContext[object]) -> object:
        await job.progress(50)
        if job.data == "bad":
            raise ValueError("no good")
        return {"seen": job.data}

    await queue.enqueue("waiting", "x", delay=3600, priority=7)
    async with Worker(queue, handler, name="w"):
        assert await queue.enqueue_and_wait("fine", "ok", name="greet") == {"seen": "ok"}
        with pytest.raises(Exception, match="no good"):
            await queue.enqueue_and_wait("broken", "bad", attempts=1)
    await queue.stop()
    return queue


async def test_columns_of_events_are_the_events(bulk: Bulk, storage: Storage) -> None:
    await work(storage)
    events = await storage.events("q", Cursor.START)
    columns = bulk.read_events("q", Cursor.START)
    assert columns["number"] == [event.cursor.major for event in events]
    assert columns["kind"] == [event.kind for event in events]
    for name in columns:
        if name not in ("number", "kind"):
            expected = [getattr(event, name) for event in events]
            assert columns[name] == expected, name  # type: ignore[literal-required]


async def test_events_are_read_between_two_places(bulk: Bulk, storage: Storage) -> None:
    await work(storage)
    span = bulk.span("q")
    assert span.first == Cursor(0)
    assert span.last == await storage.cursor("q")
    number, found = 0, []
    while page := bulk.read_events("q", Cursor(number), span.last, limit=3)["number"]:
        assert len(page) <= 3
        found += page
        number = page[-1]
    assert found == list(range(1, span.last.major + 1))


async def test_a_trimmed_range_is_an_exact_count(bulk: Bulk, storage: Storage) -> None:
    queue = await work(storage)
    await queue.tune(events_kept=2)
    span = bulk.span("q")
    with pytest.raises(EventsTrimmed) as gap:
        bulk.read_events("q", Cursor.START)
    assert gap.value.count == span.first.major > 0
    assert bulk.read_events("q", gap.value.resume)["number"][-1] == span.last.major
    await queue.stop()


async def test_columns_of_jobs_are_the_jobs(bulk: Bulk, storage: Storage) -> None:
    await work(storage)
    (record,) = await storage.peek("q", State.COMPLETED, 0, 9)
    done = bulk.read_jobs("q", State.COMPLETED, 0, 9)
    assert {name: values[0] for name, values in done.items()} == {  # type: ignore[index]
        "id": "fine",
        "name": "greet",
        "state": "completed",
        "payload": b'"ok"',
        "priority": 0,
        "max_attempts": 3,
        "created_ms": record.created_ms,
        "due_ms": None,
        "attempts_made": 1,
        "attempts_started": 1,
        "stalls": 0,
        "processed_ms": record.processed_ms,
        "finished_ms": record.finished_ms,
        "worker_id": record.worker_id,
        "progress": b"50",
        "result": b'{"seen":"ok"}',
        "failure_kind": None,
        "failure_reason": None,
    }
    failed = bulk.read_jobs("q", State.FAILED, 0, 9)
    assert (failed["failure_kind"], failed["failure_reason"]) == (["ValueError"], ["no good"])
    assert bulk.read_jobs("q", State.DELAYED, 0, 9)["priority"] == [7]
    assert bulk.read_jobs("q", State.WAITING_CHILDREN, 0, 9)["id"] == []


async def test_written_jobs_are_worked_and_a_replay_adds_none(bulk: Bulk, storage: Storage) -> None:
    ids = [f"row-{number}" for number in range(600)]
    payloads = [b'{"n":%d}' % number for number in range(600)]
    assert bulk.write_jobs("q", ids, payloads).created == 600
    again = bulk.write_jobs("q", ids, payloads, terms=Terms(attempts=9))
    assert (again.created, again.duplicates) == (0, 600)
    assert await storage.queues() == ["q"]
    assert bulk.read_jobs("q", State.WAITING, 0, 1000)["id"] == ids
    (record,) = await storage.get("q", ["row-7"])
    assert record is not None
    assert (record.spec.payload, record.spec.terms.attempts) == (b'{"n":7}', 1)


def test_a_bad_id_is_refused_before_anything_is_written(bulk: Bulk) -> None:
    with pytest.raises(InvalidName):
        bulk.write_jobs("q", ["fine", "wait"], [b"1", b"2"])
    assert bulk.read_jobs("q", State.WAITING, 0, 9)["id"] == []


@pytest.mark.parametrize("url", ["memory:", "nonsense"])
def test_what_cannot_be_read_in_bulk_is_refused(url: str) -> None:
    with pytest.raises(UnsupportedFeature, match="cannot be read in bulk"):
        open_bulk(url)


@pytest.mark.parametrize("layout", ["", "bullmq+"])
def test_an_embedded_server_is_started_for_bulk_and_let_go(tmp_path: Path, layout: str) -> None:
    url = f"{layout}embedded:{tmp_path / 'home'}"
    for n in range(2):  # the second finds what the first left
        opened = open_bulk(url)
        assert opened.write_jobs("q", [f"job{n}"], [b"1"]).created == 1
        assert opened.counts("q")[State.WAITING] == n + 1
        opened.close()
        assert look(tmp_path / "home") is None
