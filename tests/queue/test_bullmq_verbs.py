"""The verbs of BullMQ: adding by name, looking, tending."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.queue.conftest import (
    AnyQueue,
    Context,
    Gate,
    MakeQueue,
    RecordingStorage,
    Work,
    claim_one,
    echo,
    fail,
    state_is,
    until,
)
from toril import (
    Backoff,
    InvalidInput,
    InvalidOption,
    InvalidPayload,
    Job,
    JobError,
    JobOptions,
    Limiter,
    ManualClock,
    NewJob,
    QueueBusy,
    State,
    Storage,
)
from toril.storage.protocol import Counts


async def ids_in(queue: AnyQueue, state: State | str) -> list[str]:
    """Name the jobs of a state, in order."""
    return [job.id for job in await queue.get_jobs(state)]


async def fail_all(queue: AnyQueue, work: Work, *ids: str) -> None:
    """Let jobs run once and fail for good, in the order given."""
    worker = await work(queue, fail)
    for job_id in ids:
        await queue.enqueue(job_id, job_id, attempts=1)
        await until(lambda job_id=job_id: state_is(queue, job_id, State.FAILED))  # type: ignore[misc]
    await worker.stop()


# -- add -----------------------------------------------------------------------------------


async def test_an_added_job_is_described(queue: AnyQueue, clock: ManualClock) -> None:
    job = await queue.add("send", {"to": "ann"}, id="mail-1", attempts=5)
    assert job == Job(
        id="mail-1",
        name="send",
        queue="emails",
        data={"to": "ann"},
        state=State.WAITING,
        terms=JobOptions(attempts=5).terms(),
        created_at=datetime.fromtimestamp(clock.now_ms() / 1000, UTC),
    )
    assert (job.max_attempts, job.priority, job.correlation_id) == (5, 0, None)
    assert await queue.get_job("mail-1") == job


@pytest.mark.parametrize(
    ("options", "state"),
    [
        ({"delay": 60}, State.DELAYED),
        ({"priority": 3}, State.PRIORITIZED),
        ({"lifo": True}, State.WAITING),
    ],
)
async def test_an_added_job_is_as_it_can_be_read(
    queue: AnyQueue, options: dict[str, Any], state: State
) -> None:
    job = await queue.add("send", None, **options)
    assert job.state is state
    assert await queue.get_job(job.id) == job


async def test_a_generated_id_is_a_ulid_in_lower_case(queue: AnyQueue) -> None:
    jobs = [await queue.add("send", None) for _ in range(3)]
    assert len({job.id for job in jobs}) == 3
    for job in jobs:
        assert re.fullmatch(r"[0-9a-hjkmnp-tv-z]{26}", job.id)


async def test_an_added_id_that_is_taken_is_not_added_again(queue: AnyQueue) -> None:
    await queue.add("send", "old", id="mail-1", delay=60)
    again = await queue.add("send", "new", id="mail-1")
    assert (again.id, again.state) == ("mail-1", State.DELAYED)
    job = await queue.get_job("mail-1")
    assert job is not None
    assert job.data == "old"
    assert (await queue.get_job_counts()).total == 1


async def test_adding_a_failed_id_leaves_it_failed(queue: AnyQueue, work: Work) -> None:
    await fail_all(queue, work, "mail-1")
    assert (await queue.add("send", None, id="mail-1")).state is State.FAILED


async def test_a_mapping_of_handlers_works_by_name(queue: AnyQueue, work: Work) -> None:
    async def shout(job: Context) -> str:
        return str(job.data).upper()

    await work(queue, {"echo": echo, "shout": shout})
    one, two = await queue.add("echo", "a"), await queue.add("shout", "a")
    assert [await queue.wait_until_finished(job.id) for job in (one, two)] == ["a", "A"]


async def test_bulk_keeps_the_order(queue: AnyQueue) -> None:
    jobs = await queue.add_bulk(
        [
            NewJob(name="send", data=1, id="a"),
            NewJob(name="call", data=2),
            NewJob(name="send", data=3, id="c", options=JobOptions(delay=5)),
        ]
    )
    assert [(job.name, job.data, job.state) for job in jobs] == [
        ("send", 1, State.WAITING),
        ("call", 2, State.WAITING),
        ("send", 3, State.DELAYED),
    ]
    assert await ids_in(queue, "waiting") == ["a", jobs[1].id]
    assert await ids_in(queue, "delayed") == ["c"]


async def test_bulk_takes_thousands_in_batches(
    make_queue: MakeQueue, recording: RecordingStorage
) -> None:
    queue = make_queue(on=recording)
    jobs = await queue.add_bulk([NewJob(name="send", data=n, id=f"n-{n}") for n in range(10_500)])
    assert [job.id for job in jobs] == [f"n-{n}" for n in range(10_500)]
    assert recording.calls == ["open", "enqueue", "enqueue"]
    assert (await queue.get_job_counts()).waiting == 10_500
    page = await queue.get_jobs("waiting", 10_498, 10_600)
    assert [job.data for job in page] == [10_498, 10_499]


async def test_an_id_that_comes_twice_in_a_bulk_is_one_job(queue: AnyQueue) -> None:
    first, second, other = await queue.add_bulk(
        [
            NewJob(name="send", data=1, id="a"),
            NewJob(name="send", data=2, id="a"),
            NewJob(name="send", data=3, id="b"),
        ]
    )
    assert (first.id, second.id, other.id) == ("a", "a", "b")
    assert (first.data, second.data, other.data) == (1, 1, 3)
    assert (await queue.get_job_counts()).waiting == 2


@pytest.mark.parametrize(
    "bad",
    [
        NewJob(name="send", data=object()),
        NewJob(name="", data=None),
        NewJob(name="send", data=None, id="a:b"),
        NewJob[Any](name="send", data=None, id=["a"]),  # type: ignore[arg-type]  # the mistake
        NewJob(name="send", data="x" * 100, options=JobOptions(size_limit=50)),
    ],
)
async def test_one_bad_job_refuses_the_whole_bulk_before_anything_is_sent(
    make_queue: MakeQueue, recording: RecordingStorage, bad: NewJob[Any]
) -> None:
    queue = make_queue(on=recording)
    good = [NewJob[Any](name="send", data=n) for n in range(1500)]
    with pytest.raises(InvalidInput):
        await queue.add_bulk([*good, bad])
    assert recording.calls == []


async def test_bulk_options_that_are_not_options_are_refused(
    make_queue: MakeQueue, recording: RecordingStorage
) -> None:
    queue = make_queue(on=recording)
    options: Any = {"delay": 5}
    with pytest.raises(InvalidOption, match="JobOptions"):
        await queue.add_bulk([NewJob(name="send", data=None, options=options)])
    assert recording.calls == []


async def test_a_job_of_a_bulk_may_name_the_type_of_its_data(queue: AnyQueue) -> None:
    (job,) = await queue.add_bulk([NewJob[int](name="send", data=5)])
    assert job.data == 5


async def test_an_empty_bulk_adds_nothing(queue: AnyQueue) -> None:
    assert list(await queue.add_bulk([])) == []
    assert (await queue.get_job_counts()).total == 0


# -- pause ---------------------------------------------------------------------------------


async def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    gate = Gate()
    await work(queue, gate)
    assert not await queue.is_paused()
    await queue.pause()
    assert await queue.is_paused()
    assert (await queue.get_job_counts()).paused
    await queue.enqueue("job-1", None)
    await clock.advance(60)
    assert gate.begun == []
    await queue.resume()
    await clock.settle()
    assert gate.begun == ["job-1"]
    assert not await queue.is_paused()


async def test_running_jobs_go_on_while_the_queue_is_paused(queue: AnyQueue, work: Work) -> None:
    gate = Gate()
    await work(queue, gate)
    await queue.enqueue("job-1", "done")
    await gate.running()
    await queue.pause()
    gate.opened.set()
    assert await queue.wait_until_finished("job-1") == "done"


async def test_pausing_twice_is_pausing_once(queue: AnyQueue) -> None:
    await queue.pause()
    await queue.pause()
    await queue.resume()
    assert not await queue.is_paused()


async def test_pausing_one_queue_leaves_others_running(make_queue: MakeQueue, work: Work) -> None:
    emails, sms = make_queue("emails"), make_queue("sms")
    await emails.pause()
    await work(sms, echo)
    assert await sms.enqueue_and_wait("job-1", 1) == 1


# -- looking -------------------------------------------------------------------------------


async def test_a_finished_job_tells_its_whole_story(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    gate = Gate()

    async def report(job: Context) -> Any:
        await job.progress({"done": 50})
        return await gate(job)

    worker = await work(queue, report, worker_id="worker-1")
    await queue.enqueue("job-1", "data", name="send", correlation_id="request-1")
    added = clock.now_ms()
    await gate.running()
    await clock.advance(2)
    gate.opened.set()
    await queue.wait_until_finished("job-1")
    job = await queue.get_job("job-1")
    assert job is not None
    assert (job.name, job.queue, job.data, job.state) == (
        "send",
        "emails",
        "data",
        State.COMPLETED,
    )
    assert (job.attempts_made, job.attempts_started, job.stalls) == (1, 1, 0)
    assert job.processed_at == datetime.fromtimestamp(added / 1000, UTC)
    assert job.finished_at == job.processed_at + timedelta(seconds=2)
    assert (job.worker_id, job.correlation_id) == (worker.id, "request-1")
    assert (job.progress, job.result, job.error, job.due_at) == ({"done": 50}, "data", None, None)


async def test_a_failed_job_keeps_the_traces_of_its_tries(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    await work(queue, fail)
    await queue.enqueue("job-1", "luck", attempts=2)
    await clock.advance(5)
    job = await queue.get_job("job-1")
    assert job is not None
    assert (job.state, job.attempts_made) == (State.FAILED, 2)
    assert len(job.stacktrace) == 2
    assert all("no luck" in trace for trace in job.stacktrace)


async def test_a_delayed_job_tells_when_it_is_due(queue: AnyQueue, clock: ManualClock) -> None:
    await queue.enqueue("job-1", None, delay=60)
    job = await queue.get_job("job-1")
    assert job is not None
    assert job.due_at == datetime.fromtimestamp(clock.now_ms() / 1000 + 60, UTC)


async def test_an_unknown_job_is_none(queue: AnyQueue) -> None:
    assert await queue.get_job("nobody") is None


async def test_jobs_come_in_pages_next_to_run_first(queue: AnyQueue) -> None:
    for n in range(5):
        await queue.enqueue(f"job-{n}", n)
    assert [job.id for job in await queue.get_jobs("waiting", 1, 3)] == ["job-1", "job-2"]
    assert [job.id for job in await queue.get_jobs(State.WAITING, 3)] == ["job-3", "job-4"]
    assert await queue.get_jobs("waiting", 5, 9) == []
    assert await queue.get_jobs("waiting", 2, 2) == []


async def test_a_page_holds_a_hundred_jobs_unless_told_otherwise(queue: AnyQueue) -> None:
    await queue.add_bulk([NewJob(name="send", data=n) for n in range(101)])
    assert len(await queue.get_jobs("waiting")) == 100


async def test_finished_jobs_come_newest_first(queue: AnyQueue, work: Work) -> None:
    await work(queue, echo)
    for n in range(3):
        await queue.enqueue_and_wait(f"job-{n}", n)
    assert await ids_in(queue, "completed") == ["job-2", "job-1", "job-0"]


async def test_delayed_and_prioritized_jobs_come_in_the_order_they_will_run(
    queue: AnyQueue,
) -> None:
    for name, options in (
        ("late", JobOptions(delay=60)),
        ("soon", JobOptions(delay=5)),
        ("low", JobOptions(priority=9)),
        ("high", JobOptions(priority=1)),
    ):
        await queue.add_bulk([NewJob(name="send", data=None, id=name, options=options)])
    assert await ids_in(queue, "delayed") == ["soon", "late"]
    assert await ids_in(queue, "prioritized") == ["high", "low"]
    assert await ids_in(queue, "waiting-children") == []


async def test_an_unknown_state_is_refused_with_a_suggestion(
    make_queue: MakeQueue, recording: RecordingStorage
) -> None:
    queue = make_queue(on=recording)
    for verb in (queue.get_jobs, queue.retry_jobs):
        with pytest.raises(InvalidOption, match=r"'complete'. Did you mean 'completed'\? Known: w"):
            await verb("complete")
    with pytest.raises(InvalidOption, match="Known:"):
        await queue.clean(state="paused")
    assert recording.calls == []


@pytest.mark.parametrize(("start", "stop"), [(-1, 5), (0, -1), (0.5, 5), ("0", 5)])
async def test_an_impossible_page_is_refused(
    make_queue: MakeQueue, recording: RecordingStorage, start: Any, stop: Any
) -> None:
    queue = make_queue(on=recording)
    with pytest.raises(InvalidOption, match=r"start|stop"):
        await queue.get_jobs("waiting", start, stop)
    assert recording.calls == []


async def test_jobs_are_counted_by_state(queue: AnyQueue, work: Work, storage: Storage) -> None:
    await fail_all(queue, work, "failed-1")
    worker = await work(queue, echo)
    await queue.enqueue_and_wait("completed-1", 1)
    await worker.stop()
    await queue.enqueue("active-1", 1)
    await claim_one(storage)
    await queue.enqueue("waiting-1", 1)
    await queue.enqueue("waiting-2", 1)
    await queue.enqueue("later", 1, delay=60)
    await queue.enqueue("urgent", 1, priority=1)
    counts = await queue.get_job_counts()
    assert counts == Counts(
        waiting=2, prioritized=1, delayed=1, active=1, completed=1, failed=1, paused=False
    )
    assert (counts.ready, counts.total) == (3, 7)


async def test_the_workers_are_named_while_they_work(queue: AnyQueue, work: Work) -> None:
    assert list(await queue.get_workers()) == []
    gate = Gate()
    first = await work(queue, gate, worker_id="worker-1")
    await work(queue, gate, worker_id="worker-2")
    await until(lambda: known(queue, "worker-1", "worker-2"))
    await queue.enqueue("job-1", None)
    await gate.running()
    infos = {info.id: info for info in await queue.get_workers()}
    assert set(infos) == {"worker-1", "worker-2"}
    assert sum(info.active for info in infos.values()) == 1
    assert all(info.seen_ms_ago == 0 for info in infos.values())
    await first.stop(0)
    await until(lambda: known(queue, "worker-2"))


async def known(queue: AnyQueue, *worker_ids: str) -> bool:
    """Tell whether these workers are there, and no others."""
    return {info.id for info in await queue.get_workers()} == {*worker_ids}


async def test_logs_are_read_oldest_first_and_by_page(queue: AnyQueue, work: Work) -> None:
    async def talk(job: Context) -> None:
        for n in range(5):
            await job.log(f"line {n}")

    await work(queue, talk)
    await queue.enqueue_and_wait("job-1", None)
    await queue.enqueue_and_wait("job-2", None, keep_logs=2)
    assert list(await queue.logs("job-1")) == [f"line {n}" for n in range(5)]
    assert list(await queue.logs("job-1", 1, 3)) == ["line 1", "line 2"]
    assert list(await queue.logs("job-2")) == ["line 3", "line 4"]
    assert list(await queue.logs("nobody")) == []


# -- removing ------------------------------------------------------------------------------


async def test_a_job_can_be_removed_in_any_state_but_running(
    queue: AnyQueue, work: Work, storage: Storage
) -> None:
    await fail_all(queue, work, "failed-1")
    worker = await work(queue, echo)
    await queue.enqueue_and_wait("completed-1", 1)
    await worker.stop()
    await queue.enqueue("waiting-1", 1)
    await queue.enqueue("later", 1, delay=60)
    await queue.enqueue("urgent", 1, priority=1)
    for job_id in ("failed-1", "completed-1", "waiting-1", "later", "urgent"):
        assert await queue.remove_job(job_id)
        assert not await queue.remove_job(job_id)
    assert (await queue.get_job_counts()).total == 0
    await queue.enqueue("active-1", 1)
    await claim_one(storage)
    with pytest.raises(JobError, match="'active-1' is running; cancel it"):
        await queue.remove_job("active-1")
    assert await state_is(queue, "active-1", State.ACTIVE)


async def test_clean_deletes_completed_jobs_that_are_old_enough(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    await work(queue, echo)
    await queue.enqueue_and_wait("old", 1)
    await clock.advance(60)
    await queue.enqueue_and_wait("new", 1)
    assert list(await queue.clean(61)) == []
    assert list(await queue.clean(timedelta(seconds=60))) == ["old"]
    assert await ids_in(queue, "completed") == ["new"]
    assert list(await queue.clean()) == ["new"]


async def test_clean_deletes_the_oldest_up_to_its_limit(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    await work(queue, echo)
    for n in range(4):
        await queue.enqueue_and_wait(f"job-{n}", n)
        await clock.advance(1)
    assert sorted(await queue.clean(0, 2)) == ["job-0", "job-1"]
    assert await ids_in(queue, "completed") == ["job-3", "job-2"]


@pytest.mark.parametrize("state", ["waiting", "delayed", "prioritized", "failed"])
async def test_clean_deletes_from_the_state_it_is_told(
    queue: AnyQueue, work: Work, state: str
) -> None:
    await fail_all(queue, work, "in-failed")
    await queue.enqueue("in-waiting", 1)
    await queue.enqueue("in-delayed", 1, delay=60)
    await queue.enqueue("in-prioritized", 1, priority=1)
    assert list(await queue.clean(state=state)) == [f"in-{state}"]
    assert (await queue.get_job_counts()).total == 3


async def test_clean_refuses_running_jobs_and_bad_numbers(
    make_queue: MakeQueue, recording: RecordingStorage
) -> None:
    queue = make_queue(on=recording)
    with pytest.raises(InvalidOption, match="limit"):
        await queue.clean(0, 0)
    with pytest.raises(InvalidOption, match="grace"):
        await queue.clean(-1)
    assert recording.calls == []
    with pytest.raises(InvalidOption, match="running jobs"):
        await queue.clean(state="active")


async def test_drain_deletes_what_waits_and_leaves_the_rest(
    queue: AnyQueue, work: Work, storage: Storage
) -> None:
    await fail_all(queue, work, "failed-1")
    await queue.enqueue("active-1", 1)
    await claim_one(storage)
    await queue.enqueue("waiting-1", 1)
    await queue.enqueue("urgent", 1, priority=1)
    await queue.enqueue("later", 1, delay=60)
    assert await queue.drain() == 2
    assert await queue.get_job_counts() == Counts(delayed=1, active=1, failed=1)
    assert await queue.drain(delayed=True) == 1
    assert await queue.get_job_counts() == Counts(active=1, failed=1)
    assert await queue.drain(delayed=True) == 0


async def test_obliterate_refuses_while_jobs_run_unless_forced(
    queue: AnyQueue, storage: Storage
) -> None:
    await queue.enqueue("active-1", 1)
    await claim_one(storage)
    await queue.enqueue("waiting-1", 1)
    with pytest.raises(QueueBusy, match=r"1 jobs? (are|is) running"):
        await queue.obliterate()
    assert (await queue.get_job_counts()).total == 2
    await queue.obliterate(force=True)
    assert await queue.get_job_counts() == Counts()
    assert (await queue.enqueue("active-1", 2)).status == "queued"


async def test_a_worker_survives_the_end_of_its_queue(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    gate = Gate()
    await work(queue, gate)
    await queue.enqueue("job-1", 1)
    await gate.running()
    await queue.obliterate(force=True)
    gate.opened.set()
    await clock.settle()
    assert await queue.get_job("job-1") is None
    assert await queue.enqueue_and_wait("job-2", 2) == 2


async def test_obliterate_leaves_other_queues_alone(make_queue: MakeQueue) -> None:
    emails, sms = make_queue("emails"), make_queue("sms")
    await emails.enqueue("job-1", 1)
    await sms.enqueue("job-1", 1)
    await emails.obliterate()
    assert (await sms.get_job_counts()).waiting == 1


# -- trying again --------------------------------------------------------------------------


async def test_retrying_a_job_gives_it_all_its_attempts_again(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    runs: list[int] = []

    async def fail_twice(job: Context) -> str:
        runs.append(job.attempt)
        if len(runs) < 4:
            raise RuntimeError("not yet")
        return "done"

    await work(queue, fail_twice)
    await queue.enqueue("job-1", None, attempts=2, backoff=Backoff("fixed", 1, jitter=0))
    await clock.advance(2)
    assert await state_is(queue, "job-1", State.FAILED)
    assert await queue.retry_job("job-1")
    await clock.advance(2)
    assert runs == [1, 2, 1, 2]
    assert await queue.get_result("job-1") == "done"


async def test_only_a_finished_job_can_be_retried(queue: AnyQueue) -> None:
    await queue.enqueue("job-1", None)
    assert not await queue.retry_job("job-1")
    assert not await queue.retry_job("nobody")


async def test_a_completed_job_can_be_run_again(queue: AnyQueue, work: Work) -> None:
    gate = Gate()
    gate.opened.set()
    await work(queue, gate)
    await queue.enqueue_and_wait("job-1", 1)
    assert await queue.retry_job("job-1")
    assert await queue.wait_until_finished("job-1") == 1
    assert gate.begun == ["job-1", "job-1"]


async def test_retrying_all_failed_jobs_puts_them_in_line_oldest_first(
    queue: AnyQueue, work: Work
) -> None:
    await fail_all(queue, work, "a", "b", "c")
    assert await queue.retry_jobs() == 3
    assert await ids_in(queue, "waiting") == ["a", "b", "c"]
    job = await queue.get_job("a")
    assert job is not None
    assert (job.attempts_made, job.error, job.finished_at) == (0, None, None)
    assert await queue.retry_jobs() == 0


async def test_retrying_takes_the_oldest_up_to_its_limit(queue: AnyQueue, work: Work) -> None:
    await fail_all(queue, work, "a", "b", "c")
    assert await queue.retry_jobs(limit=2) == 2
    assert await ids_in(queue, "waiting") == ["a", "b"]
    assert await ids_in(queue, "failed") == ["c"]


async def test_completed_jobs_can_be_retried_together(queue: AnyQueue, work: Work) -> None:
    worker = await work(queue, echo)
    for name in ("a", "b"):
        await queue.enqueue_and_wait(name, name)
    await worker.stop()
    assert await queue.retry_jobs("completed") == 2
    assert await ids_in(queue, "waiting") == ["a", "b"]


async def test_thousands_are_retried_page_by_page(queue: AnyQueue, work: Work) -> None:
    names = [f"job-{n}" for n in range(2100)]
    worker = await work(queue, fail, concurrency=100)
    await queue.add_bulk(
        [NewJob(name="send", data=n, id=n, options=JobOptions(attempts=1)) for n in names]
    )
    await until(lambda: none_left(queue))
    await worker.stop()
    assert await queue.retry_jobs() == 2100
    counts = await queue.get_job_counts()
    assert (counts.waiting, counts.failed) == (2100, 0)


async def none_left(queue: AnyQueue) -> bool:
    """Tell whether everything has failed."""
    return (await queue.get_job_counts()).failed == 2100


async def test_only_finished_states_can_be_retried(
    make_queue: MakeQueue, recording: RecordingStorage
) -> None:
    queue = make_queue(on=recording)
    with pytest.raises(InvalidOption, match="only completed or failed jobs are retried"):
        await queue.retry_jobs("waiting")
    for limit in (0, -1, 1.5):
        bad: Any = limit
        with pytest.raises(InvalidOption, match="limit"):
            await queue.retry_jobs(limit=bad)
        with pytest.raises(InvalidOption, match="limit"):
            await queue.promote_jobs(limit=bad)
    assert recording.calls == []


# -- changing what waits -------------------------------------------------------------------


async def test_a_promoted_job_starts_now(queue: AnyQueue, work: Work) -> None:
    await work(queue, echo)
    await queue.enqueue("job-1", 1, delay=3600)
    assert await queue.promote("job-1")
    assert await queue.wait_until_finished("job-1") == 1
    assert not await queue.promote("job-1")
    assert not await queue.promote("nobody")


async def test_all_delayed_jobs_can_be_promoted_soonest_first(queue: AnyQueue) -> None:
    await queue.enqueue("late", 1, delay=60)
    await queue.enqueue("soon", 1, delay=5)
    await queue.enqueue("latest", 1, delay=600)
    assert await queue.promote_jobs(limit=2) == 2
    assert await ids_in(queue, "waiting") == ["soon", "late"]
    assert await queue.promote_jobs() == 1
    assert await queue.promote_jobs() == 0


async def test_a_new_priority_is_a_new_place_in_line(queue: AnyQueue) -> None:
    for name, priority in (("a", 5), ("b", 6), ("c", 7)):
        await queue.enqueue(name, None, priority=priority)
    assert await queue.change_priority("c", 1)
    assert await ids_in(queue, "prioritized") == ["c", "a", "b"]
    assert await queue.change_priority("b", 0)
    assert await ids_in(queue, "waiting") == ["b"]
    assert not await queue.change_priority("nobody", 1)


async def test_a_delayed_job_keeps_its_time_when_its_priority_changes(
    queue: AnyQueue, clock: ManualClock
) -> None:
    await queue.enqueue("job-1", None, delay=60)
    before = await queue.get_job("job-1")
    assert await queue.change_priority("job-1", 4)
    after = await queue.get_job("job-1")
    assert before is not None
    assert after is not None
    assert (after.state, after.due_at, after.priority) == (State.DELAYED, before.due_at, 4)


@pytest.mark.parametrize("priority", [-1, 2_097_152, 1.5, "1"])
async def test_an_impossible_priority_is_refused(
    make_queue: MakeQueue, recording: RecordingStorage, priority: Any
) -> None:
    queue = make_queue(on=recording)
    with pytest.raises(InvalidOption, match="priority"):
        await queue.change_priority("job-1", priority)
    assert recording.calls == []


async def test_a_delayed_job_can_be_given_another_time(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    gate = Gate()
    await work(queue, gate)
    await queue.enqueue("job-1", None, delay=3600)
    await clock.advance(10)
    assert await queue.change_delay("job-1", 5)
    await clock.advance(4.999)
    assert gate.begun == []
    await clock.advance(0.001)
    assert gate.begun == ["job-1"]


async def test_only_a_delayed_job_has_a_time_to_change(queue: AnyQueue) -> None:
    await queue.enqueue("job-1", None)
    assert not await queue.change_delay("job-1", 5)
    assert not await queue.change_delay("nobody", 5)
    with pytest.raises(InvalidOption, match="delay"):
        await queue.change_delay("job-1", -1)


@pytest.mark.parametrize("options", [{}, {"delay": 60}, {"priority": 2}])
async def test_a_job_that_waits_can_be_given_other_data(
    queue: AnyQueue, options: dict[str, Any]
) -> None:
    await queue.enqueue("job-1", "old", **options)
    assert await queue.update_data("job-1", {"new": True})
    job = await queue.get_job("job-1")
    assert job is not None
    assert job.data == {"new": True}


async def test_a_job_that_runs_or_has_ended_keeps_its_data(
    queue: AnyQueue, work: Work, storage: Storage
) -> None:
    worker = await work(queue, echo)
    await queue.enqueue_and_wait("done", "old")
    await worker.stop()
    await queue.enqueue("active-1", "old")
    await claim_one(storage)
    for job_id in ("done", "active-1", "nobody"):
        assert not await queue.update_data(job_id, "new")


async def test_other_data_has_the_same_limit(
    make_queue: MakeQueue, recording: RecordingStorage
) -> None:
    queue = make_queue(on=recording, defaults=JobOptions(size_limit=500))
    with pytest.raises(InvalidPayload, match="the limit is 500"):
        await queue.update_data("job-1", "x" * 500)
    assert recording.calls == []


# -- bounds over all workers ---------------------------------------------------------------


async def test_concurrency_holds_over_all_workers(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    await queue.tune(concurrency=3)
    gate = Gate()
    for _ in range(2):
        await work(queue, gate, concurrency=5)
    await queue.add_bulk([NewJob(name="send", data=n) for n in range(10)])
    await clock.advance(30)
    assert len(gate.begun) == 3
    await queue.tune()
    await clock.advance(30)
    assert len(gate.begun) == 10


async def test_a_place_that_is_free_is_taken_by_any_worker(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    await queue.tune(concurrency=1)
    most, now = 0, 0

    async def count(job: Context) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await clock.sleep(1)
        now -= 1

    for _ in range(2):
        await work(queue, count, concurrency=5)
    await queue.add_bulk([NewJob(name="send", data=n) for n in range(6)])
    await clock.advance(40)
    assert (await queue.get_job_counts()).completed == 6
    assert most == 1


async def test_a_limiter_holds_over_all_workers(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    await queue.tune(limiter=Limiter(max=2, duration=10))
    gate = Gate()
    for _ in range(2):
        await work(queue, gate, concurrency=5)
    await queue.add_bulk([NewJob(name="send", data=n) for n in range(5)])
    await clock.advance(9.9)
    assert len(gate.begun) == 2
    await clock.advance(10)
    assert len(gate.begun) == 4
    await clock.advance(10)
    assert len(gate.begun) == 5


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 1.5}, "concurrency"),
        ({"events_kept": 0}, "events_kept"),
        ({"limiter": Limiter(0, 1)}, "limiter max"),
        ({"limiter": Limiter(1, 0)}, "limiter duration"),
    ],
)
async def test_an_impossible_bound_is_refused_before_anything_is_sent(
    make_queue: MakeQueue, recording: RecordingStorage, bounds: dict[str, Any], words: str
) -> None:
    queue = make_queue(on=recording)
    with pytest.raises(InvalidOption, match=words):
        await queue.tune(**bounds)
    assert recording.calls == []
