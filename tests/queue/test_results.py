"""Reading results and states, and how long they stay."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.queue.conftest import (
    AnyQueue,
    Context,
    Gate,
    MakeQueue,
    Work,
    echo,
    fail,
    state_is,
    until,
)
from toril import (
    InvalidOption,
    JobNotFound,
    JobOptions,
    JobStatus,
    Keep,
    ManualClock,
    MsgpackSerde,
    Queue,
    SerdeError,
    State,
)


def now(clock: ManualClock) -> datetime:
    """Read the clock as users see it."""
    return datetime.fromtimestamp(clock.now_ms() / 1000, UTC)


# -- get_result and get_status -------------------------------------------------------------


async def test_there_is_no_result_before_the_job_has_run(queue: AnyQueue) -> None:
    await queue.enqueue("job-1", 1)
    assert await queue.get_result("job-1") is None
    assert await queue.get_result("job-1", "nothing yet") == "nothing yet"


async def test_there_is_no_result_of_an_unknown_or_a_failed_job(
    queue: AnyQueue, work: Work
) -> None:
    await work(queue, fail)
    await queue.enqueue("job-1", 1, attempts=1)
    await until(lambda: state_is(queue, "job-1", State.FAILED))
    assert await queue.get_result("job-1", "none") == "none"
    assert await queue.get_result("nobody", "none") == "none"


async def test_the_result_can_be_read_again_and_again(queue: AnyQueue, work: Work) -> None:
    await work(queue, echo)
    await queue.enqueue_and_wait("job-1", {"n": [1, 2.5, None, "ü"]})
    for _ in range(2):
        assert await queue.get_result("job-1") == {"n": [1, 2.5, None, "ü"]}


async def test_a_job_that_returned_none_does_not_give_the_default(
    queue: AnyQueue, work: Work
) -> None:
    await work(queue, echo)
    await queue.enqueue_and_wait("job-1", None)
    assert await queue.get_result("job-1", "default") is None
    answer = await queue.enqueue("job-1", None)
    assert (answer.status, answer.result) == ("completed", None)


async def test_the_status_of_an_unknown_job_is_none(queue: AnyQueue) -> None:
    assert await queue.get_status("nobody") is None


async def test_the_status_of_a_waiting_job(queue: AnyQueue, clock: ManualClock) -> None:
    await queue.enqueue("job-1", 1)
    added = now(clock)
    await clock.advance(5)
    assert await queue.get_status("job-1") == JobStatus(
        id="job-1", state=State.WAITING, created_at=added, attempts=0, result=None, error=None
    )


async def test_the_status_of_a_running_job(queue: AnyQueue, work: Work) -> None:
    gate = Gate()
    await work(queue, gate)
    await queue.enqueue("job-1", 1)
    await gate.running()
    status = await queue.get_status("job-1")
    assert status is not None
    assert (status.state, status.attempts) == (State.ACTIVE, 0)


async def test_the_status_of_a_completed_job(queue: AnyQueue, work: Work) -> None:
    await work(queue, echo)
    await queue.enqueue_and_wait("job-1", [1])
    status = await queue.get_status("job-1")
    assert status is not None
    assert (status.state, status.attempts, status.result, status.error) == (
        State.COMPLETED,
        1,
        [1],
        None,
    )


async def test_the_status_of_a_job_between_tries_tells_the_last_error(
    queue: AnyQueue, work: Work
) -> None:
    await work(queue, fail)
    await queue.enqueue("job-1", "luck")
    await until(lambda: state_is(queue, "job-1", State.DELAYED))
    status = await queue.get_status("job-1")
    assert status is not None
    assert status.attempts == 1
    assert str(status.error) == "RuntimeError: no luck"


async def test_the_status_of_a_failed_job(queue: AnyQueue, work: Work, clock: ManualClock) -> None:
    await work(queue, fail)
    await queue.enqueue("job-1", "luck")
    await clock.advance(10)
    status = await queue.get_status("job-1")
    assert status is not None
    assert (status.state, status.attempts, status.result) == (State.FAILED, 3, None)
    assert status.error is not None
    assert (status.error.kind, status.error.reason) == ("RuntimeError", "no luck")
    assert "RuntimeError" in status.error.stack


# -- how long they stay --------------------------------------------------------------------


async def test_a_result_is_kept_for_an_hour(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    await work(queue, echo)
    await queue.enqueue_and_wait("job-1", 1)
    await clock.advance(3599)
    assert await queue.get_result("job-1") == 1
    await clock.advance(1)
    assert await queue.get_result("job-1") is None
    assert await queue.get_status("job-1") is None
    assert (await queue.get_job_counts()).completed == 0
    with pytest.raises(JobNotFound, match="past its result_ttl"):
        await queue.wait_until_finished("job-1")


async def test_a_failure_is_kept_for_an_hour_too(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    await work(queue, fail)
    await queue.enqueue("job-1", 1, attempts=1)
    await clock.advance(3599)
    assert await state_is(queue, "job-1", State.FAILED)
    await clock.advance(1)
    assert await queue.get_status("job-1") is None


async def test_an_added_job_is_kept_for_good(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    worker = await work(queue, echo)
    job = await queue.add("send", 1)
    await queue.wait_until_finished(job.id)
    await worker.stop()
    await clock.advance(1_000_000)
    assert await queue.get_result(job.id) == 1


async def test_one_jobs_time_does_not_touch_anothers(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    await work(queue, echo)
    for name, ttl in (("short", 10), ("long", timedelta(minutes=1)), ("ever", None)):
        await queue.enqueue_and_wait(name, name, result_ttl=ttl)
    await clock.advance(10)
    results = [await queue.get_result(name) for name in ("short", "long", "ever")]
    assert results == [None, "long", "ever"]
    await clock.advance(3600)
    results = [await queue.get_result(name) for name in ("short", "long", "ever")]
    assert results == [None, None, "ever"]


async def test_the_time_starts_when_the_job_finishes(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    gate = Gate()
    await work(queue, gate)
    await queue.enqueue("job-1", 1, result_ttl=10)
    await gate.running()
    await clock.advance(60)
    gate.opened.set()
    await clock.advance(9)
    assert await queue.get_result("job-1") == 1


async def test_the_time_can_be_prolonged(queue: AnyQueue, work: Work, clock: ManualClock) -> None:
    await work(queue, echo)
    await queue.enqueue_and_wait("job-1", 1, result_ttl=10)
    await clock.advance(9)
    assert await queue.update_result_ttl("job-1", 60)
    await clock.advance(59)
    assert await queue.get_result("job-1") == 1
    await clock.advance(1)
    assert await queue.get_result("job-1") is None


async def test_the_time_can_be_cut_short(queue: AnyQueue, work: Work, clock: ManualClock) -> None:
    await work(queue, echo)
    await queue.enqueue_and_wait("job-1", 1)
    assert await queue.update_result_ttl("job-1", timedelta(seconds=5))
    await clock.advance(5)
    assert await queue.get_result("job-1") is None


async def test_a_result_can_be_kept_for_good(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    worker = await work(queue, echo)
    await queue.enqueue_and_wait("job-1", 1, result_ttl=10)
    await worker.stop()
    assert await queue.update_result_ttl("job-1", None)
    await clock.advance(1_000_000)
    assert await queue.get_result("job-1") == 1


async def test_only_a_finished_job_has_a_time_to_prolong(queue: AnyQueue) -> None:
    await queue.enqueue("job-1", 1)
    assert not await queue.update_result_ttl("nobody", 60)
    assert not await queue.update_result_ttl("job-1", 60)


@pytest.mark.parametrize("ttl", [0, -1, "60", float("nan")])
async def test_a_time_that_is_none_is_refused(queue: AnyQueue, ttl: Any) -> None:
    with pytest.raises(InvalidOption, match="ttl="):
        await queue.update_result_ttl("job-1", ttl)


async def test_as_many_completed_jobs_stay_as_the_newest_asks_for(
    queue: AnyQueue, work: Work
) -> None:
    await work(queue, echo)
    for n in range(5):
        await queue.enqueue_and_wait(f"job-{n}", n, keep_completed=2)
    assert [job.id for job in await queue.get_jobs("completed")] == ["job-4", "job-3"]


async def test_completed_jobs_beyond_an_age_go_when_the_next_one_finishes(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    await work(queue, echo)
    rule = Keep(age=timedelta(seconds=10))
    await queue.enqueue_and_wait("old", 1, keep_completed=rule)
    await clock.advance(10)
    await queue.enqueue_and_wait("new", 1, keep_completed=rule)
    assert [job.id for job in await queue.get_jobs("completed")] == ["new"]


# -- serdes --------------------------------------------------------------------------------


async def test_msgpack_carries_bytes_both_ways(make_queue: MakeQueue, work: Work) -> None:
    serde = MsgpackSerde()
    queue = make_queue(serde=serde, result_serde=serde)

    async def double(job: Context) -> bytes:
        assert isinstance(job.data["blob"], bytes)
        return bytes(job.data["blob"] * 2)

    await work(queue, double)
    assert await queue.enqueue_and_wait("job-1", {"blob": b"\x00\xff"}) == b"\x00\xff" * 2
    assert await queue.get_result("job-1") == b"\x00\xff" * 2
    job = await queue.get_job("job-1")
    assert job is not None
    assert job.data == {"blob": b"\x00\xff"}


class PointSerde:
    """A serde of the user's own: points on a plane as two numbers in text."""

    format = "point"

    def dumps(self, value: complex) -> bytes:
        """Write both parts."""
        return f"{value.real};{value.imag}".encode()

    def loads(self, payload: bytes) -> complex:
        """Read both parts."""
        try:
            real, imag = payload.decode().split(";")
            return complex(float(real), float(imag))
        except ValueError:
            raise SerdeError("payload is no point") from None


