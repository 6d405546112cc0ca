"""Check what can be seen: events in order, and endings for those who wait."""

from __future__ import annotations

from toril.event import Cursor, EventKind
from toril.job import KEEP_NONE, State, Terms
from toril.outcome import Completed, Failed, Failure, Retried
from toril.storage.protocol import EndingKind, Feature
from toril.testing.suite import Bench, check, soon

BOOM = Failure(kind="ValueError", reason="boom")
LONG_MS = 600_000


@check()
async def the_life_of_a_job_is_told_in_order(bench: Bench) -> None:
    await bench.run("a")
    own = [event.kind for event in await bench.events() if event.job_id == "a"]
    milestones = [EventKind.ADDED, EventKind.WAITING, EventKind.ACTIVE, EventKind.COMPLETED]
    assert [kind for kind in own if kind in milestones] == milestones


@check()
async def a_retry_and_a_failure_are_told(bench: Bench) -> None:
    await bench.add("a", terms=Terms(attempts=2))
    first = await bench.take()
    await bench.settle(Retried(lease=first.lease, failure=BOOM, delay_ms=1_000))
    assert await bench.told(EventKind.DELAYED) == ["a"]
    await bench.rig.advance(1_001)
    second = await bench.take()
    await bench.settle(Failed(lease=second.lease, failure=BOOM, exhausted=True))
    assert await bench.told(EventKind.ACTIVE) == ["a", "a"]
    assert await bench.told(EventKind.FAILED) == ["a"]
    (failed,) = [event for event in await bench.events() if event.kind is EventKind.FAILED]
    assert "boom" in (failed.reason or "")


@check()
async def a_change_and_its_event_are_one_step(bench: Bench) -> None:
    await bench.add("a")
    job = await bench.take()
    cursor = await bench.storage.cursor(bench.queue)
    task = await bench.spawn(lambda: bench.storage.events(bench.queue, cursor, block_ms=LONG_MS))
    await bench.unheard("settle", lambda: bench.complete(job))
    told = [event.kind for event in await soon(task)]
    assert EventKind.COMPLETED in told
    assert await bench.state("a") is State.COMPLETED, "the event came without its change"


@check()
async def every_finished_job_has_exactly_one_event_of_its_end(bench: Bench) -> None:
    ids = [f"job-{number}" for number in range(10)]
    await bench.add(*ids)
    jobs = await bench.take_many(10)
    for job in jobs[::2]:
        await bench.fail(job)
    await bench.settle(*(Completed(lease=job.lease, result=b"1") for job in jobs[1::2]))
    assert await bench.told(EventKind.FAILED) == ids[::2]
    assert await bench.told(EventKind.COMPLETED) == ids[1::2]
    ended = {
        record.spec.id
        for state in (State.COMPLETED, State.FAILED)
        for record in await bench.storage.peek(bench.queue, state, 0, 100)
    }
    assert ended == set(ids), "an event was told without its change"


@check()
async def events_are_in_one_order_and_can_be_read_again(bench: Bench) -> None:
    await bench.run("a", "b", "c")
    events = await bench.events()
    cursors = [event.cursor for event in events]
    assert cursors == sorted(set(cursors)), "cursors must rise and never repeat"
    assert cursors[0] > Cursor.START
    assert [event.time_ms for event in events] == sorted(event.time_ms for event in events)
    assert await bench.events() == events
    assert await bench.events(cursors[3]) == events[4:]


@check()
async def a_range_of_events_includes_its_end_and_not_its_start(bench: Bench) -> None:
    await bench.run("a", "b", "c")
    events = await bench.events()
    after, until = events[1].cursor, events[5].cursor
    assert list(await bench.storage.events(bench.queue, after, until)) == events[2:6]
    assert list(await bench.storage.events(bench.queue, until, until)) == []
    assert list(await bench.storage.events(bench.queue, until, after)) == []


@check()
async def a_limit_cuts_a_read_without_losing_the_rest(bench: Bench) -> None:
    await bench.run("a", "b", "c")
    events = await bench.events()
    seen: list[object] = []
    after = Cursor.START
    while page := await bench.storage.events(bench.queue, after, limit=2):
        assert len(page) <= 2
        seen += page
        after = page[-1].cursor
    assert seen == events


@check()
async def the_cursor_is_the_place_after_the_newest_event(bench: Bench) -> None:
    await bench.run("a")
    cursor = await bench.storage.cursor(bench.queue)
    assert cursor == (await bench.events())[-1].cursor
    assert await bench.events(cursor) == []
    await bench.add("b")
    assert (await bench.events(cursor))[0].job_id == "b"
    assert Cursor.parse(str(cursor)) == cursor


@check()
async def reading_an_unknown_queue_finds_no_events(bench: Bench) -> None:
    assert list(await bench.storage.events("nothing-here", Cursor.START)) == []
    cursor = await bench.storage.cursor("nothing-here")
    assert list(await bench.storage.events("nothing-here", cursor)) == []


@check()
async def a_blocked_read_is_woken_by_the_next_event(bench: Bench) -> None:
    await bench.add("a")
    cursor = await bench.storage.cursor(bench.queue)
    task = await bench.spawn(lambda: bench.storage.events(bench.queue, cursor, block_ms=LONG_MS))
    assert not task.done()
    await bench.add("b")
    events = await soon(task)
    assert (events[0].kind, events[0].job_id) == (EventKind.ADDED, "b")


