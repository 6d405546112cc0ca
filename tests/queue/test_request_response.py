"""Handing in and waiting: results, failures, limits, and many who wait at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from tests.queue.conftest import (
    AnyQueue,
    Context,
    Gate,
    MakeQueue,
    Work,
    claim_one,
    echo,
    fail,
    memory_only,
    state_is,
    until,
)
from toril import (
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobOptions,
    ManualClock,
    MemoryStorage,
    PermanentError,
    Queue,
    State,
    Storage,
    StorageClosed,
    StorageUnavailable,
    WaitTimeout,
)
from toril.storage.protocol import Ending


async def add(job: Context) -> int:
    """Add two numbers, as in the README."""
    total: int = job.data["a"] + job.data["b"]
    return total


# -- results -------------------------------------------------------------------------------


async def test_the_result_of_the_handler_is_returned(queue: AnyQueue, work: Work) -> None:
    await work(queue, add)
    assert await queue.enqueue_and_wait("job-1", {"a": 2, "b": 3}) == 5


async def test_the_snippet_of_the_readme_prints_five() -> None:
    queue: AnyQueue = Queue("hello", "memory:")
    queue.execute(lambda job: job.data["a"] + job.data["b"])
    async with queue:
        assert await queue.enqueue_and_wait("job-1", {"a": 2, "b": 3}) == 5


async def test_none_is_a_result(queue: AnyQueue, work: Work) -> None:
    await work(queue, echo)
    assert await queue.enqueue_and_wait("job-1", None) is None


async def test_a_job_that_has_run_answers_from_the_cache(queue: AnyQueue, work: Work) -> None:
    gate = Gate()
    gate.opened.set()
    worker = await work(queue, gate)
    assert await queue.enqueue_and_wait("job-1", "first") == "first"
    await worker.stop()
    assert await queue.enqueue_and_wait("job-1", "second") == "first"
    assert gate.begun == ["job-1"]


async def test_a_cached_result_is_there_even_without_time_to_wait(
    queue: AnyQueue, work: Work
) -> None:
    await work(queue, echo)
    await queue.enqueue_and_wait("job-1", 1)
    assert await queue.enqueue_and_wait("job-1", 1, timeout=0) == 1
    assert await queue.wait_until_finished("job-1", timeout=0) == 1


async def test_waiting_joins_a_job_of_the_same_id_that_runs(queue: AnyQueue, work: Work) -> None:
    gate = Gate()
    await work(queue, gate)
    await queue.enqueue("job-1", "first")
    await gate.running()
    waiting = asyncio.create_task(queue.enqueue_and_wait("job-1", "second"))
    await asyncio.sleep(0)
    gate.opened.set()
    assert await waiting == "first"
    assert gate.begun == ["job-1"]


async def test_a_job_that_is_not_kept_still_answers_those_who_wait(
    queue: AnyQueue, work: Work
) -> None:
    await work(queue, echo)
    assert await queue.enqueue_and_wait("job-1", 1, keep_completed=False) == 1
    assert await queue.get_job("job-1") is None


async def test_a_failure_that_is_not_kept_still_reaches_those_who_wait(
    queue: AnyQueue, work: Work
) -> None:
    await work(queue, fail)
    with pytest.raises(JobFailed):
        await queue.enqueue_and_wait("job-1", 1, keep_failed=False, attempts=1)
    assert await queue.get_job("job-1") is None


async def test_joining_a_job_that_is_not_kept_answers_too(queue: AnyQueue, work: Work) -> None:
    gate = Gate()
    await work(queue, gate)
    await queue.enqueue("job-1", 1, keep_completed=False)
    await gate.running()
    waiting = asyncio.create_task(queue.enqueue_and_wait("job-1", 2))
    await asyncio.sleep(0)
    gate.opened.set()
    assert await waiting == 1


async def test_a_job_that_is_tried_again_answers_with_its_last_try(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    async def second_time_lucky(job: Context) -> int:
        if job.attempt == 1:
            raise ConnectionError("gone")
        return job.attempt

    await work(queue, second_time_lucky)
    waiting = asyncio.create_task(queue.enqueue_and_wait("job-1", None))
    await clock.advance(2)
    assert await waiting == 2


async def test_options_and_name_go_with_the_job(queue: AnyQueue, work: Work) -> None:
    async def show(job: Context) -> list[Any]:
        return [job.name, job.max_attempts, job.correlation_id]

    await work(queue, {"show": show})
    result = await queue.enqueue_and_wait(
        "job-1", None, name="show", attempts=9, correlation_id="request-1"
    )
    assert result == ["show", 9, "request-1"]


async def test_job_timeout_bounds_the_handler_and_not_the_wait(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    gate = Gate()
    await work(queue, gate)
    waiting = asyncio.create_task(
        queue.enqueue_and_wait("job-1", None, job_timeout=5, attempts=1, timeout=None)
    )
    await gate.running()
    await clock.advance(5)
    with pytest.raises(JobFailed) as failure:
        await waiting
    assert failure.value.original_error.kind == "toril.errors.JobTimeout"


async def test_a_default_timeout_of_the_queue_bounds_the_handler(
    make_queue: MakeQueue, work: Work, clock: ManualClock
) -> None:
    queue = make_queue(defaults=JobOptions(timeout=3, attempts=1))
    gate = Gate()
    await work(queue, gate)
    waiting = asyncio.create_task(queue.enqueue_and_wait("job-1", None))
    await gate.running()
    await clock.advance(3)
    with pytest.raises(JobFailed, match="timeout of 3 s"):
        await waiting


# -- failures ------------------------------------------------------------------------------


async def test_a_failure_tells_what_the_handler_raised(queue: AnyQueue, work: Work) -> None:
    await work(queue, fail)
    with pytest.raises(JobFailed) as failure:
        await queue.enqueue_and_wait("job-1", "luck", attempts=1)
    assert failure.value.job_id == "job-1"
    assert failure.value.original_error.kind == "RuntimeError"
    assert failure.value.original_error.reason == "no luck"
    assert str(failure.value) == "job 'job-1' failed: RuntimeError: no luck"


async def test_a_permanent_error_fails_at_once(queue: AnyQueue, work: Work) -> None:
    runs: list[int] = []

    async def refuse(job: Context) -> None:
        runs.append(job.attempt)
        raise PermanentError("never")

    await work(queue, refuse)
    with pytest.raises(JobFailed, match="never"):
        await queue.enqueue_and_wait("job-1", None)
    assert runs == [1]


async def test_a_failed_job_that_is_kept_raises_at_once(queue: AnyQueue, work: Work) -> None:
    worker = await work(queue, fail)
    with pytest.raises(JobFailed):
        await queue.enqueue_and_wait("job-1", "luck", attempts=1)
    await worker.stop()
    with pytest.raises(JobFailed, match="no luck"):
        await queue.enqueue_and_wait("job-1", "more", on_failed="keep")


async def test_a_failed_job_is_run_anew_for_those_who_wait(queue: AnyQueue, work: Work) -> None:
    worker = await work(queue, fail)
    with pytest.raises(JobFailed):
        await queue.enqueue_and_wait("job-1", "old", attempts=1)
    await worker.stop()
    await work(queue, echo)
    assert await queue.enqueue_and_wait("job-1", "new") == "new"


async def test_a_job_queued_anew_never_answers_with_the_failure_before(
    queue: AnyQueue, work: Work
) -> None:
    # The second caller comes while the first is about to hear of the failure.
    async def fail_old(job: Context) -> Any:
        if job.data == "old":
            raise PermanentError("old")
        return job.data

    await work(queue, fail_old)
    late: list[object] = []
    for turns in range(12):
        job_id = f"job-{turns:02}-turns"
        first = asyncio.create_task(queue.enqueue_and_wait(job_id, "old"))
        await until(lambda job_id=job_id: state_is(queue, job_id, State.FAILED))  # type: ignore[misc]
        for _ in range(turns):
            await asyncio.sleep(0)
        second = asyncio.create_task(queue.enqueue_and_wait(job_id, "new"))
        answers = await asyncio.gather(first, second, return_exceptions=True)
        assert answers[0] == "new" or isinstance(answers[0], JobFailed)
        late.append(answers[1])
    assert late == ["new"] * 12


async def test_a_result_that_cannot_be_stored_fails_the_job(queue: AnyQueue, work: Work) -> None:
    async def opaque(job: Context) -> object:
        return object()

    await work(queue, opaque)
    with pytest.raises(JobFailed) as failure:
        await queue.enqueue_and_wait("job-1", None)
    assert failure.value.original_error.kind == "toril.errors.InvalidPayload"


# -- limits of time ------------------------------------------------------------------------


async def test_without_a_worker_the_timeout_says_so(queue: AnyQueue, clock: ManualClock) -> None:
    waiting = asyncio.create_task(queue.enqueue_and_wait("job-1", None))
    await clock.advance(29.999)
    assert not waiting.done()
    await clock.advance(0.001)
    with pytest.raises(WaitTimeout) as late:
        await waiting
    assert late.value.job_id == "job-1"
    assert isinstance(late.value, TimeoutError)
    assert str(late.value) == (
        "toril[E09] no result for job 'job-1' after 30 s: it is waiting at position 1, and no"
        " worker serves queue 'emails'."
        " fix: start one, as: toril worker MODULE; or raise timeout="
    )


async def test_with_a_worker_the_timeout_tells_the_state_and_the_job_goes_on(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    gate = Gate()
    await work(queue, gate)
    waiting = asyncio.create_task(
        queue.enqueue_and_wait("job-1", "done", timeout=timedelta(seconds=2))
    )
    await clock.advance(2)
    with pytest.raises(WaitTimeout, match=r"after 2 s: it is active, 1 workers? serves? the queue"):
        await waiting
    gate.opened.set()
    assert await queue.wait_until_finished("job-1") == "done"


async def test_a_job_that_waits_is_told_by_its_place_in_line(
    queue: AnyQueue, clock: ManualClock
) -> None:
    for number in range(120):
        await queue.add("send", number)
    for priority in (1, 2):
        await queue.add("send", priority, priority=priority)
    late = [
        asyncio.create_task(queue.enqueue_and_wait(id, None, timeout=1, priority=priority))
        for id, priority in (("plain", 0), ("urgent", 1))
    ]
    await clock.advance(1)
    with pytest.raises(WaitTimeout, match="it is waiting at position 121, and no worker"):
        await late[0]
    with pytest.raises(WaitTimeout, match="it is prioritized at position 123, and no worker"):
        await late[1]


async def test_a_delayed_job_is_named_delayed_when_it_is_late(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    await work(queue, echo)
    waiting = asyncio.create_task(queue.enqueue_and_wait("job-1", None, delay=60, timeout=1))
    await clock.advance(1)
    with pytest.raises(WaitTimeout, match="it is delayed"):
        await waiting


async def test_without_a_limit_the_wait_goes_on(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    waiting = asyncio.create_task(queue.enqueue_and_wait("job-1", 1, timeout=None))
    await clock.advance(600)
    assert not waiting.done()
    await work(queue, echo)
    assert await waiting == 1


async def test_giving_up_the_wait_leaves_the_job_alone(queue: AnyQueue, work: Work) -> None:
    gate = Gate()
    await work(queue, gate)
    waiting = asyncio.create_task(queue.enqueue_and_wait("job-1", 1))
    other = asyncio.create_task(queue.enqueue_and_wait("job-1", 1))
    await gate.running()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.opened.set()
    assert await other == 1


async def test_a_queue_that_stops_tells_those_who_wait(queue: AnyQueue, clock: ManualClock) -> None:
    waiting = asyncio.create_task(queue.enqueue_and_wait("job-1", 1))
    await clock.settle()
    await queue.stop()
    with pytest.raises(StorageClosed, match="'emails' was stopped while job 'job-1'"):
        await waiting
    assert (await queue.enqueue("job-1", 1)).status == "duplicate"


@memory_only("a server that stays connected is listened to a little longer")
async def test_no_timer_and_no_task_is_left_when_all_have_their_results(
    queue: AnyQueue, clock: ManualClock
) -> None:
    before = asyncio.all_tasks()
    queue.execute(echo)
    async with queue:
        await asyncio.gather(*(queue.enqueue_and_wait(f"job-{n}", n) for n in range(10)))
    assert asyncio.all_tasks() == before
    assert clock.pending == 0


class FlakyStorage(MemoryStorage):
    """A memory storage that does not answer the first questions for endings."""

    def __init__(self, clock: ManualClock, outages: int) -> None:
        super().__init__(clock=clock)
        self.outages = outages

    async def finished(self, queue: str, ids: Any, block_ms: int) -> Any:
        """Fail so many times, then answer."""
        if self.outages:
            self.outages -= 1
            raise StorageUnavailable("no answer")
        endings: list[Ending] = list(await super().finished(queue, ids, block_ms))
        return endings


async def test_those_who_wait_outlast_an_outage(
    make_queue: MakeQueue, work: Work, clock: ManualClock
) -> None:
    queue = make_queue(on=FlakyStorage(clock, outages=3))
    await work(queue, echo)
    waiting = asyncio.create_task(queue.enqueue_and_wait("job-1", 1))
    await clock.advance(1)
    assert await waiting == 1


async def test_an_outage_that_lasts_ends_with_the_time_limit(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = make_queue(on=FlakyStorage(clock, outages=1000))
    waiting = asyncio.create_task(queue.enqueue_and_wait("job-1", 1, timeout=5))
    await clock.advance(5)
    with pytest.raises(WaitTimeout, match="after 5 s"):
        await waiting


# -- waiting for what was handed in before -------------------------------------------------


async def test_waiting_for_an_unknown_id_raises_at_once(queue: AnyQueue) -> None:
    with pytest.raises(JobNotFound) as missing:
        await queue.wait_until_finished("nobody")
    assert isinstance(missing.value, LookupError)
    assert missing.value.job_id == "nobody"
    assert "'nobody' is not in queue 'emails'" in str(missing.value)


async def test_an_added_job_can_be_waited_for(queue: AnyQueue, work: Work) -> None:
    job = await queue.add("send", {"to": "ann"})
    waiting = asyncio.create_task(queue.wait_until_finished(job.id))
    await work(queue, echo)
    assert await waiting == {"to": "ann"}
    assert await queue.wait_until_finished(job.id) == {"to": "ann"}


async def test_waiting_for_a_job_that_failed_raises_its_failure(
    queue: AnyQueue, work: Work
) -> None:
    job = await queue.add("send", "luck", attempts=1)
    await work(queue, fail)
    with pytest.raises(JobFailed, match="no luck"):
        await queue.wait_until_finished(job.id)


async def test_waiting_for_a_job_has_a_limit_too(queue: AnyQueue, clock: ManualClock) -> None:
    job = await queue.add("send", None)
    waiting = asyncio.create_task(queue.wait_until_finished(job.id))
    await clock.advance(30)
    with pytest.raises(WaitTimeout, match="after 30 s"):
        await waiting


async def test_a_job_removed_while_somebody_waits_is_not_found(
    queue: AnyQueue, clock: ManualClock
) -> None:
    waiting = asyncio.create_task(queue.enqueue_and_wait("job-1", None))
    await clock.settle()
    assert await queue.remove_job("job-1")
    with pytest.raises(JobNotFound, match="removed"):
        await waiting


async def test_a_queue_obliterated_while_somebody_waits_is_not_found(
    queue: AnyQueue, clock: ManualClock
) -> None:
    waiting = asyncio.create_task(queue.enqueue_and_wait("job-1", None))
    await clock.settle()
    await queue.obliterate()
    with pytest.raises(JobNotFound):
        await waiting


async def test_one_who_waits_for_a_plain_job_hears_that_it_was_cancelled(
    queue: AnyQueue, clock: ManualClock
) -> None:
    await queue.enqueue("job-1", None)
    waiting = asyncio.create_task(queue.wait_until_finished("job-1"))
    await clock.settle()
    await queue.cancel("job-1")
    with pytest.raises(JobCancelled):
        await waiting


async def test_one_who_waits_for_a_plain_job_that_is_not_kept_has_its_result(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    await queue.enqueue("job-1", "done", keep_completed=False)
    waiting = asyncio.create_task(queue.wait_until_finished("job-1"))
    await clock.settle()
    await work(queue, echo)
    assert await waiting == "done"


# -- many ----------------------------------------------------------------------------------


async def test_a_thousand_at_once_get_each_their_own_result(queue: AnyQueue, work: Work) -> None:
    async def square(job: Context) -> int:
        result: int = job.data**2
        return result

    await work(queue, square, concurrency=50)
    results = await asyncio.gather(
        *(queue.enqueue_and_wait(f"job-{n}", n) for n in range(1000)),
    )
    assert results == [n**2 for n in range(1000)]


async def test_a_thousand_at_once_get_their_results_in_real_time() -> None:
    queue: AnyQueue = Queue("numbers", "memory:")

    async def negate(job: Context) -> int:
        await asyncio.sleep(0)
        return -int(job.data)

    queue.execute(negate, concurrency=100)
    async with queue:
        results = await asyncio.gather(
            *(queue.enqueue_and_wait(f"job-{n}", n) for n in range(1000)),
        )
    assert results == [-n for n in range(1000)]


async def test_fifty_producers_with_one_id_give_one_run(make_queue: MakeQueue, work: Work) -> None:
    producers = [make_queue() for _ in range(50)]
    answers = await asyncio.gather(
        *(queue.enqueue("job-1", n) for n, queue in enumerate(producers)),
    )
    assert Counter(answer.status for answer in answers) == {"queued": 1, "duplicate": 49}
    gate = Gate()
    gate.opened.set()
    await work(producers[0], gate, concurrency=10)
    results = await asyncio.gather(
        *(queue.enqueue_and_wait("job-1", n) for n, queue in enumerate(producers)),
    )
    winner = next(n for n, answer in enumerate(answers) if answer.status == "queued")
    assert results == [winner] * 50
    assert gate.begun == ["job-1"]


async def test_fifty_who_wait_for_one_id_from_the_start_share_one_run(
    make_queue: MakeQueue, work: Work
) -> None:
    producers = [make_queue() for _ in range(50)]
    gate = Gate()
    await work(producers[0], gate, concurrency=10)
    waiting = [
        asyncio.create_task(queue.enqueue_and_wait("job-1", n)) for n, queue in enumerate(producers)
    ]
    await gate.running()
    gate.opened.set()
    assert len(set(await asyncio.gather(*waiting))) == 1
    assert gate.begun == ["job-1"]


async def test_the_result_of_a_recovered_job_reaches_who_waits(
    queue: AnyQueue, storage: Storage, work: Work, clock: ManualClock
) -> None:
    waiting = asyncio.create_task(queue.enqueue_and_wait("job-1", "done", timeout=None))
    await clock.settle()
    await claim_one(storage, lease_ms=1000)
    await clock.advance(2)
    await work(queue, echo)
    await clock.advance(65)
    assert await waiting == "done"
