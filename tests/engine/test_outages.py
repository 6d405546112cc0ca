"""How a worker lives through a storage that does not answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from toril import (
    JobContext,
    ManualClock,
    MemoryStorage,
    Queue,
    StorageUnavailable,
    Worker,
    WorkerState,
)
from toril.metrics import NoMetrics
from toril.outcome import Outcome
from toril.storage.protocol import Batch, Claim, Reaped, Settlement

Ctx = JobContext[object]


class Flapping(MemoryStorage):
    """Answers nothing while it is down."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.down = False
        self.calls = 0

    def _check(self) -> None:
        self.calls += 1
        if self.down:
            raise StorageUnavailable("connection refused")

    async def claim(self, queue: str, claim: Claim) -> Batch:
        self._check()
        return await super().claim(queue, claim)

    async def wait(self, queues: Sequence[str], timeout_ms: int) -> None:
        self._check()
        await super().wait(queues, timeout_ms)

    async def reap(self, queue: str, max_stalls: int, interval_ms: int) -> Reaped:
        if self.down:
            raise StorageUnavailable("connection refused")
        return await super().reap(queue, max_stalls, interval_ms)

    async def settle(
        self, queue: str, outcomes: Sequence[Outcome], refill: Claim | None = None
    ) -> Settlement:
        self._check()
        return await super().settle(queue, outcomes, refill)


class Connection(NoMetrics):
    def __init__(self) -> None:
        self.states: list[bool] = []
        self.tries = 0

    def set_redis_connection_status(self, connected: bool) -> None:
        self.states.append(connected)

    def increment_redis_reconnect_attempts(self) -> None:
        self.tries += 1


async def echo(job: Ctx) -> object:
    return job.data


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def test_an_outage_is_logged_sparsely_and_work_goes_on_after_it(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    storage = Flapping(clock)
    queue: Queue[object, object] = Queue("flap", storage)
    metrics = Connection()
    errors: list[BaseException] = []
    worker = Worker(queue, echo, metrics=metrics, reap_interval=1000)
    worker.on("error")(errors.append)
    with caplog.at_level(logging.INFO, logger="toril"):
        async with worker:
            await clock.advance(1)
            storage.down = True
            await clock.advance(5)  # the wait under way ends and finds the storage gone
            states = [worker.state]
            caplog.clear()
            calls = storage.calls
            await clock.advance(8)
            assert len(caplog.records) <= 4
            assert storage.calls - calls <= 10, "a busy loop against a dead server"
            storage.down = False
            await queue.enqueue("j", 7)
            await clock.advance(20)
            assert await queue.get_result("j") == 7
            states.append(worker.state)
    assert states == [WorkerState.DISCONNECTED, WorkerState.RUNNING]
    assert metrics.states[:3] == [True, False, True]
    assert metrics.tries > 0
    assert len(errors) == 1
    assert any("storage is back" in record.message for record in caplog.records)
    await queue.stop()


async def test_a_long_outage_is_logged_ever_more_seldom_and_without_tracebacks(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    storage = Flapping(clock)
    queue: Queue[object, object] = Queue("flap", storage)
    async with Worker(queue, echo, reap_interval=30):
        await clock.advance(1)
        storage.down = True
        await clock.advance(3600)
        storage.down = False
        await clock.advance(60)
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) <= 70
    assert not any(record.exc_info for record in told)
    await queue.stop()


async def test_a_worker_with_nothing_in_hand_does_not_wait_for_a_dead_storage(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    storage = Flapping(clock)
    queue: Queue[object, object] = Queue("flap", storage)
    worker = Worker(queue, echo, shutdown_timeout=30)
    await worker.start()
    await clock.advance(1)
    storage.down = True
    await clock.advance(10)
    assert worker.state is WorkerState.DISCONNECTED
    stopping = asyncio.create_task(worker.stop())
    await clock.advance(3)
    assert stopping.done()
    await stopping
    assert not any("handed back" in record.message for record in caplog.records)
    await queue.stop()


async def test_a_job_that_ends_during_an_outage_is_settled_after_it(clock: ManualClock) -> None:
    storage = Flapping(clock)
    queue: Queue[object, object] = Queue("flap", storage)
    gate = asyncio.Event()
    runs: list[str] = []

    async def handler(job: Ctx) -> object:
        runs.append(job.id)
        await gate.wait()
        return "kept"

    await queue.enqueue("j", None)
    async with Worker(queue, handler, concurrency=2):
        await clock.settle()
        storage.down = True
        gate.set()
        await clock.advance(10)
        storage.down = False
        await clock.advance(30)
        assert await queue.get_result("j") == "kept"
    assert runs == ["j"]
    await queue.stop()


async def test_a_bounded_worker_gives_up_with_the_storages_error(clock: ManualClock) -> None:
    storage = Flapping(clock)
    queue: Queue[object, object] = Queue("flap", storage)
    storage.down = True
    worker = Worker(queue, echo, max_reconnect_attempts=3)
    running = asyncio.create_task(worker.run())
    await clock.advance(60)
    with pytest.raises(StorageUnavailable, match="connection refused"):
        await running
    assert storage.calls == 4
    await queue.stop()


async def test_an_error_that_is_not_the_storages_ends_the_worker_and_hands_jobs_back(
    clock: ManualClock,
) -> None:
    class Buggy(Flapping):
        async def wait(self, queues: Sequence[str], timeout_ms: int) -> None:
            raise ZeroDivisionError("a bug in the storage")

    storage = Buggy(clock)
    queue: Queue[object, object] = Queue("flap", storage)

    async def hang(_job: Ctx) -> object:
        await asyncio.Event().wait()
        return None

    await queue.enqueue("j", None)
    worker = Worker(queue, hang, concurrency=2)
    running = asyncio.create_task(worker.run())
    await clock.advance(1)
    with pytest.raises(ZeroDivisionError):
        await running
    assert (await queue.get_job_counts()).waiting == 1
    await queue.stop()
