"""Taking jobs back, before and while they run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.queue.conftest import AnyQueue, Context, Gate, Work, echo, fail, state_is, until
from toril import CancelResult, JobCancelled, ManualClock, State
from toril.storage.protocol import Cancellation


@pytest.mark.parametrize("options", [{}, {"delay": 60}, {"priority": 5}])
async def test_a_job_that_has_not_started_is_cancelled_and_gone(
    queue: AnyQueue, options: dict[str, Any]
) -> None:
    await queue.enqueue("job-1", None, **options)
    assert await queue.cancel("job-1") == CancelResult(id="job-1", status=Cancellation.CANCELLED)
    assert await queue.get_job("job-1") is None
    assert (await queue.get_job_counts()).total == 0


async def test_a_job_between_two_tries_is_cancelled(queue: AnyQueue, work: Work) -> None:
    await work(queue, fail)
    await queue.enqueue("job-1", None)
    await until(lambda: state_is(queue, "job-1", State.DELAYED))
    assert (await queue.cancel("job-1")).status == "cancelled"
    assert await queue.get_status("job-1") is None


async def test_an_unknown_id_is_not_found(queue: AnyQueue) -> None:
    assert (await queue.cancel("nobody")).status == "not_found"
    assert (await queue.cancel("nobody", running=True)).status == "not_found"


async def test_cancelling_twice_finds_nothing_the_second_time(queue: AnyQueue) -> None:
    await queue.enqueue("job-1", None)
    assert (await queue.cancel("job-1")).status == "cancelled"
    assert (await queue.cancel("job-1")).status == "not_found"


async def test_a_running_job_is_left_alone_unless_asked_for(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    gate = Gate()
    await work(queue, gate)
    await queue.enqueue("job-1", "done")
    await gate.running()
    assert (await queue.cancel("job-1")).status == "processing"
    await clock.advance(10)
    assert not gate.jobs[0].cancelled
    gate.opened.set()
    assert await queue.wait_until_finished("job-1") == "done"


async def test_the_worker_of_a_running_job_is_asked_and_hears_within_a_second(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    gate = Gate()
    await work(queue, gate)
    await queue.enqueue("job-1", None)
    await gate.running()
    assert (await queue.cancel("job-1", running=True)).status == "requested"
    await clock.advance(1)
    assert gate.jobs[0].cancelled
    status = await queue.get_status("job-1")
    assert status is not None
    assert status.state is State.FAILED
    assert status.error is not None
    assert status.error.kind == "JobCancelled"


async def test_a_cancelled_run_is_not_tried_again(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    gate = Gate()
    await work(queue, gate)
    await queue.enqueue("job-1", None, attempts=5)
    await gate.running()
    await queue.cancel("job-1", running=True)
    await clock.advance(600)
    assert gate.begun == ["job-1"]


async def test_asking_for_a_job_that_has_not_started_cancels_it(queue: AnyQueue) -> None:
    await queue.enqueue("job-1", None)
    assert (await queue.cancel("job-1", running=True)).status == "cancelled"


async def test_a_finished_job_tells_how_it_ended_and_stays(queue: AnyQueue, work: Work) -> None:
    async def judge(job: Context) -> Any:
        return await (echo if job.data == "good" else fail)(job)

    await work(queue, judge)
    await queue.enqueue("good", "good")
    await queue.enqueue("bad", "bad", attempts=1)
    await until(lambda: state_is(queue, "bad", State.FAILED))
    for running in (False, True):
        assert (await queue.cancel("good", running=running)).status == "completed"
        assert (await queue.cancel("bad", running=running)).status == "failed"
    assert await queue.get_result("good") == "good"


async def test_the_six_answers_are_these() -> None:
    assert {str(one) for one in Cancellation} == {
        "cancelled",
        "not_found",
        "processing",
        "requested",
        "completed",
        "failed",
    }


async def test_who_waits_hears_that_the_job_was_cancelled(
    queue: AnyQueue, clock: ManualClock
) -> None:
    waiting = asyncio.create_task(queue.enqueue_and_wait("job-1", None))
    await clock.settle()
    await queue.cancel("job-1")
    with pytest.raises(JobCancelled) as cancelled:
        await waiting
    assert cancelled.value.job_id == "job-1"
    assert str(cancelled.value) == "job 'job-1' was cancelled"


async def test_who_waits_hears_that_the_running_job_was_cancelled(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    gate = Gate()
    await work(queue, gate)
    waiting = asyncio.create_task(queue.enqueue_and_wait("job-1", None))
    await gate.running()
    await queue.cancel("job-1", running=True)
    await clock.advance(1)
    with pytest.raises(JobCancelled):
        await waiting


async def test_all_who_wait_for_one_job_hear_of_it(queue: AnyQueue, clock: ManualClock) -> None:
    waiting = [asyncio.create_task(queue.enqueue_and_wait("job-1", n)) for n in range(5)]
    await clock.settle()
    await queue.cancel("job-1")
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(answer) for answer in answers] == [JobCancelled] * 5


async def test_a_cancelled_id_can_be_queued_anew(queue: AnyQueue, work: Work) -> None:
    await queue.enqueue("job-1", "old")
    await queue.cancel("job-1")
    assert (await queue.enqueue("job-1", "new")).status == "queued"
    await work(queue, echo)
    assert await queue.wait_until_finished("job-1") == "new"


async def test_an_id_cancelled_while_somebody_waited_can_be_waited_for_anew(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    first = asyncio.create_task(queue.enqueue_and_wait("job-1", "old"))
    await clock.settle()
    await queue.cancel("job-1")
    with pytest.raises(JobCancelled):
        await first
    await work(queue, echo)
    assert await queue.enqueue_and_wait("job-1", "new") == "new"


async def test_an_id_cancelled_while_it_ran_can_be_queued_anew(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    gate = Gate()
    await work(queue, gate)
    await queue.enqueue("job-1", "old")
    await gate.running()
    await queue.cancel("job-1", running=True)
    await clock.advance(1)
    gate.opened.set()
    assert await queue.enqueue_and_wait("job-1", "new") == "new"


async def test_a_cancelled_job_frees_its_dedup_key(queue: AnyQueue) -> None:
    await queue.enqueue("a", None, dedup="tenant-1")
    await queue.cancel("a")
    assert (await queue.enqueue("b", None, dedup="tenant-1")).status == "queued"


async def test_the_hooks_of_the_worker_hear_of_a_cancelled_run(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    gate = Gate()
    heard: list[str] = []
    worker = await work(queue, gate)
    worker.on("cancelled")(lambda job: heard.append(job.id))
    await queue.enqueue("job-1", None)
    await gate.running()
    await queue.cancel("job-1", running=True)
    await clock.advance(1)
    assert heard == ["job-1"]
