"""A reaper on its own: it recovers what dead workers held, and harms nothing else."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from tests.queue.conftest import (
    AnyQueue,
    Gate,
    MakeQueue,
    Work,
    claim_one,
    echo,
    state_is,
    until,
)
from toril import (
    InvalidName,
    InvalidOption,
    ManualClock,
    MemoryStorage,
    NoMetrics,
    Reaper,
    State,
    Storage,
    StorageUnavailable,
)
from toril.outcome import AnswerKind, Completed

LEASE_MS = 10_000
PATIENCE_S = 70
"""Longer than a lease and two rounds of a reaper that looks every thirty seconds."""


async def test_the_job_of_a_dead_worker_is_back_in_line(
    queue: AnyQueue, storage: Storage, clock: ManualClock
) -> None:
    await queue.enqueue("job-1", None)
    await claim_one(storage, lease_ms=LEASE_MS)
    async with Reaper(storage, clock=clock):
        await clock.advance(PATIENCE_S)
        job = await queue.get_job("job-1")
    assert job is not None
    assert (job.state, job.stalls, job.attempts_made) == (State.WAITING, 1, 0)


async def test_a_recovered_job_is_finished_by_somebody_else(
    queue: AnyQueue, storage: Storage, work: Work, clock: ManualClock
) -> None:
    waiting = asyncio.create_task(queue.enqueue_and_wait("job-1", "done", timeout=None))
    await clock.settle()
    dead = await claim_one(storage, lease_ms=LEASE_MS)
    async with Reaper(storage, ["emails"], clock=clock):
        await clock.advance(PATIENCE_S)
    await work(queue, echo)
    assert await waiting == "done"
    late = await storage.settle("emails", [Completed(lease=dead.lease, result=b'"late"')])
    assert late.answers[0].kind is AnswerKind.LOST
    assert await queue.get_result("job-1") == "done"


async def test_a_live_lease_is_left_alone(
    queue: AnyQueue, storage: Storage, work: Work, clock: ManualClock
) -> None:
    gate = Gate()
    await work(queue, gate, reap_interval=1)
    await queue.enqueue("job-1", "done")
    await gate.running()
    async with Reaper(storage, clock=clock, interval=1):
        await clock.advance(300)
    gate.opened.set()
    assert await queue.wait_until_finished("job-1") == "done"
    assert gate.begun == ["job-1"]


async def test_a_job_that_stalls_too_often_fails_unrun(
    queue: AnyQueue, storage: Storage, clock: ManualClock
) -> None:
    await queue.enqueue("job-1", None)
    async with Reaper(storage, clock=clock):
        for _ in range(2):
            await claim_one(storage, lease_ms=LEASE_MS)
            await clock.advance(PATIENCE_S)
        status = await queue.get_status("job-1")
    assert status is not None
    assert status.state is State.FAILED
    assert status.error is not None
    assert status.error.kind == "JobStalled"


async def test_the_number_of_stalls_allowed_can_be_set(
    queue: AnyQueue, storage: Storage, clock: ManualClock
) -> None:
    await queue.enqueue("job-1", None)
    await claim_one(storage, lease_ms=LEASE_MS)
    async with Reaper(storage, clock=clock, max_stalls=0):
        await clock.advance(PATIENCE_S)
        assert await state_is(queue, "job-1", State.FAILED)


async def test_the_interval_can_be_set(
    queue: AnyQueue, storage: Storage, clock: ManualClock
) -> None:
    await queue.enqueue("job-1", None)
    await claim_one(storage, lease_ms=LEASE_MS)
    async with Reaper(storage, clock=clock, interval=timedelta(seconds=1)):
        await clock.advance(9.9)
        assert await state_is(queue, "job-1", State.ACTIVE)
        await clock.advance(1.2)
        assert await state_is(queue, "job-1", State.WAITING)


async def test_many_reapers_recover_a_job_once(
    queue: AnyQueue, storage: Storage, clock: ManualClock, closing: AsyncExitStack
) -> None:
    heard: list[str] = []
    for _ in range(5):
        reaper = Reaper(storage, clock=clock)
        reaper.on("stalled")(heard.append)
        await closing.enter_async_context(reaper)
    await queue.enqueue("job-1", None)
    await claim_one(storage, lease_ms=LEASE_MS)
    await clock.advance(PATIENCE_S)
    assert heard == ["job-1"]
    job = await queue.get_job("job-1")
    assert job is not None
    assert job.stalls == 1


async def test_another_reaper_takes_over_when_one_goes(
    queue: AnyQueue, storage: Storage, clock: ManualClock
) -> None:
    await queue.enqueue("job-1", None)
    async with Reaper(storage, clock=clock):
        async with Reaper(storage, clock=clock):
            await clock.advance(1)
        await claim_one(storage, lease_ms=LEASE_MS)
        await clock.advance(PATIENCE_S)
        assert await state_is(queue, "job-1", State.WAITING)


async def test_without_names_every_queue_is_looked_after(
    make_queue: MakeQueue, storage: Storage, clock: ManualClock
) -> None:
    names = ["emails", "sms"]
    for name in names:
        await make_queue(name).enqueue("job-1", None)
        await claim_one(storage, name, lease_ms=LEASE_MS)
    async with Reaper(storage, clock=clock):
        await clock.advance(PATIENCE_S)
        for name in names:
            assert await state_is(make_queue(name), "job-1", State.WAITING)


async def test_queues_that_appear_later_are_found(
    make_queue: MakeQueue, storage: Storage, clock: ManualClock
) -> None:
    async with Reaper(storage, clock=clock):
        await clock.advance(100)
        queue = make_queue("late")
        await queue.enqueue("job-1", None)
        await claim_one(storage, "late", lease_ms=LEASE_MS)
        await clock.advance(PATIENCE_S)
        assert await state_is(queue, "job-1", State.WAITING)


async def test_with_names_other_queues_are_left_alone(
    make_queue: MakeQueue, storage: Storage, clock: ManualClock
) -> None:
    for name in ("emails", "sms"):
        await make_queue(name).enqueue("job-1", None)
        await claim_one(storage, name, lease_ms=LEASE_MS)
    async with Reaper(storage, ["sms"], clock=clock):
        await clock.advance(PATIENCE_S)
        assert await state_is(make_queue("sms"), "job-1", State.WAITING)
        assert await state_is(make_queue("emails"), "job-1", State.ACTIVE)


# -- hooks and numbers ---------------------------------------------------------------------


async def test_hooks_hear_of_stalled_jobs_and_none_can_harm_the_reaper(
    queue: AnyQueue, storage: Storage, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Any] = []
    reaper = Reaper(storage, clock=clock)

    @reaper.on("stalled")
    def broken(job_id: str) -> None:
        raise ValueError(f"hook of {job_id}")

    @reaper.on("stalled")
    async def slow(job_id: str) -> None:
        heard.append(job_id)

    @reaper.on("error")
    def error(trouble: BaseException) -> None:
        heard.append(str(trouble))

    async with reaper:
        for _ in range(2):
            await queue.enqueue("job-1", None)
            await claim_one(storage, lease_ms=LEASE_MS)
            await clock.advance(PATIENCE_S)
    assert heard == ["hook of job-1", "job-1"] * 2
    assert "hook 'stalled' raised" in caplog.text


async def test_a_hook_that_still_runs_is_awaited_at_the_end(
    queue: AnyQueue, storage: Storage, clock: ManualClock
) -> None:
    done = asyncio.Event()
    let_go = asyncio.Event()
    reaper = Reaper(storage, clock=clock)

    @reaper.on("stalled")
    async def slow(job_id: str) -> None:
        await let_go.wait()
        done.set()

    await queue.enqueue("job-1", None)
    await claim_one(storage, lease_ms=LEASE_MS)
    async with reaper:
        await clock.advance(PATIENCE_S)
        let_go.set()
    assert done.is_set()


async def test_stalled_jobs_are_logged_and_counted(
    queue: AnyQueue, storage: Storage, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    counted: list[str] = []

    class Counting(NoMetrics):
        def increment_stalled_jobs(self, queue: str) -> None:
            counted.append(queue)

    logger = logging.getLogger("my.reaper")
    await queue.enqueue("job-1", None)
    await claim_one(storage, lease_ms=LEASE_MS)
    async with Reaper(storage, clock=clock, metrics=Counting(), logger=logger):
        await clock.advance(PATIENCE_S)
    assert counted == ["emails"]
    (record,) = [record for record in caplog.records if record.name == "my.reaper"]
    assert "job-1 stalled" in record.getMessage()


# -- trouble -------------------------------------------------------------------------------


class BrokenStorage(MemoryStorage):
    """A memory storage one of whose verbs fails for a while."""

    def __init__(self, clock: ManualClock, verb: str, error: Exception, times: int) -> None:
        super().__init__(clock=clock)
        self.error = error
        self.left = {verb: times}

    def _fail(self, verb: str) -> None:
        if self.left.get(verb, 0):
            self.left[verb] -= 1
            raise self.error

    async def queues(self) -> Any:
        """Fail, or answer."""
        self._fail("queues")
        return await super().queues()

    async def reap(self, queue: str, max_stalls: int, interval_ms: int) -> Any:
        """Fail, or answer."""
        self._fail("reap")
        return await super().reap(queue, max_stalls, interval_ms)

    async def open(self) -> None:
        """Fail, or open."""
        self._fail("open")
        await super().open()


@pytest.mark.parametrize("verb", ["queues", "reap"])
async def test_an_outage_is_logged_and_outlasted(
    make_queue: MakeQueue, clock: ManualClock, caplog: pytest.LogCaptureFixture, verb: str
) -> None:
    storage = BrokenStorage(clock, verb, StorageUnavailable("no answer"), times=2)
    queue = make_queue(on=storage)
    await queue.enqueue("job-1", None)
    await claim_one(storage, lease_ms=LEASE_MS)
    async with Reaper(storage, clock=clock):
        await clock.advance(200)
        assert await state_is(queue, "job-1", State.WAITING)
    assert "trying again: no answer" in caplog.text


@pytest.mark.parametrize(
    "verb",
    [
        "queues",
        pytest.param(
            "reap",
        ),
    ],
)
async def test_the_error_hook_hears_of_an_outage(
    make_queue: MakeQueue, clock: ManualClock, verb: str
) -> None:
    trouble = StorageUnavailable("no answer")
    storage = BrokenStorage(clock, verb, trouble, times=1)
    await make_queue(on=storage).enqueue("job-1", None)
    heard: list[BaseException] = []
    reaper = Reaper(storage, clock=clock)
    reaper.on("error")(heard.append)
    async with reaper:
        await clock.advance(PATIENCE_S)
    assert heard == [trouble]


async def test_a_storage_that_cannot_be_opened_surfaces_at_the_end(clock: ManualClock) -> None:
    storage = BrokenStorage(clock, "open", StorageUnavailable("no answer"), times=1)
    with pytest.raises(StorageUnavailable, match="no answer"):
        async with Reaper(storage, clock=clock):
            await clock.settle()


async def test_a_bug_in_the_storage_surfaces_and_nothing_is_left_running(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    storage = BrokenStorage(clock, "reap", ZeroDivisionError("bug"), times=1)
    await make_queue(on=storage).enqueue("job-1", None)
    before = asyncio.all_tasks()
    with pytest.raises(ExceptionGroup) as group:
        async with Reaper(storage, clock=clock):
            await clock.settle()
    assert group.group_contains(ZeroDivisionError, match="bug")
    assert asyncio.all_tasks() == before


async def test_a_reaper_leaves_no_task_and_no_timer(storage: Storage, clock: ManualClock) -> None:
    before = asyncio.all_tasks()
    async with Reaper(storage, ["emails", "sms"], clock=clock):
        await clock.advance(100)
    assert asyncio.all_tasks() == before
    assert clock.pending == 0


async def test_a_reaper_runs_until_it_is_cancelled(
    queue: AnyQueue, storage: Storage, clock: ManualClock
) -> None:
    running = asyncio.create_task(Reaper(storage, clock=clock).run())
    await queue.enqueue("job-1", None)
    await claim_one(storage, lease_ms=LEASE_MS)
    await clock.advance(PATIENCE_S)
    assert await state_is(queue, "job-1", State.WAITING)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_reaper_opens_a_storage_by_its_url() -> None:
    reaper = Reaper("memory:for-the-reaper")
    async with reaper:
        await asyncio.sleep(0)
    assert reaper.storage.url == "memory:for-the-reaper"


async def test_a_reaper_keeps_the_time_of_its_storage(
    queue: AnyQueue, storage: Storage, clock: ManualClock
) -> None:
    await queue.enqueue("job-1", None)
    await claim_one(storage, lease_ms=LEASE_MS)
    async with Reaper(storage):
        await clock.advance(PATIENCE_S)
        assert await state_is(queue, "job-1", State.WAITING)


async def test_a_worker_reaps_without_any_reaper(
    queue: AnyQueue, storage: Storage, work: Work, clock: ManualClock
) -> None:
    await queue.enqueue("job-1", "done")
    await claim_one(storage, lease_ms=LEASE_MS)
    await work(queue, echo)
    await clock.advance(PATIENCE_S)
    await until(lambda: state_is(queue, "job-1", State.COMPLETED))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queues": "emails"}, "give a list of names"),
        ({"interval": 0}, "interval"),
        ({"interval": "30"}, "interval"),
        ({"max_stalls": -1}, "max_stalls"),
        ({"max_stalls": 1.5}, "max_stalls"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        Reaper("memory:", **options)


def test_a_bad_queue_name_is_refused() -> None:
    with pytest.raises(InvalidName):
        Reaper("memory:", ["a:b"])


def test_an_unknown_hook_is_refused() -> None:
    kind: Any = "stall"
    with pytest.raises(InvalidOption, match="Did you mean 'stalled'"):
        Reaper("memory:").on(kind)(print)