async def test_a_serde_of_ones_own_is_used_for_data_and_results(clock: ManualClock) -> None:
    points = PointSerde()
    queue: Queue[complex, complex] = Queue(
        "points", "memory:", serde=points, result_serde=points, clock=clock
    )

    async def mirror(job: Any) -> complex:
        value: complex = job.data
        return value.conjugate()

    queue.execute(mirror)
    async with queue:
        result: complex = await queue.enqueue_and_wait("job-1", 1 + 2j)
        assert result == 1 - 2j
        (record,) = await queue.storage.get("points", ["job-1"])
    assert record is not None
    assert (record.spec.payload, record.result) == (b"1.0;2.0", b"1.0;-2.0")


async def test_data_and_results_may_have_different_serdes(
    make_queue: MakeQueue, work: Work
) -> None:
    queue = make_queue(result_serde=MsgpackSerde())

    async def encode(job: Context) -> bytes:
        return str(job.data).encode()

    await work(queue, encode)
    assert await queue.enqueue_and_wait("job-1", 5) == b"5"


async def test_data_the_worker_cannot_read_fails_the_job_and_not_the_worker(
    make_queue: MakeQueue, work: Work
) -> None:
    producer, consumer = make_queue(serde=MsgpackSerde()), make_queue()
    await work(consumer, echo)
    await producer.enqueue("odd", {"n": b"\xff"})
    await until(lambda: state_is(consumer, "odd", State.FAILED))
    status = await consumer.get_status("odd")
    assert status is not None
    assert status.error is not None
    assert status.error.kind == "toril.errors.SerdeError"
    assert await consumer.enqueue_and_wait("even", 2) == 2


async def test_a_large_result_of_a_queue_that_allows_large_jobs_is_readable(
    make_queue: MakeQueue, work: Work
) -> None:
    queue = make_queue(defaults=JobOptions(size_limit=20 * 1024 * 1024))

    async def blow_up(job: Context) -> str:
        return "x" * int(job.data)

    await work(queue, blow_up)
    result = await asyncio.wait_for(queue.enqueue_and_wait("job-1", 9_000_000), None)
    assert len(result) == 9_000_000
