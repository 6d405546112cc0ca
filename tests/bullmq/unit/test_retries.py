"""Retries, which the wire does not tell, are read from what it does."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.servers import Server
from toril.errors import EventsTrimmed
from toril.event import Cursor, Event, EventKind
from toril.ids import ulid
from toril.job import Terms
from toril.outcome import Completed, Failed, Failure, Lease, Postponed, Released, Retried
from toril.storage.bullmq import BullmqStorage
from toril.storage.bullmq.bulk import BullmqBulk
from toril.storage.bullmq.scripts import Command, call
from toril.testing import Bench, MemoryRig

BOOM = Failure(kind="ValueError", reason="boom")


class LiveRig(MemoryRig):
    """A rig for tests that neither move time nor crash anybody."""

    def __init__(self, storage: BullmqStorage) -> None:
        self.storage = storage  # type: ignore[assignment]


@pytest.fixture
async def bench(server: Server) -> AsyncIterator[Bench]:
    """A bench on an open storage."""
    storage = BullmqStorage(f"bullmq+{server.url}?prefix=r{ulid()}")
    await storage.open()
    yield Bench(LiveRig(storage))
    await storage.close()


def store(bench: Bench) -> BullmqStorage:
    """The storage of a bench."""
    assert isinstance(bench.storage, BullmqStorage)
    return bench.storage


async def crowd(bench: Bench, count: int) -> None:
    """Let so many events of other jobs pass."""
    for number in range(count // 100):
        await bench.add(*(f"crowd-{number}-{one}" for one in range(50)))


async def kinds_of(bench: Bench, job_id: str) -> list[EventKind]:
    """What is told of a job."""
    return [event.kind for event in await everything(bench) if event.job_id == job_id]


async def everything(bench: Bench, page: int = 1000) -> list[Event]:
    """Read all events in pages, each from the cursor of the last."""
    after, found = Cursor.START, list[Event]()
    while some := await bench.storage.events(bench.queue, after, limit=page):
        assert len(some) <= page
        found += some
        after = some[-1].cursor
    return found


@pytest.mark.parametrize("delay_ms", [0, 60_000])
async def test_a_retry_is_told_before_its_job_goes_back(bench: Bench, delay_ms: int) -> None:
    await bench.add("a")
    job = await bench.take()
    await bench.settle(Retried(lease=job.lease, failure=BOOM, delay_ms=delay_ms))
    retrying, back = (await everything(bench))[-2:]
    assert (retrying.kind, retrying.job_id, retrying.time_ms) == ("retrying", "a", back.time_ms)
    assert retrying.cursor < back.cursor
    assert back.kind == ("delayed" if delay_ms else "waiting")
    assert retrying.delay_ms is not None
    assert abs(retrying.delay_ms - delay_ms) < 1000


async def test_what_is_handed_back_or_postponed_is_no_retry(bench: Bench) -> None:
    await bench.add("a", "b", "c")
    first, second, third = await bench.take_many(3)
    await bench.settle(
        Released(lease=first.lease),
        Postponed(lease=second.lease, delay_ms=60_000),
        Postponed(lease=third.lease, delay_ms=0),
    )
    assert EventKind.RETRYING not in {event.kind for event in await everything(bench)}


async def test_a_job_that_is_added_later_or_put_off_is_no_retry(bench: Bench) -> None:
    await bench.add("a", terms=Terms(delay_ms=60_000))
    await store(bench).reschedule(bench.queue, ["a"], 90_000)
    await crowd(bench, 1200)
    assert await store(bench).reschedule(bench.queue, ["a", "nobody"], 95_000) == [True, False]
    assert await kinds_of(bench, "a") == ["added", "delayed", "delayed", "delayed"]


async def test_a_retry_of_a_job_that_ran_long_is_told(bench: Bench) -> None:
    await bench.add("a")
    job = await bench.take()
    await crowd(bench, 1200)
    await bench.settle(Retried(lease=job.lease, failure=BOOM, delay_ms=60_000))
    assert (await kinds_of(bench, "a"))[-2:] == ["retrying", "delayed"]


async def test_pages_of_every_size_tell_the_same(bench: Bench) -> None:
    for number in range(4):
        await bench.add(f"job-{number}")
        job = await bench.take()
        later = Retried(lease=job.lease, failure=BOOM, delay_ms=60_000 * (number % 2))
        released = Released(lease=job.lease)
        await bench.settle(later if number else released)
    all_at_once = await everything(bench)
    cursors = [event.cursor for event in all_at_once]
    assert cursors == sorted(set(cursors))
    assert [Cursor.parse(str(one)) for one in cursors] == cursors
    for page in (1, 2, 3, 5):
        assert await everything(bench, page) == all_at_once
    for at, event in enumerate(all_at_once):
        upto = await bench.storage.events(bench.queue, Cursor.START, event.cursor)
        assert upto == all_at_once[: at + 1]


async def test_columns_tell_retries_and_split_no_pair(bench: Bench) -> None:
    for number in range(3):
        await bench.add(f"job-{number}")
        job = await bench.take()
        await bench.settle(Retried(lease=job.lease, failure=BOOM, delay_ms=60_000))
    told = [event.kind.value for event in await everything(bench)]
    bulk = BullmqBulk(store(bench).address)
    for limit in (1, 2, 3, 100):
        number, found = 0, list[str]()
        while (page := bulk.read_events(bench.queue, Cursor(number), limit=limit))["number"]:
            found += page["kind"]
            number = page["number"][-1]
        assert found == told
    assert told.count("retrying") == 3
    bulk.close()


async def test_the_count_of_trimmed_events_is_exact_from_inside_an_entry(bench: Bench) -> None:
    await bench.add("a")
    job = await bench.take()
    await bench.settle(Retried(lease=job.lease, failure=BOOM, delay_ms=60_000))
    retrying, _ = (await everything(bench))[-2:]
    await bench.add("b", "c")
    key = store(bench).keys(bench.queue).of("events")
    await store(bench).client.call(key, "XTRIM", key, "MAXLEN", 2)
    with pytest.raises(EventsTrimmed) as gap:
        await bench.storage.events(bench.queue, retrying.cursor)
    assert gap.value.count == 3  # its own entry, and the two of "b"
    assert len(await bench.storage.events(bench.queue, gap.value.resume)) == 2


async def as_node(bench: Bench, lease: Lease, *, delay_ms: int) -> None:
    """Put a job off as a Node worker does, who notes nothing for us."""
    storage = store(bench)
    keys, now = storage.keys(bench.queue), await storage.now(bench.queue)
    job, token = lease.job_id, lease.token
    commands: list[Command] = [call("moveJobFromActiveToWait", keys, job, token, keys.of(job))]
    if delay_ms:
        args = (keys.base, now, job, token, delay_ms, "1", b"")
        commands = [call("moveToDelayed", keys, *args, job_id=job)]
    assert await storage.pipe(bench.queue, commands) == [0]


@pytest.mark.parametrize("delay_ms", [0, 60_000])
@pytest.mark.parametrize("fails", [False, True])
async def test_what_node_puts_off_is_known_by_its_attempts_also_after_its_end(
    bench: Bench, delay_ms: int, fails: bool
) -> None:
    await bench.add("a")
    await as_node(bench, (await bench.take()).lease, delay_ms=delay_ms)
    before = await everything(bench)
    await store(bench).promote(bench.queue, ["a"])
    lease = (await bench.take()).lease
    failed = Failed(lease=lease, failure=BOOM)
    await bench.settle(failed if fails else Completed(lease=lease, result=b"1"))
    after = await everything(bench)
    assert EventKind.RETRYING not in {event.kind for event in after}
    assert after[: len(before)] == before


async def test_what_was_told_stays_told_whatever_becomes_of_the_job(bench: Bench) -> None:
    await bench.add("a", "b")
    one, two = await bench.take_many(2)
    await as_node(bench, one.lease, delay_ms=60_000)
    await bench.settle(Retried(lease=two.lease, failure=BOOM, delay_ms=60_000))
    before = await everything(bench)
    assert [event.job_id for event in before if event.kind is EventKind.RETRYING] == ["b"]
    await store(bench).promote(bench.queue, ["a", "b"])
    one, two = await bench.take_many(2)
    # From here on the attempts no longer tell: one more for "a", and none for "b".
    await bench.settle(Retried(lease=one.lease, failure=BOOM, delay_ms=60_000))
    await bench.settle(Failed(lease=two.lease, failure=BOOM))
    await store(bench).revive(bench.queue, ["b"])
    assert (await everything(bench))[: len(before)] == before
    await bench.settle(Completed(lease=(await bench.take()).lease, result=b"1"))
    assert (await everything(bench))[: len(before)] == before
    await bench.storage.remove(bench.queue, ["b"])
    await bench.add("b")
    assert (await everything(bench))[: len(before)] == before
