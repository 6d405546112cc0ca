"""How a worker stops without losing anything."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from tests.engine.conftest import Stage
from toril import (
    JobContext,
    ManualClock,
    MemoryStorage,
    Queue,
    State,
    StorageUnavailable,
    Worker,
    WorkerState,
)
from toril.outcome import Outcome
from toril.storage.protocol import Batch, Claim, Settlement

Ctx = JobContext[object]


class Gate:
    """A handler that waits to be let go."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.started: list[str] = []
        self.ended: list[str] = []

    async def __call__(self, job: Ctx) -> object:
        self.started.append(job.id)
        await self.event.wait()
        self.ended.append(job.id)
        return None


async def test_stop_lets_running_jobs_finish_and_takes_no_more(stage: Stage) -> None:
    gate = Gate()
    for number in range(5):
        await stage.queue.enqueue(f"j{number}", None)
    worker = Worker(stage.queue, gate, concurrency=2)
    await worker.start()
    await stage.clock.settle()
    stopping = asyncio.create_task(worker.stop())
    await stage.advance(10)
    assert worker.state is WorkerState.STOPPING
    gate.event.set()
    await stopping
    assert gate.ended == ["j0", "j1"]
    counts = await stage.queue.get_job_counts()
    assert (counts.completed, counts.waiting, counts.active) == (2, 3, 0)


async def test_a_job_longer_than_the_grace_goes_back_to_the_front_at_once(stage: Stage) -> None:
    gate = Gate()
    for job_id in ("long", "next"):
        await stage.queue.enqueue(job_id, None)
    worker = Worker(stage.queue, gate, shutdown_timeout=5)
    await worker.start()
    await stage.clock.settle()
    stopping = asyncio.create_task(worker.stop())
    await stage.advance(4.9)
    assert not stopping.done()
    await stage.advance(0.2)
    await stopping
    (first, _) = await stage.queue.get_jobs("waiting")
    assert (first.id, first.attempts_made, first.stalls) == ("long", 0, 0)


async def test_a_grace_of_zero_hands_jobs_back_at_once(stage: Stage) -> None:
    gate = Gate()
    for number in range(10):
        await stage.queue.enqueue(f"j{number}", None)
    worker = Worker(stage.queue, gate, concurrency=10, shutdown_timeout=0)
    await worker.start()
    await stage.clock.settle()
    assert (await stage.queue.get_job_counts()).active == 10
    await worker.stop()
    assert (await stage.queue.get_job_counts()).waiting == 10
    assert [w.id for w in await stage.queue.get_workers()] == []


async def test_cancelling_run_hands_jobs_back_and_is_passed_on(stage: Stage) -> None:
    gate = Gate()
    await stage.queue.enqueue("j", None)
    worker = Worker(stage.queue, gate)
    running = asyncio.create_task(worker.run())
    await stage.clock.settle()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert worker.state is WorkerState.STOPPED
    assert await stage.state("j") is State.WAITING


async def test_stopping_twice_or_without_a_start_is_harmless(stage: Stage) -> None:
    worker = Worker(stage.queue, Gate())
    await worker.stop()
    await worker.start()
    await worker.start()
    await stage.clock.settle()
    await worker.stop()
    await worker.stop()


async def test_a_handler_that_ignores_its_cancellation_is_left_behind(stage: Stage) -> None:
    release = asyncio.Event()

    async def stubborn(_job: Ctx) -> object:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return None

    await stage.queue.enqueue("j", None)
    worker = Worker(stage.queue, stubborn, shutdown_timeout=1)
    await worker.start()
    await stage.clock.settle()
    stopping = asyncio.create_task(worker.stop())
    await stage.advance(10)
    await stopping
    assert await stage.state("j") is State.ACTIVE  # its lease will lapse
    release.set()
    await stage.clock.settle()


async def test_a_thread_that_does_not_end_is_left_behind_and_its_job_handed_back(
    stage: Stage,
) -> None:
    release = threading.Event()
    entered = threading.Event()

    def handler(_job: Ctx) -> object:
        entered.set()
        release.wait(10)
        return None

    await stage.queue.enqueue("j", None)
    worker = Worker(stage.queue, handler, shutdown_timeout=0)
    await worker.start()
    await asyncio.to_thread(entered.wait)
    await worker.stop()
    assert await stage.state("j") is State.WAITING
    release.set()


