"""How stalled jobs are found and come back."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.engine.conftest import Stage
from toril import JobContext, ManualClock, MemoryStorage, Queue, State, StorageUnavailable, Worker
from toril.engine.journal import Journal
from toril.engine.reap import ReapLoop
from toril.ids import token
from toril.metrics import NoMetrics
from toril.storage.protocol import Claim, Reaped

Ctx = JobContext[object]


async def echo(job: Ctx) -> object:
    return job.stalls


async def die_holding(stage: Stage, count: int = 1, lease_ms: int = 5_000) -> None:
    """Claim jobs as a worker that is never heard of again."""
    wish = Claim(token=token(), worker_id="dead", count=count, lease_ms=lease_ms)
    batch = await stage.storage.claim("stage", wish)
    assert len(batch.jobs) == count


async def test_the_jobs_of_a_dead_worker_restart_within_lease_and_interval(stage: Stage) -> None:
    stalled: list[str] = []
    await stage.queue.enqueue("a", None)
    await stage.queue.enqueue("b", None)
    await die_holding(stage, 2)
    worker = Worker(stage.queue, echo, reap_interval=3)
    worker.on("stalled")(stalled.append)
    async with worker:
        await stage.advance(4.9)
        assert await stage.state("a") is State.ACTIVE
        await stage.advance(3.3)
    assert stalled == ["a", "b"]
    for job_id in ("a", "b"):
        job = await stage.queue.get_job(job_id)
        assert job is not None
        assert (job.state, job.attempts_made, job.stalls) == (State.COMPLETED, 1, 1)
        assert job.result == 1


async def test_a_job_that_kills_its_workers_fails_without_a_further_run(stage: Stage) -> None:
    ran: list[str] = []

    async def handler(job: Ctx) -> object:
        ran.append(job.id)
        return None

    await stage.queue.enqueue("poison", None)
    for _ in range(2):
        await die_holding(stage)
        await stage.advance(6)
        await stage.storage.reap("stage", 1, 1)
    async with Worker(stage.queue, handler):
        await stage.advance(60)
    assert ran == []
    status = await stage.queue.get_status("poison")
    assert status is not None
    assert status.error is not None
    assert (status.state, status.error.kind) == (State.FAILED, "JobStalled")
    assert "stalled 2 times; allowed are 1" in status.error.reason


async def test_starting_workers_never_take_jobs_that_are_running(stage: Stage) -> None:
    runs: list[str] = []
    gate = asyncio.Event()

    async def handler(job: Ctx) -> object:
        runs.append(job.id)
        await gate.wait()
        return None

    await stage.queue.enqueue("j", None)
    async with Worker(stage.queue, handler, lease=3):
        await stage.advance(1)
        for _ in range(20):
            async with Worker(stage.queue, handler, lease=3, reap_interval=0.1):
                await stage.advance(1)
        gate.set()
        await stage.clock.settle()
    assert runs == ["j"]


class Counting(NoMetrics):
    def __init__(self) -> None:
        self.skipped = 0
        self.stalled = 0

    def increment_stalled_checker_skipped(self, queue: str) -> None:
        self.skipped += 1

    def increment_stalled_jobs(self, queue: str) -> None:
        self.stalled += 1


class SlowReap(MemoryStorage):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.gate = asyncio.Event()
        self.calls = 0
        self.fails = False

    async def reap(self, queue: str, max_stalls: int, interval_ms: int) -> Reaped:
        self.calls += 1
        await self.gate.wait()
        if self.fails:
            raise StorageUnavailable("no answer to reap")
        return await super().reap(queue, max_stalls, interval_ms)


async def test_a_cycle_that_still_runs_makes_the_next_one_skip(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    storage = SlowReap(clock)
    queue: Queue[object, object] = Queue("slow", storage)
    metrics = Counting()
    with caplog.at_level(logging.WARNING, logger="toril"):
        async with Worker(queue, echo, reap_interval=2, metrics=metrics):
            await clock.advance(7)
            assert (storage.calls, metrics.skipped) == (1, 3)
            storage.gate.set()
            await clock.advance(3)
            assert storage.calls == 2
    assert sum("reap cycle skipped" in record.message for record in caplog.records) == 3
    await queue.stop()


async def test_a_failed_cycle_is_logged_and_the_next_one_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    storage = SlowReap(clock)
    storage.gate.set()
    storage.fails = True
    queue: Queue[object, object] = Queue("slow", storage)
    async with Worker(queue, echo, reap_interval=2):
        await clock.advance(5)
    assert storage.calls == 3
    assert "no answer to reap" in caplog.text
    await queue.stop()


async def test_whoever_finds_the_guard_set_comes_back_when_it_ends(stage: Stage) -> None:
    """The leader of the passes dies; the next one takes over without a skipped pass."""
    await stage.storage.open()
    await stage.storage.reap("stage", 1, 10_000)  # the leader's last pass
    await stage.queue.enqueue("j", None)
    await die_holding(stage, lease_ms=1_000)
    await stage.advance(4)
    found: list[float] = []
    loop = ReapLoop(
        storage=stage.storage,
        queue="stage",
        clock=stage.clock,
        interval_ms=10_000,
        max_stalls=1,
        journal=Journal(None, "stage", "w"),
        metrics=NoMetrics(),
        stalled=lambda _job, _doomed: found.append(stage.clock.monotonic()),
        failed=lambda _error: None,
    )
    task = asyncio.create_task(loop.run())
    await stage.advance(20)
    task.cancel()
    await asyncio.wait([task])
    (when,) = found
    assert 10 <= when <= 10.4, f"found at {when}; a whole interval later would be 14"
    await stage.storage.close()