@check()
async def a_blocked_read_ends_empty_when_its_time_is_up(bench: Bench) -> None:
    task = await bench.spawn(
        lambda: bench.storage.events(bench.queue, Cursor.START, block_ms=5_000)
    )
    await bench.rig.advance(5_001)
    assert list(await soon(task)) == []


@check()
async def finished_tells_a_known_ending_at_once(bench: Bench) -> None:
    await bench.add("a", "b", reply=True)
    await bench.complete(await bench.take(), b'"mine"')
    await bench.fail(await bench.take(), "no luck")
    done = await bench.ending("a", LONG_MS)
    assert (done.kind, done.result, done.failure) == (EndingKind.COMPLETED, b'"mine"', None)
    failed = await bench.ending("b", LONG_MS)
    assert (failed.kind, failed.result) == (EndingKind.FAILED, None)
    assert failed.failure is not None
    assert (failed.failure.kind, failed.failure.reason) == ("ValueError", "no luck")


@check()
async def finished_waits_for_an_ending(bench: Bench) -> None:
    await bench.add("a", reply=True)
    job = await bench.take()
    task = await bench.spawn(lambda: bench.ending("a", LONG_MS))
    assert not task.done()
    await bench.complete(job, b"null")
    ending = await soon(task)
    assert (ending.id, ending.kind, ending.result) == ("a", EndingKind.COMPLETED, b"null")


@check()
async def finished_says_nothing_of_a_job_that_still_runs(bench: Bench) -> None:
    await bench.add("a", reply=True)
    assert list(await bench.storage.finished(bench.queue, ["a"], 0)) == []
    task = await bench.spawn(lambda: bench.storage.finished(bench.queue, ["a"], 5_000))
    await bench.take()
    await bench.rig.advance(5_001)
    assert list(await soon(task)) == []


@check()
async def finished_waits_through_a_retry(bench: Bench) -> None:
    await bench.add("a", terms=Terms(attempts=2), reply=True)
    task = await bench.spawn(lambda: bench.ending("a", LONG_MS))
    job = await bench.take()
    await bench.settle(Retried(lease=job.lease, failure=BOOM, delay_ms=0))
    await bench.rig.advance(1)
    assert not task.done(), "a failed attempt was told as the end of the job"
    await bench.complete(await bench.take(), b'"at last"')
    assert (await soon(task)).result == b'"at last"'


@check()
async def finished_tells_that_a_job_was_cancelled(bench: Bench) -> None:
    await bench.add("a", reply=True)
    task = await bench.spawn(lambda: bench.ending("a", LONG_MS))
    await bench.storage.cancel(bench.queue, ["a"])
    assert (await soon(task)).kind is EndingKind.CANCELLED
    assert (await bench.ending("a")).kind is EndingKind.CANCELLED


@check()
async def finished_tells_that_a_job_is_gone(bench: Bench) -> None:
    assert (await bench.ending("nobody", LONG_MS)).kind is EndingKind.GONE
    await bench.add("a", reply=True)
    task = await bench.spawn(lambda: bench.ending("a", LONG_MS))
    await bench.storage.remove(bench.queue, ["a"])
    assert (await soon(task)).kind is EndingKind.GONE


@check(feature=Feature.KEEP_COUNT)
async def the_ending_of_a_job_not_kept_is_told_to_those_who_wait(bench: Bench) -> None:
    terms = Terms(keep_completed=KEEP_NONE, keep_failed=KEEP_NONE)
    await bench.add("a", "b", terms=terms, reply=True)
    task = await bench.spawn(lambda: bench.ending("a", LONG_MS))
    await bench.complete(await bench.take(), b'"mine"')
    await bench.fail(await bench.take())
    assert (await soon(task)).result == b'"mine"'
    await bench.rig.advance(55_000)
    assert (await bench.ending("a")).result == b'"mine"', "it is to be kept for a minute"
    assert (await bench.ending("b")).kind is EndingKind.FAILED
    assert await bench.state("a") is None


@check()
async def finished_watches_several_jobs_at_once(bench: Bench) -> None:
    await bench.add("a", "b", "c", reply=True)
    a, b, _c = await bench.take_many(3)
    storage, ids = bench.storage, ["a", "b", "c"]
    task = await bench.spawn(lambda: storage.finished(bench.queue, ids, LONG_MS))
    await bench.complete(b)
    assert [ending.id for ending in await soon(task)] == ["b"]
    await bench.complete(a)
    endings = await storage.finished(bench.queue, ["a", "b", "c", "nobody"], LONG_MS)
    assert [ending.id for ending in endings] == ["a", "b", "nobody"]


@check()
async def finished_may_be_asked_for_one_job_twice(bench: Bench) -> None:
    await bench.add("a", reply=True)
    job = await bench.take()
    ids = ["a", "a"]
    task = await bench.spawn(lambda: bench.storage.finished(bench.queue, ids, LONG_MS))
    await bench.complete(job)
    assert {ending.id for ending in await soon(task)} == {"a"}


@check()
async def many_may_wait_for_the_same_and_for_different_jobs(bench: Bench) -> None:
    await bench.add("a", "b", reply=True)
    tasks = [await bench.spawn(lambda: bench.ending("a", LONG_MS)) for _ in range(3)]
    other = await bench.spawn(lambda: bench.ending("b", LONG_MS))
    tasks[0].cancel()
    await bench.complete(await bench.take(), b'"for all"')
    assert [(await soon(task)).result for task in tasks[1:]] == [b'"for all"'] * 2
    assert not other.done()
    await bench.complete(await bench.take())
    assert (await soon(other)).id == "b"