class Slow(MemoryStorage):
    """Answers claims and settles only when told to, or not at all."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.claim_gate = asyncio.Event()
        self.claim_gate.set()
        self.down = False

    async def claim(self, queue: str, claim: Claim) -> Batch:
        batch = await super().claim(queue, claim)
        await self.claim_gate.wait()
        return batch

    async def settle(
        self, queue: str, outcomes: Sequence[Outcome], refill: Claim | None = None
    ) -> Settlement:
        if self.down:
            raise StorageUnavailable("server is down")
        return await super().settle(queue, outcomes, refill)

    async def leave(self, queue: str, worker_id: str) -> None:
        if self.down:
            raise StorageUnavailable("server is down")
        await super().leave(queue, worker_id)


async def test_a_claim_under_way_is_not_cut_and_its_jobs_are_handed_back() -> None:
    clock = ManualClock()
    storage = Slow(clock)
    queue: Queue[object, object] = Queue("slow", storage)
    await queue.enqueue("j", None)
    storage.claim_gate.clear()
    gate = Gate()
    worker = Worker(queue, gate)
    await worker.start()
    await clock.settle()
    stopping = asyncio.create_task(worker.stop())
    await clock.settle()
    storage.claim_gate.set()
    await clock.settle()
    await stopping
    assert gate.started == []
    job = await queue.get_job("j")
    assert job is not None
    assert (job.state, job.stalls, job.attempts_made) == (State.WAITING, 0, 0)
    await queue.stop()


async def test_stopping_while_the_storage_is_down_does_not_hang() -> None:
    clock = ManualClock()
    storage = Slow(clock)
    queue: Queue[object, object] = Queue("slow", storage)
    gate = Gate()
    await queue.enqueue("j", None)
    worker = Worker(queue, gate, shutdown_timeout=3)
    await worker.start()
    await clock.settle()
    storage.down = True
    gate.event.set()
    stopping = asyncio.create_task(worker.stop())
    await clock.advance(3 + 2 + 2)
    await stopping
    await queue.stop()


async def test_the_queues_own_worker_stops_with_it(stage: Stage) -> None:
    gate = Gate()
    gate.event.set()
    stage.queue.execute(gate, concurrency=2)
    async with stage.queue:
        await stage.queue.enqueue_and_wait("j", None)
    assert gate.ended == ["j"]


async def test_what_a_left_behind_handler_returns_later_is_dropped(stage: Stage) -> None:
    release = asyncio.Event()

    async def stubborn(_job: Ctx) -> object:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "too late"

    await stage.queue.enqueue("j", None)
    worker = Worker(stage.queue, stubborn, shutdown_timeout=0)
    await worker.start()
    await stage.clock.settle()
    stopping = asyncio.create_task(worker.stop())
    await stage.advance(5)
    await stopping
    await stage.queue.stop()
    release.set()
    await stage.clock.settle()
    assert await stage.queue.get_result("j") is None


async def test_a_hook_that_hangs_does_not_keep_the_worker_from_stopping(stage: Stage) -> None:
    async def handler(_job: Ctx) -> object:
        return None

    worker = Worker(stage.queue, handler)
    worker.hooks.patience_s = 0.01

    @worker.on("completed")
    async def hang(_job: Ctx, _result: object) -> None:
        await asyncio.Event().wait()

    async with worker:
        await stage.queue.enqueue_and_wait("j", None)


async def test_a_worker_waits_for_a_storage_that_is_not_there_yet() -> None:
    class Absent(MemoryStorage):
        tries = 0

        async def open(self) -> None:
            self.tries += 1
            if self.tries <= 3:
                raise StorageUnavailable("connection refused")
            await super().open()

    clock = ManualClock()
    storage = Absent(clock=clock)
    queue: Queue[object, object] = Queue("absent", storage)
    worker = Worker(queue, Gate())
    await worker.start()
    await clock.advance(0.05)
    states = [worker.state]
    await clock.advance(5)
    states.append(worker.state)
    assert states == [WorkerState.DISCONNECTED, WorkerState.RUNNING]
    await worker.stop()
    storage.tries = 0
    await worker.start()
    await clock.settle()
    await worker.stop()  # also while it still waits
    assert worker.state is WorkerState.STOPPED
