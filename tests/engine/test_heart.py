"""How leases are kept alive and requests to cancel come back."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

import pytest

from tests.engine.conftest import Stage
from toril import (
    JobCancelled,
    JobContext,
    LeaseLost,
    ManualClock,
    MemoryStorage,
    Queue,
    State,
    StorageUnavailable,
    Worker,
)
from toril.engine.heart import tick_s
from toril.metrics import NoMetrics
from toril.outcome import Lease
from toril.storage.protocol import Renewal

Ctx = JobContext[object]


async def hang(_job: Ctx) -> object:
    await asyncio.Event().wait()
    return None


class Beating(NoMetrics):
    def __init__(self) -> None:
        self.beats = 0
        self.misses = 0
        self.missed = asyncio.Event()

    def increment_heartbeat_success(self, queue: str) -> None:
        self.beats += 1

    def increment_heartbeat_failure(self, queue: str) -> None:
        self.misses += 1
        self.missed.set()


def test_the_heart_beats_three_times_a_lease_and_once_a_second_at_least() -> None:
    assert tick_s(30, 15) == 1.0
    assert tick_s(1.5, 0.75) == 0.5
    assert tick_s(30, 0.2) == 0.2


async def test_a_job_longer_than_its_lease_keeps_it(stage: Stage) -> None:
    gate = asyncio.Event()

    async def handler(_job: Ctx) -> object:
        await gate.wait()
        return "long"

    await stage.queue.enqueue("j", None)
    async with Worker(stage.queue, handler, lease=3, reap_interval=1):
        await stage.advance(60)
        gate.set()
        await stage.clock.settle()
    job = await stage.queue.get_job("j")
    assert job is not None
    assert (job.state, job.stalls, job.attempts_started) == (State.COMPLETED, 0, 1)


async def test_an_idle_worker_does_not_tick(stage: Stage) -> None:
    metrics = Beating()
    async with Worker(stage.queue, hang, metrics=metrics):
        await stage.advance(60)
        assert metrics.beats == 0
        await stage.queue.enqueue("j", None)
        await stage.advance(5.5)
        assert metrics.beats == 5
        await stage.queue.cancel("j", running=True)
        await stage.advance(2)
        beats = metrics.beats
        await stage.advance(60)
        assert metrics.beats == beats


async def test_one_call_renews_all_leases(stage: Stage) -> None:
    metrics = Beating()
    for number in range(10):
        await stage.queue.enqueue(f"j{number}", None)
    async with Worker(stage.queue, hang, concurrency=10, metrics=metrics, shutdown_timeout=0):
        await stage.advance(3.5)
    assert metrics.beats == 3


class Faint(MemoryStorage):
    """Cannot renew for a while."""

    fails = 0

    async def renew(self, queue: str, leases: Sequence[Lease], lease_ms: int) -> Renewal:
        if self.fails:
            self.fails -= 1
            raise StorageUnavailable("no answer to renew")
        return await super().renew(queue, leases, lease_ms)


async def test_a_failed_renewal_is_counted_and_tried_again_while_the_handler_goes_on() -> None:
    clock = ManualClock()
    storage = Faint(clock=clock)
    queue: Queue[object, object] = Queue("faint", storage)
    metrics = Beating()
    gate = asyncio.Event()

    async def handler(_job: Ctx) -> object:
        await gate.wait()
        return "done"

    await queue.enqueue("j", None)
    async with Worker(queue, handler, lease=30, reap_interval=1, metrics=metrics):
        storage.fails = 20
        await clock.advance(25)
        assert metrics.misses == 20
        assert metrics.beats >= 4
        await clock.advance(30)
        gate.set()
        await clock.settle()
    assert await queue.get_result("j") == "done"
    await queue.stop()


async def test_a_running_job_hears_of_a_cancel_within_a_second(stage: Stage) -> None:
    cleaned: list[bool] = []

    async def handler(job: Ctx) -> object:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(job.cancelled)
        return None

    async with Worker(stage.queue, handler):
        waiting = asyncio.create_task(stage.queue.enqueue_and_wait("j", None, timeout=None))
        await stage.clock.settle()
        assert (await stage.queue.cancel("j", running=True)).status == "requested"
        await stage.advance(1)
        with pytest.raises(JobCancelled):
            await waiting
    assert cleaned == [True]
    status = await stage.queue.get_status("j")
    assert status is not None
    assert status.error is not None
    assert (status.state, status.error.kind) == (State.FAILED, "JobCancelled")


async def test_a_handler_may_finish_although_it_was_asked_to_cancel(stage: Stage) -> None:
    async def handler(_job: Ctx) -> object:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "finished anyway"
        return None

    async with Worker(stage.queue, handler):
        await stage.queue.enqueue("j", None)
        await stage.clock.settle()
        await stage.queue.cancel("j", running=True)
        await stage.advance(1)
    assert await stage.queue.get_result("j") == "finished anyway"


def forget_lease(stage: Stage) -> None:
    """Let the lease of job 'j' lapse as if the storage had been frozen past its end."""
    stage.storage._queue("stage").jobs["j"].lease_until_ms = 0


async def test_a_handler_that_lost_its_lease_is_told_and_writes_nothing(stage: Stage) -> None:
    seen: list[object] = []
    gate = asyncio.Event()

    async def handler(job: Ctx) -> object:
        if seen:
            return "second run"
        seen.append(job.lost)
        await gate.wait()
        seen.append(job.lost)
        with pytest.raises(LeaseLost):
            await job.progress(99)
        with pytest.raises(LeaseLost):
            await job.log("from the grave")
        return "first run"

    await stage.queue.enqueue("j", None)
    async with Worker(stage.queue, handler, lease=300, concurrency=2, reap_interval=0.5):
        await stage.clock.settle()
        forget_lease(stage)
        await stage.advance(2)
        gate.set()
        await stage.advance(2)
    assert seen == [False, True]
    assert await stage.queue.get_result("j") == "second run"
    job = await stage.queue.get_job("j")
    assert job is not None
    assert job.progress is None
    assert await stage.queue.logs("j") == []


async def test_on_lease_lost_cancel_interrupts_the_handler(stage: Stage) -> None:
    interrupted: list[str] = []

    async def handler(job: Ctx) -> object:
        if job.stalls:
            return "second run"
        try:
            await asyncio.Event().wait()
        finally:
            interrupted.append(job.id)
        return None

    await stage.queue.enqueue("j", None)
    worker = Worker(stage.queue, handler, lease=300, reap_interval=0.5, on_lease_lost="cancel")
    async with worker:
        await stage.clock.settle()
        forget_lease(stage)
        await stage.advance(2)
        assert interrupted == ["j"]
        assert await stage.queue.get_result("j") == "second run"


class SyncBeat:
    """A heart for a memory storage: its verbs are plain functions under a lock."""

    def __init__(self, storage: BeatingStorage) -> None:
        self._storage = storage
        self.closed = False

    def renew(self, queue: str, leases: Sequence[Lease], lease_ms: int) -> Renewal:
        self._storage.beats += 1
        if self._storage.broken:
            raise StorageUnavailable("heart connection cut")
        return self._storage._change(queue, lambda q, now: q.renew(leases, lease_ms, now))

    def close(self) -> None:
        self.closed = True


class BeatingStorage(MemoryStorage):
    """A memory storage with the `Beats` facet."""

    beats = 0
    broken = False
    heart: SyncBeat | None = None

    def heartbeat(self) -> SyncBeat:
        self.heart = SyncBeat(self)
        return self.heart


async def test_a_handler_that_blocks_the_loop_is_named_with_its_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = BeatingStorage()
    queue: Queue[object, object] = Queue("beats", storage)
    both = asyncio.Event()

    async def wait(_job: Ctx) -> None:
        await both.wait()

    async def resize(_job: Ctx) -> None:
        time.sleep(0.6)  # noqa: ASYNC251 - the mistake itself
        both.set()

    async with Worker(queue, {"wait": wait, "resize": resize}, lease=0.3, concurrency=2):
        first = await queue.add("wait", None)
        await asyncio.sleep(0)
        await queue.wait_until_finished((await queue.add("resize", None)).id)
        await queue.wait_until_finished(first.id)
    await queue.stop()
    # A busy machine may stop us elsewhere, too; this one was made here.
    said = next(one for one in caplog.messages if "task 'resize'" in one)
    assert said.startswith("toril[E10] task 'resize' blocked the event loop for ")
    assert " s (resize at test_heart.py:" in said
    assert ": time.sleep(0.6)); 1 other job stood still, its lease was kept." in said
    assert "fix: write it as plain def" in said


async def test_a_blocked_event_loop_loses_no_lease_where_the_storage_beats() -> None:
    storage = BeatingStorage()
    queue: Queue[object, object] = Queue("beats", storage)

    async def handler(job: Ctx) -> object:
        end = time.monotonic() + 1.2
        while time.monotonic() < end:  # blocks the loop for four leases
            pass
        return job.stalls

    async with Worker(queue, handler, lease=0.3, reap_interval=0.1):
        assert await queue.enqueue_and_wait("j", None) == 0
    assert storage.beats >= 4
    assert storage.heart is not None
    assert storage.heart.closed
    await queue.stop()


async def test_a_heart_in_a_thread_brings_cancel_requests_and_survives_failures() -> None:
    storage = BeatingStorage()
    queue: Queue[object, object] = Queue("beats", storage)
    metrics = Beating()
    async with Worker(queue, hang, lease=0.3, metrics=metrics):
        waiting = asyncio.create_task(queue.enqueue_and_wait("j", None, timeout=None))
        storage.broken = True
        await metrics.missed.wait()
        storage.broken = False
        await queue.cancel("j", running=True)
        with pytest.raises(JobCancelled):
            await waiting
    await queue.stop()


async def test_a_heart_that_breaks_ends_the_worker_and_hands_its_jobs_back() -> None:
    class Broken(BeatingStorage):
        def heartbeat(self) -> SyncBeat:
            raise ZeroDivisionError("a bug in the storage")

    queue: Queue[object, object] = Queue("broken", Broken())
    await queue.enqueue("j", None)
    worker = Worker(queue, hang, lease=0.3)
    with pytest.raises(ZeroDivisionError):
        await worker.run()
    assert (await queue.get_job_counts()).waiting == 1
    await queue.stop()


async def test_a_threaded_heart_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    queue: Queue[object, object] = Queue("threads", BeatingStorage())

    async def echo(job: Ctx) -> object:
        return job.id

    for number in range(5):
        async with Worker(queue, echo):
            await queue.enqueue_and_wait(f"j{number}", None)
    await queue.stop()
    assert set(threading.enumerate()) <= before
