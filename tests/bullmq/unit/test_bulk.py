"""Columns in and out of BullMQ queues."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.servers import Server
from toril import EventsTrimmed, InvalidName, InvalidOption, Queue, StorageError, Worker
from toril.context import JobContext
from toril.event import Cursor
from toril.ids import ulid
from toril.job import State, Terms
from toril.storage import open_bulk, open_storage
from toril.storage.bullmq.bulk import BullmqBulk
from toril.storage.columns import Bulk
from toril.storage.protocol import Storage


@pytest.fixture
def url(server: Server) -> str:
    return f"bullmq+{server.url}?prefix=b{ulid()}"


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
    assert columns["number"] == list(range(1, len(events) + 1))
    for name in columns:
        if name != "number":
            expected = [getattr(event, name) for event in events]
            assert columns[name] == expected, name  # type: ignore[literal-required]


async def test_events_are_read_on_by_number_also_by_somebody_else(
    bulk: Bulk, storage: Storage, url: str
) -> None:
    await work(storage)
    span = bulk.span("q")
    assert span.last == await storage.cursor("q")
    number, found = 0, []
    while page := bulk.read_events("q", Cursor(number), span.last, limit=3)["number"]:
        assert len(page) <= 3
        found += page
        number = page[-1]
    assert found == list(range(1, span.last.part + 1))
    other = open_bulk(url)
    assert other.read_events("q", Cursor(5), Cursor(8))["number"] == [6, 7, 8]
    assert other.read_events("q", Cursor(7), span.last)["number"] == found[7:]
    other.close()


async def test_a_trimmed_range_is_an_exact_count(bulk: Bulk, storage: Storage, url: str) -> None:
    queue = await work(storage)
    assert isinstance(bulk, BullmqBulk)
    key = f"{bulk.address.prefix}:{{q}}:events"
    bulk._client.call(key, "XTRIM", key, "MAXLEN", 4)
    span = bulk.span("q")
    for after, gone in ((Cursor.START, span.first.part), (Cursor(2), span.first.part - 2)):
        with pytest.raises(EventsTrimmed) as gap:
            bulk.read_events("q", after)
        assert gap.value.count == gone > 0
        assert len(bulk.read_events("q", gap.value.resume)["number"]) == 4
    await queue.stop()


async def test_columns_of_jobs_are_the_jobs(bulk: Bulk, storage: Storage) -> None:
    await work(storage)
    (record,) = await storage.peek("q", State.COMPLETED, 0, 9)
    done = bulk.read_jobs("q", State.COMPLETED, 0, 9)
    assert (done["id"], done["name"], done["payload"]) == (["fine"], ["greet"], [b'"ok"'])
    assert (done["result"], done["progress"]) == ([b'{"seen":"ok"}'], [b"50"])
    assert (done["finished_ms"], done["worker_id"]) == ([record.finished_ms], ["w"])
    failed = bulk.read_jobs("q", State.FAILED, 0, 9)
    assert (failed["failure_kind"], failed["failure_reason"]) == (["ValueError"], ["no good"])
    delayed = bulk.read_jobs("q", State.DELAYED, 0, 9)
    assert (delayed["priority"], len(delayed["due_ms"])) == ([7], 1)


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


def test_what_node_could_not_read_is_refused_before_anything_is_written(bulk: Bulk) -> None:
    with pytest.raises(InvalidName):
        bulk.write_jobs("q", ["fine", "wait"], [b"1", b"2"])
    with pytest.raises(ValueError, match="not UTF-8"):
        bulk.write_jobs("q", ["a", "b"], [b"1", b"\xff"])
    assert bulk.read_jobs("q", State.WAITING, 0, 9)["id"] == []


def test_a_twin_is_told_of_by_the_blocking_side_too(server: Server) -> None:
    bulk = BullmqBulk(f"bullmq+{server.url}")
    queue = f"q{ulid()}"
    key = f"bull:{queue}:meta"
    bulk._client.call(key, "HSET", key, "version", "bullmq:5.62.0")
    with pytest.raises(StorageError, match="hash_tag=off"):
        bulk.write_jobs(queue, ["a"], [b"1"])
    bulk.close()


def test_a_lean_url_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"bullmq\+redis"):
        BullmqBulk("redis://localhost")
