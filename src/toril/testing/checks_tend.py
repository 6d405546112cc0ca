"""Check life and upkeep: open and close, pause, counts, peek, purge, destroy, workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from toril.errors import QueueBusy, StorageClosed
from toril.event import EventKind
from toril.job import State, Terms
from toril.outcome import DONE, GONE, Completed, Failure, Released, Retried
from toril.storage.protocol import Counts, EndingKind
from toril.testing.suite import Bench, check, error_of, soon

LONG_MS = 600_000
LATER = Terms(delay_ms=60_000)


@check()
async def a_paused_queue_hands_out_nothing(bench: Bench) -> None:
    await bench.storage.pause(bench.queue, True)
    await bench.add("a")
    await bench.add("b", terms=Terms(priority=1))
    await bench.add("c", terms=Terms(delay_ms=1_000))
    await bench.rig.advance(1_001)
    assert not (await bench.claim(5)).jobs, "a paused queue handed out jobs"
    await bench.storage.pause(bench.queue, False)
    assert sorted(await bench.order(3)) == ["a", "b", "c"]


@check()
async def running_jobs_go_on_while_the_queue_is_paused(bench: Bench) -> None:
    await bench.add("a", "b")
    job = await bench.take()
    await bench.storage.pause(bench.queue, True)
    assert not (await bench.storage.renew(bench.queue, [job.lease], 30_000)).lost
    done = Completed(lease=job.lease, result=b"1")
    settlement = await bench.settle(done, refill=bench.wish(1))
    assert list(settlement.answers) == [DONE]
    assert not settlement.batch.jobs, "the refill brought a job of a paused queue"
    assert await bench.state("a") is State.COMPLETED


@check()
async def a_job_given_back_to_a_paused_queue_waits_for_the_resume(bench: Bench) -> None:
    await bench.add("a", "b")
    job = await bench.take()
    await bench.storage.pause(bench.queue, True)
    assert await bench.answer(Released(lease=job.lease)) == DONE
    assert not (await bench.claim()).jobs
    await bench.storage.pause(bench.queue, False)
    assert await bench.order(2) == ["a", "b"]


@check()
async def a_pause_shows_in_counts_and_events_and_may_be_repeated(bench: Bench) -> None:
    await bench.unheard("pause", lambda: bench.storage.pause(bench.queue, True))
    await bench.storage.pause(bench.queue, True)
    assert (await bench.storage.counts(bench.queue)).paused
    await bench.storage.pause(bench.queue, False)
    assert not (await bench.storage.counts(bench.queue)).paused
    kinds = await bench.kinds()
    assert EventKind.PAUSED in kinds
    assert EventKind.RESUMED in kinds


@check()
async def a_queue_paused_before_its_first_job_is_paused(bench: Bench) -> None:
    await bench.storage.pause(bench.queue, True)
    (receipt,) = await bench.add("a")
    assert receipt.created
    assert (await bench.storage.counts(bench.queue)).waiting == 1
    assert not (await bench.claim()).jobs


@check()
async def counts_tell_the_jobs_of_each_state(bench: Bench) -> None:
    await bench.run("done-1", "done-2")
    await bench.add("broken")
    await bench.fail(await bench.take())
    await bench.add("busy")
    await bench.take()
    await bench.add("x", "y")
    await bench.add("urgent", terms=Terms(priority=5))
    await bench.add("later", terms=LATER)
    counts = await bench.storage.counts(bench.queue)
    expected = Counts(waiting=2, prioritized=1, delayed=1, active=1, completed=2, failed=1)
    assert counts == expected
    assert (counts.total, counts.ready, counts.of(State.COMPLETED)) == (8, 3, 2)


@check()
async def counts_of_an_unknown_queue_are_zero(bench: Bench) -> None:
    assert await bench.storage.counts("nothing-here") == Counts()


async def _peek(bench: Bench, state: State, start: int, stop: int) -> list[str]:
    records = await bench.storage.peek(bench.queue, state, start, stop)
    assert {record.state for record in records} <= {state}
    return [record.spec.id for record in records]


@check()
async def peek_shows_the_next_to_run_first(bench: Bench) -> None:
    await bench.add("a", "b", "c")
    for job_id, priority in [("p3", 3), ("p1", 1), ("p2", 2)]:
        await bench.add(job_id, terms=Terms(priority=priority))
    for job_id, delay_ms in [("d3", 30_000), ("d1", 10_000), ("d2", 20_000)]:
        await bench.add(job_id, terms=Terms(delay_ms=delay_ms))
    assert await _peek(bench, State.WAITING, 0, 10) == ["a", "b", "c"]
    assert await _peek(bench, State.PRIORITIZED, 0, 10) == ["p1", "p2", "p3"]
    assert await _peek(bench, State.DELAYED, 0, 10) == ["d1", "d2", "d3"]


@check()
async def peek_shows_the_newest_finished_first(bench: Bench) -> None:
    for job_id in "abc":
        await bench.run(job_id)
        await bench.rig.advance(10)
    for job_id in "xyz":
        await bench.add(job_id)
        await bench.fail(await bench.take())
        await bench.rig.advance(10)
    assert await _peek(bench, State.COMPLETED, 0, 10) == ["c", "b", "a"]
    assert await _peek(bench, State.FAILED, 0, 10) == ["z", "y", "x"]


@check()
async def peek_reads_page_by_page(bench: Bench) -> None:
    ids = [f"job-{number}" for number in range(7)]
    await bench.add(*ids)
    pages = [await _peek(bench, State.WAITING, start, start + 3) for start in (0, 3, 6, 9)]
    assert pages == [ids[:3], ids[3:6], ids[6:], []]
    assert (await bench.storage.counts(bench.queue)).waiting == 7


@check()
async def peek_shows_running_jobs_with_their_workers(bench: Bench) -> None:
    await bench.add("a", "b")
    await bench.take(worker="w1")
    await bench.take(worker="w2")
    records = await bench.storage.peek(bench.queue, State.ACTIVE, 0, 10)
    owners = {record.spec.id: record.worker_id for record in records}
    assert owners == {"a": "w1", "b": "w2"}


@check()
async def queues_names_the_queues_that_hold_jobs(bench: Bench) -> None:
    assert bench.queue not in await bench.storage.queues()
    await bench.add("a")
    await Bench(bench.rig, "other").add("a")
    assert {bench.queue, "other"} <= set(await bench.storage.queues())


@check()
async def a_destroyed_queue_is_no_longer_named(bench: Bench) -> None:
    await bench.run("a")
    await Bench(bench.rig, "other").add("a")
    await bench.storage.destroy(bench.queue)
    names = set(await bench.storage.queues())
    assert "other" in names
    assert bench.queue not in names, "a queue that holds nothing is still named"


@check()
async def workers_are_seen_when_they_claim_and_struck_off_when_they_leave(bench: Bench) -> None:
    await bench.add("a", "b", "c")
    await bench.take(worker="w1")
    await bench.take(worker="w1")
    await bench.take(worker="w2")
    seen = {worker.id: worker for worker in await bench.storage.workers(bench.queue)}
    assert {name: worker.active for name, worker in seen.items()} == {"w1": 2, "w2": 1}
    assert all(worker.seen_ms_ago >= 0 for worker in seen.values())
    await bench.storage.leave(bench.queue, "w2")
    assert [worker.id for worker in await bench.storage.workers(bench.queue)] == ["w1"]
    await bench.storage.leave(bench.queue, "nobody")


@check()
async def purge_deletes_the_jobs_of_the_given_states_only(bench: Bench) -> None:
    await bench.run("done")
    await bench.add("broken")
    await bench.fail(await bench.take())
    await bench.add("waiting")
    await bench.rig.advance(1_000)
    assert list(await bench.storage.purge(bench.queue, [State.COMPLETED], 0)) == ["done"]
    assert await bench.state("done") is None
    assert await bench.state("broken") is State.FAILED
    gone = await bench.storage.purge(bench.queue, [State.FAILED, State.WAITING], 0)
    assert sorted(gone) == ["broken", "waiting"]
    assert (await bench.storage.counts(bench.queue)).total == 0
    assert not (await bench.claim()).jobs


@check()
async def purge_spares_the_young(bench: Bench) -> None:
    await bench.run("old")
    await bench.rig.advance(60_000)
    await bench.run("young")
    assert list(await bench.storage.purge(bench.queue, [State.COMPLETED], 30_000)) == ["old"]
    assert await bench.state("young") is State.COMPLETED


@check()
async def purge_stops_at_its_limit_oldest_first(bench: Bench) -> None:
    for job_id in "abcd":
        await bench.run(job_id)
        await bench.rig.advance(1_000)
    assert sorted(await bench.storage.purge(bench.queue, [State.COMPLETED], 0, 2)) == ["a", "b"]
    left = [await bench.state(job_id) for job_id in "abcd"]
    assert left == [None, None, State.COMPLETED, State.COMPLETED]
    assert EventKind.CLEANED in await bench.kinds()


@check()
async def purge_measures_the_age_of_a_finished_job_from_its_end(bench: Bench) -> None:
    await bench.add("a")
    await bench.rig.advance(60_000)
    await bench.complete(await bench.take())
    assert list(await bench.storage.purge(bench.queue, [State.COMPLETED], 30_000)) == []
    assert await bench.state("a") is State.COMPLETED


@check()
async def destroy_refuses_while_jobs_run(bench: Bench) -> None:
    await bench.add("a", "b")
    job = await bench.take()
    await error_of(QueueBusy, lambda: bench.storage.destroy(bench.queue))
    assert (await bench.storage.counts(bench.queue)).total == 2
    assert await bench.answer(Completed(lease=job.lease, result=b"1")) == DONE


@check()
async def destroy_by_force_leaves_nothing_to_settle_or_claim(bench: Bench) -> None:
    await bench.add("a", "b")
    await bench.add("later", terms=LATER)
    job = await bench.take()
    await bench.storage.destroy(bench.queue, force=True)
    assert await bench.answer(Completed(lease=job.lease, result=b"1")) == GONE
    assert (await bench.storage.counts(bench.queue)).total == 0
    await bench.rig.advance(60_001)
    assert not (await bench.claim(5)).jobs
    (receipt,) = await bench.add("a")
    assert receipt.created


@check()
async def destroy_ends_the_waiting_for_its_jobs(bench: Bench) -> None:
    await bench.add("a", reply=True)
    task = await bench.spawn(lambda: bench.ending("a", LONG_MS))
    await bench.storage.destroy(bench.queue)
    assert (await soon(task)).kind is EndingKind.GONE


@check()
async def event_numbers_go_on_after_a_destroy(bench: Bench) -> None:
    await bench.run("a")
    before = await bench.storage.cursor(bench.queue)
    await bench.storage.destroy(bench.queue)
    assert await bench.storage.cursor(bench.queue) >= before
    await bench.add("b")
    fresh = await bench.events(before)
    assert [event.job_id for event in fresh if event.kind is EventKind.ADDED] == ["b"]
    assert all(event.cursor > before for event in fresh)


@check()
async def purge_of_the_failed_spares_a_job_that_will_be_tried_again(bench: Bench) -> None:
    await bench.add("a", terms=Terms(attempts=3))
    job = await bench.take()
    failure = Failure(kind="ValueError", reason="boom")
    await bench.settle(Retried(lease=job.lease, failure=failure, delay_ms=0))
    assert list(await bench.storage.purge(bench.queue, [State.FAILED], 0)) == []
    assert await bench.order(1) == ["a"]


@check()
async def breaking_off_any_call_leaves_the_storage_usable(bench: Bench) -> None:
    await bench.add(*(f"job-{number}" for number in range(12)))
    wishes = [bench.wish() for _ in range(6)]
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: bench.add("extra"),
        lambda: bench.storage.counts(bench.queue),
        lambda: bench.storage.finished(bench.queue, ["job-11"], LONG_MS),
        lambda: bench.storage.wait([bench.queue], LONG_MS),
    ]
    for turns, wish in enumerate(wishes):
        calls.append(partial(bench.storage.claim, bench.queue, wish))
        await _break_off(calls, turns)
    for wish in wishes:
        for job in (await bench.storage.claim(bench.queue, wish)).jobs:
            assert job.stalls == 0
            assert list((await bench.complete(job)).answers) == [DONE]
    left = (await bench.storage.counts(bench.queue)).waiting
    assert len(await bench.take_many(left)) == left
    assert (await bench.storage.counts(bench.queue)).completed == len(wishes)


async def _break_off(calls: list[Callable[[], Awaitable[object]]], turns: int) -> None:
    """Start calls and cancel them after so many turns of the loop."""
    tasks = [asyncio.ensure_future(call()) for call in calls]
    for _ in range(turns):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _calls(bench: Bench) -> list[Callable[[], Awaitable[object]]]:
    storage, queue = bench.storage, bench.queue
    return [
        partial(bench.add, "b"),
        partial(storage.get, queue, ["a"]),
        partial(storage.finished, queue, ["a"], LONG_MS),
        partial(bench.claim),
        partial(storage.wait, [queue], LONG_MS),
        partial(storage.reap, queue, 1, 1_000),
        partial(storage.cursor, queue),
        partial(storage.counts, queue),
        partial(storage.queues),
        partial(storage.pause, queue, True),
    ]


@check()
async def a_storage_stays_open_until_its_last_close(bench: Bench) -> None:
    await bench.storage.open()
    await bench.storage.close()
    await bench.add("a")
    await bench.storage.close()
    for call in _calls(bench):
        await error_of(StorageClosed, call)
    await bench.storage.open()
    assert await bench.state("a") is State.WAITING


@check()
async def the_last_close_ends_blocked_calls(bench: Bench) -> None:
    await bench.add("a", terms=Terms(delay_ms=LONG_MS))
    cursor = await bench.storage.cursor(bench.queue)
    tasks: list[asyncio.Task[object]] = [
        await bench.spawn(lambda: bench.storage.wait([bench.queue], LONG_MS)),
        await bench.spawn(lambda: bench.storage.finished(bench.queue, ["a"], LONG_MS)),
        await bench.spawn(lambda: bench.storage.events(bench.queue, cursor, block_ms=LONG_MS)),
    ]
    await bench.storage.close()
    for task in tasks:
        assert not await soon(task)
    await bench.storage.open()
