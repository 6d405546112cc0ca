"""Events read in runs become the same Arrow batches as events read one by one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgpack
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.servers import Server
from tests.spark.making import add_jobs, trim
from toril import JobContext, JobFailed, Queue, Retry
from toril.errors import EventsTrimmed
from toril.event import Cursor, EventKind
from toril.spark.events_arrow import from_columns, from_runs
from toril.spark.schema import EVENTS
from toril.storage import open_bulk
from toril.storage.columns import no_events
from toril.storage.redis.bulk import RedisBulk, append_columns
from toril.storage.redis.codec import FREE_FIELDS, unpack_entry
from toril.storage.redis.runs import append_entry
from toril.storage.runs import EventRuns, reads_runs

COLUMNS = tuple(EVENTS)
IDS = st.lists(st.sampled_from(["a", "ä", "job-1"]), min_size=1, max_size=4)
KINDS = st.sampled_from([kind.value for kind in EventKind])
SMALL = st.integers(0, 3)
TEXT = st.sampled_from(["", "why", "ä"])


def free(kinds: list[str]) -> st.SearchStrategy[tuple[object, object]]:
    """What the two free fields may hold: nothing where the kinds do not agree on their types."""

    def one(name: str) -> st.SearchStrategy[object]:
        if not name:
            return st.just(False)
        number = name in ("delay_ms", "duration_ms", "result_size", "count")
        return st.one_of(st.just(False), SMALL if number else TEXT)

    found = {FREE_FIELDS[EventKind(kind)] for kind in kinds if EventKind(kind) in FREE_FIELDS}
    x_name, y_name = found.pop() if len(found) == 1 else ("", "")
    return st.tuples(one(x_name), one(y_name))


@st.composite
def rows(draw: st.DrawFn) -> list[object]:
    """Eight fields as the scripts pack them: one event, or several that are alike."""
    kinds = draw(st.lists(KINDS, min_size=1, max_size=2))
    alike = len(kinds) > 1 or draw(st.booleans())
    ids = draw(IDS) if alike else draw(st.sampled_from([False, "a", "b"]))
    rest = [
        draw(st.one_of(st.just(False), SMALL)),
        draw(st.sampled_from([False, "name"])),
        draw(st.sampled_from([False, "w1", "w1\nits name"])),
        draw(st.sampled_from([False, "waiting", "active"])),
    ]
    return [kinds if alike else kinds[0], ids, *rest, *draw(free(kinds))]


ENTRIES = st.lists(
    st.tuples(SMALL, st.lists(rows(), min_size=1, max_size=4)), min_size=1, max_size=4
)


def pack(last: int, time_ms: int, packed: list[list[object]]) -> tuple[int, bytes, bytes]:
    """An entry as the stream has it, and the number of its last event."""
    for kinds, ids, *_ in packed:
        last += len(kinds) * len(ids) if isinstance(kinds, list) and isinstance(ids, list) else 1
    flat = [field for row in packed for field in row]
    return last, b"%d-0" % last, msgpack.packb((time_ms, flat))


@given(ENTRIES, st.integers(0, 8), st.integers(1, 40), st.integers(0, 8))
def test_runs_hold_what_columns_hold(
    entries: list[tuple[int, list[list[object]]]], after: int, wanted: int, before: int
) -> None:
    runs, columns, last = EventRuns(), no_events(), before
    for time_ms, packed in entries:
        last, raw_id, blob = pack(last, time_ms, packed)
        entry = unpack_entry(raw_id, blob)
        append_entry(runs, entry, after, after + wanted)
        append_columns(columns, entry, after, after + wanted)
    assert len(runs) == len(columns["number"])
    if len(runs):
        one_by_one: Any = columns
        found = from_runs("q", runs, COLUMNS)
        found.validate(full=True)
        assert found.equals(from_columns("q", one_by_one, COLUMNS))
        assert runs.last == columns["number"][-1]


async def live(url: str, queue: str) -> None:
    """Let jobs succeed, fail, be tried again and be told twice."""

    async def handle(job: JobContext[int]) -> int:
        if job.data % 5 == 1 and job.attempt == 1:
            raise Retry(0)
        if job.data % 7 == 1:
            raise ValueError(f"no {job.data}")
        await job.progress(job.data)
        return job.data

    async with Queue[int, int](queue, storage=url) as given:
        for number in range(60):
            await given.enqueue(f"job-{number % 50}", number % 50, attempts=2)
    made = Queue[int, int](queue, storage=url)
    made.execute(handle, concurrency=7)
    async with made:
        waits = [made.enqueue_and_wait(f"job-{number}", number) for number in range(50)]
        ended = await asyncio.gather(*waits, return_exceptions=True)
    assert {type(one) for one in ended} == {int, JobFailed}


@pytest.mark.parametrize("limit", [1, 7, 100, 10_000])
def test_a_queue_reads_the_same_both_ways(server: Server, queue: str, limit: int) -> None:
    asyncio.run(live(server.url, queue))
    add_jobs(server.url, queue, 300, first=1000)
    bulk = RedisBulk(server.url)
    span = bulk.span(queue)
    read: list[pa.RecordBatch] = []
    wanted: list[pa.RecordBatch] = []
    at, runs = span.first, EventRuns()
    while at < span.last:
        page: Any = bulk.read_page(queue, at, span.last, limit)
        wanted.append(from_columns(queue, page.columns, COLUMNS))
        at = bulk.read_runs(queue, at, span.last, limit, runs)
        assert at == page.reached
        read.append(from_runs(queue, runs, COLUMNS))
        runs.clear()
    assert bulk.read_runs(queue, at, span.last, limit, runs) == at
    bulk.close()
    assert not runs
    found = pa.Table.from_batches(read)
    assert found.equals(pa.Table.from_batches(wanted))
    assert found.num_rows == bulk.number(span.last)
    assert {"retrying", "failed", "duplicated", "progress"} <= set(found["kind"].to_pylist())


def test_the_embedded_server_is_read_in_runs(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path}"
    bulk = open_bulk(url)
    runs, found = EventRuns(), reads_runs(bulk)
    bulk.write_jobs("q", ["a"], [b"{}"])
    assert found is not None
    assert found.read_runs("q", Cursor.START, None, 10, runs) == Cursor(2)
    bulk.close()
    batch = from_runs("q", runs, ("kind", "job_id"))
    assert batch.to_pydict() == {"kind": ["added", "waiting"], "job_id": ["a", "a"]}


def test_a_storage_that_has_no_runs_says_so(tmp_path: Path) -> None:
    bulk = open_bulk(f"file:{tmp_path / 'store'}")
    assert reads_runs(bulk) is None
    bulk.close()


def test_trimmed_events_are_refused_and_nothing_is_taken(server: Server, queue: str) -> None:
    add_jobs(server.url, queue, 100)
    add_jobs(server.url, queue, 100, first=100)
    trim(server.url, queue, 1)
    bulk, runs = RedisBulk(server.url), EventRuns()
    span = bulk.span(queue)
    with pytest.raises(EventsTrimmed) as gap:
        bulk.read_runs(queue, Cursor.START, span.last, 1000, runs)
    assert not runs
    assert gap.value.resume == span.first
    assert bulk.read_runs(queue, gap.value.resume, span.last, 1000, runs) == span.last
    bulk.close()
    assert (len(runs), runs.last) == (400 - gap.value.resume.major, 400)
    assert 0 < gap.value.count == gap.value.resume.major
