"""Following what happens in a queue."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.queue.conftest import AnyQueue, MakeQueue, Work, echo, fail, state_is, until
from toril import (
    Cursor,
    Event,
    EventKind,
    EventsTrimmed,
    ManualClock,
    MemoryStorage,
    Queue,
    State,
    StorageClosed,
)


class Reader:
    """Follows a queue in a task of its own."""

    def __init__(self, queue: AnyQueue, **options: Any) -> None:
        self.seen: list[Event] = []
        self.task = asyncio.create_task(self._read(queue, options))

    async def _read(self, queue: AnyQueue, options: dict[str, Any]) -> None:
        async for event in queue.events(**options):
            self.seen.append(event)

    @property
    def kinds(self) -> list[str]:
        """What happened, in order."""
        return [str(event.kind) for event in self.seen]

    async def stop(self) -> None:
        """Cancel it, and see it go."""
        self.task.cancel()
        await asyncio.wait([self.task])


async def take(queue: AnyQueue, count: int, after: Cursor, **options: Any) -> list[Event]:
    """Read so many events after a place."""
    events: list[Event] = []
    stream = queue.events(after, **options)
    async for event in stream:
        events.append(event)
        if len(events) == count:
            break
    await stream.aclose()  # type: ignore[attr-defined]
    return events


async def test_events_are_followed_from_now_on(queue: AnyQueue, clock: ManualClock) -> None:
    await queue.enqueue("before", None)
    reader = Reader(queue)
    await clock.settle()
    await queue.enqueue("after", None)
    await clock.settle()
    assert [(event.kind, event.job_id) for event in reader.seen] == [
        (EventKind.ADDED, "after"),
        (EventKind.WAITING, "after"),
    ]
    await reader.stop()


async def test_a_whole_life_is_told_in_order(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    reader = Reader(queue)
    await clock.settle()
    await work(queue, echo, worker_id="worker-1")
    await queue.enqueue_and_wait("job-1", "result", name="send")
    await clock.settle()
    assert reader.kinds == ["added", "waiting", "active", "completed", "drained"]
    added, _, active, completed, _ = reader.seen
    assert {event.job_name for event in reader.seen[:4]} == {"send"}
    assert added.time_ms == clock.now_ms()
    assert (active.worker_id, active.attempt, active.prev) == ("worker-1", 1, "waiting")
    assert (completed.prev, completed.result_size) == ("active", len('"result"'))
    cursors = [event.cursor for event in reader.seen]
    assert cursors == sorted(set(cursors))
    await reader.stop()


async def test_retries_and_failures_are_told(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    await work(queue, fail)
    reader = Reader(queue)
    await clock.settle()
    await queue.enqueue("job-1", "luck", attempts=2)
    await clock.advance(5)
    assert await state_is(queue, "job-1", State.FAILED)
    told = [kind for kind in reader.kinds if kind != "drained"]
    assert told == [
        "added",
        "waiting",
        "active",
        "retrying",
        "delayed",
        "waiting",
        "active",
        "failed",
        "retries-exhausted",
    ]
    retrying = next(event for event in reader.seen if event.kind is EventKind.RETRYING)
    assert retrying.reason == "RuntimeError: no luck"
    assert retrying.delay_ms is not None
    assert 800 <= retrying.delay_ms <= 1200
    await reader.stop()


async def test_duplicates_cancels_and_pauses_are_told(queue: AnyQueue, clock: ManualClock) -> None:
    reader = Reader(queue)
    await clock.settle()
    await queue.enqueue("job-1", None, delay=60, dedup="key")
    await queue.enqueue("job-1", None)
    await queue.enqueue("job-2", None, dedup="key")
    await queue.cancel("job-1")
    await queue.pause()
    await queue.resume()
    await queue.enqueue("job-3", None)
    await queue.remove_job("job-3")
    await clock.settle()
    assert reader.kinds == [
        "added",
        "delayed",
        "duplicated",
        "deduplicated",
        "cancelled",
        "paused",
        "resumed",
        "added",
        "waiting",
        "removed",
    ]
    await reader.stop()


async def test_events_after_a_cursor_can_be_read_again(queue: AnyQueue) -> None:
    for n in range(3):
        await queue.enqueue(f"job-{n}", None)
    everything = await take(queue, 6, Cursor.START)
    assert [event.job_id for event in everything[::2]] == ["job-0", "job-1", "job-2"]
    assert await take(queue, 4, everything[1].cursor) == everything[2:]
    assert await take(queue, 4, Cursor.parse(str(everything[1].cursor))) == everything[2:]


async def test_a_long_history_is_read_without_a_gap(queue: AnyQueue) -> None:
    for n in range(1200):
        await queue.enqueue(f"job-{n}", None)
    events = await take(queue, 2400, Cursor.START)
    assert [event.job_id for event in events[::2]] == [f"job-{n}" for n in range(1200)]


async def test_reading_goes_on_where_the_history_ends(queue: AnyQueue, clock: ManualClock) -> None:
    await queue.enqueue("old", None)
    reader = Reader(queue, after=Cursor.START)
    await clock.settle()
    assert len(reader.seen) == 2
    await clock.advance(60)
    await queue.enqueue("new", None)
    await clock.settle()
    assert [event.job_id for event in reader.seen] == ["old", "old", "new", "new"]
    await reader.stop()


async def test_events_that_are_gone_are_counted(queue: AnyQueue) -> None:
    await queue.tune(events_kept=4)
    for n in range(5):
        await queue.enqueue(f"job-{n}", None)
    with pytest.raises(EventsTrimmed) as gap:
        await take(queue, 1, Cursor.START)
    assert gap.value.count == 6
    assert isinstance(gap.value, LookupError)
    resumed = await take(queue, 4, gap.value.resume)
    assert [event.job_id for event in resumed] == ["job-3", "job-3", "job-4", "job-4"]


async def test_events_that_are_gone_can_be_skipped(queue: AnyQueue) -> None:
    await queue.tune(events_kept=4)
    for n in range(5):
        await queue.enqueue(f"job-{n}", None)
    events = await take(queue, 4, Cursor.START, skip_trimmed=True)
    assert [event.job_id for event in events] == ["job-3", "job-3", "job-4", "job-4"]


async def test_a_bound_that_is_lifted_keeps_everything_again(queue: AnyQueue) -> None:
    await queue.tune(events_kept=2)
    await queue.tune()
    cursor = await queue.storage.cursor(queue.name)
    for n in range(10):
        await queue.enqueue(f"job-{n}", None)
    assert len(await take(queue, 20, cursor)) == 20


async def test_a_reader_that_is_too_slow_is_told(queue: AnyQueue) -> None:
    await queue.tune(events_kept=4)
    await queue.enqueue("first", None)
    stream = queue.events(Cursor.START)
    assert (await anext(stream)).job_id == "first"
    for n in range(5):
        await queue.enqueue(f"job-{n}", None)
    assert (await anext(stream)).job_id == "first"
    with pytest.raises(EventsTrimmed):
        await anext(stream)


async def test_following_ends_cleanly_when_its_task_is_cancelled(
    queue: AnyQueue, clock: ManualClock
) -> None:
    before = asyncio.all_tasks()
    reader = Reader(queue)
    await clock.settle()
    await reader.stop()
    assert reader.task.cancelled()
    await clock.settle()
    assert asyncio.all_tasks() == before
    assert clock.pending == 0
    await queue.enqueue("job-1", None)
    assert reader.seen == []


async def test_many_readers_see_the_same(queue: AnyQueue, work: Work, clock: ManualClock) -> None:
    readers = [Reader(queue) for _ in range(3)]
    await clock.settle()
    await work(queue, echo, concurrency=4)
    await asyncio.gather(*(queue.enqueue_and_wait(f"job-{n}", n) for n in range(20)))
    await clock.settle()
    assert len(readers[0].seen) >= 80
    assert readers[0].seen == readers[1].seen == readers[2].seen
    for reader in readers:
        await reader.stop()


async def test_a_reader_sees_only_its_queue(make_queue: MakeQueue, clock: ManualClock) -> None:
    emails, sms = make_queue("emails"), make_queue("sms")
    reader = Reader(emails)
    await clock.settle()
    await sms.enqueue("text", None)
    await emails.enqueue("mail", None)
    await clock.settle()
    assert {event.job_id for event in reader.seen} == {"mail"}
    await reader.stop()


async def test_progress_is_an_event_with_its_value(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    async def report(job: Any) -> None:
        await job.progress({"done": [1, 2]})

    reader = Reader(queue)
    await clock.settle()
    await work(queue, report)
    await queue.enqueue("job-1", None)
    await until(lambda: state_is(queue, "job-1", State.COMPLETED))
    await clock.settle()
    told = [event for event in reader.seen if event.kind is EventKind.PROGRESS]
    assert [event.value for event in told] == [{"done": [1, 2]}]
    await reader.stop()


async def test_a_reader_learns_that_the_storage_was_closed(clock: ManualClock) -> None:
    queue: AnyQueue = Queue("emails", MemoryStorage(clock=clock))
    reader = Reader(queue)
    await clock.settle()
    await queue.stop()
    await asyncio.wait([reader.task])
    assert isinstance(reader.task.exception(), StorageClosed)
