"""A storage that does not answer is tried again patiently and logged sparingly."""

from __future__ import annotations

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toril.clock import ManualClock
from toril.engine.journal import Journal
from toril.engine.outage import Outage
from toril.errors import StorageClosed, StorageFull, StorageUnavailable
from toril.metrics import MetricsCollector, NoMetrics

GONE = StorageUnavailable("no answer")


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(0)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def events(self) -> list[object]:
        return [vars(record)["event"] for record in self.records]


class Recorder(NoMetrics):
    """Write down what is told about the connection."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def set_redis_connection_status(self, connected: bool) -> None:
        self.told.append(connected)

    def increment_redis_reconnect_attempts(self) -> None:
        self.told.append("again")


class Flaky:
    """A call that fails so many times before it answers."""

    def __init__(self, failures: int) -> None:
        self.left = failures
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.left > 0:
            self.left -= 1
            raise GONE
        return "answer"


class Scene:
    """An outage with everything it talks to in view."""

    def __init__(self, max_tries: int = 0) -> None:
        self.clock = ManualClock()
        self.log = Lines()
        logger = logging.Logger("toril.test", logging.DEBUG)  # noqa: LOG001 - shared with nobody
        logger.addHandler(self.log)
        self.metrics = Recorder()
        self.errors: list[BaseException] = []
        self.outage = Outage(
            self.clock,
            Journal(logger, "emails", "w"),
            self.metrics,
            max_tries=max_tries,
            on_error=self.errors.append,
        )


def after(tries: int) -> Outage:
    scene = Scene()
    for _ in range(tries):
        scene.outage.failed(GONE)
    return scene.outage


@pytest.mark.parametrize(
    ("tries", "seconds"),
    [
        *((0, 0.1), (1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8), (5, 1.6), (6, 3.2), (7, 6.4)),
        *((8, 12.8), (9, 25.6), (10, 30), (11, 30), (50, 30), (5000, 30)),
    ],
)
def test_the_wait_doubles_from_a_tenth_of_a_second_to_thirty(tries: int, seconds: float) -> None:
    outage = after(tries)
    waits = [outage.delay_s() for _ in range(300)]
    assert seconds * 0.8 <= min(waits) < seconds * 0.85
    assert seconds * 1.15 < max(waits) <= seconds * 1.2


@given(st.integers(0, 100))
def test_the_wait_is_never_below_80_ms_nor_above_36_s(tries: int) -> None:
    assert 0.08 <= after(tries).delay_s() <= 36


def test_workers_do_not_come_back_together() -> None:
    outage = after(5)
    assert len({outage.delay_s() for _ in range(100)}) == 100


def test_the_first_failure_is_logged_then_ever_fewer() -> None:
    scene = Scene()
    for _ in range(200):  # 20 seconds
        scene.outage.failed(GONE)
        scene.clock.shift(100)
    assert scene.log.events == ["disconnected"] * 4
    texts = [record.getMessage() for record in scene.log.records]
    assert texts[0] == "storage unavailable (try 1, 0.0 s): no answer"
    assert texts[1] == "storage unavailable (try 41, 4.0 s): no answer"
    assert texts[2] == "storage unavailable (try 81, 8.0 s): no answer"
    assert texts[3] == "storage unavailable (try 161, 16.0 s): no answer"


def test_a_failure_four_seconds_later_is_logged_and_one_just_before_is_not() -> None:
    scene = Scene()
    for ms in (0, 3999, 1, 3999, 1):
        scene.clock.shift(ms)
        scene.outage.failed(GONE)
    assert len(scene.log.records) == 3


def test_recovery_is_logged_once_with_how_long_it_took() -> None:
    scene = Scene()
    for _ in range(3):
        scene.outage.failed(GONE)
        scene.clock.shift(1000)
    scene.outage.recovered()
    assert scene.log.events == ["disconnected", "reconnected"]
    assert scene.log.records[-1].getMessage() == "storage is back after 3.0 s and 3 tries"


def test_a_second_outage_is_logged_at_once_and_counts_anew() -> None:
    scene = Scene()
    scene.outage.failed(GONE)
    scene.outage.recovered()
    scene.clock.shift(500)
    scene.outage.failed(GONE)
    assert scene.log.events == ["disconnected", "reconnected", "disconnected"]
    assert scene.log.records[-1].getMessage() == "storage unavailable (try 1, 0.0 s): no answer"


def test_metrics_and_the_error_hook_hear_of_an_outage_once() -> None:
    scene = Scene()
    for _ in range(3):
        scene.outage.failed(GONE)
    scene.outage.recovered()
    assert scene.metrics.told == [False, "again", "again", True]
    assert scene.errors == [GONE]


def test_an_outage_is_ongoing_between_failure_and_recovery() -> None:
    outage = Scene().outage
    assert not outage.ongoing
    outage.failed(GONE)
    assert outage.ongoing
    outage.recovered()
    assert not outage.ongoing


async def test_a_call_that_answers_leaves_no_trace() -> None:
    scene = Scene()
    assert await scene.outage.insist(Flaky(0)) == "answer"
    assert (scene.log.records, scene.metrics.told, scene.clock.pending) == ([], [], 0)


@pytest.mark.parametrize("failures", [1, 5, 30])
async def test_a_call_is_repeated_until_the_storage_answers(failures: int) -> None:
    scene = Scene()
    call = Flaky(failures)
    task = asyncio.ensure_future(scene.outage.insist(call))
    await scene.clock.advance(failures * 36.0)
    assert await task == "answer"
    assert call.calls == failures + 1
    assert scene.metrics.told == [False, *["again"] * (failures - 1), True]
    assert scene.log.events[-1] == "reconnected"
    assert not scene.outage.ongoing


async def test_the_first_repeat_comes_after_a_tenth_of_a_second() -> None:
    scene = Scene()
    call = Flaky(1)
    task = asyncio.ensure_future(scene.outage.insist(call))
    await scene.clock.advance(0.0799)
    assert call.calls == 1
    await scene.clock.advance(0.0402)
    assert call.calls == 2
    await task


class Patient(Flaky):
    """A call that waits for its server before it fails."""

    def __init__(self, clock: ManualClock, failures: int) -> None:
        super().__init__(failures)
        self._clock = clock

    async def __call__(self) -> str:
        await self._clock.sleep(4)
        return await super().__call__()


async def test_a_call_that_waited_for_its_server_is_repeated_at_once() -> None:
    scene = Scene()
    call = Patient(scene.clock, 100)
    task = asyncio.ensure_future(scene.outage.insist(call))
    await scene.clock.advance(101 * 4)
    assert await task == "answer"
    assert call.calls == 101


async def test_a_call_that_begins_afresh_each_time_is_paced_however_long_it_takes() -> None:
    scene = Scene()
    call = Patient(scene.clock, 20)
    task = asyncio.ensure_future(scene.outage.insist(call, afresh=True))
    await scene.clock.advance(21 * 4 + 11 * 30 * 0.8)
    assert not task.done()
    await scene.clock.advance(11 * 30)
    assert await task == "answer"


@pytest.mark.parametrize("max_tries", [1, 3])
async def test_after_so_many_repeats_the_storages_error_comes_out(max_tries: int) -> None:
    scene = Scene(max_tries)
    call = Flaky(1000)
    task = asyncio.ensure_future(scene.outage.insist(call))
    await scene.clock.advance(max_tries * 36.0)
    with pytest.raises(StorageUnavailable) as caught:
        await task
    assert caught.value is GONE
    assert call.calls == max_tries + 1
    assert scene.clock.pending == 0


async def test_a_recovery_gives_all_tries_back() -> None:
    scene = Scene(max_tries=2)
    for _ in range(4):
        task = asyncio.ensure_future(scene.outage.insist(Flaky(2)))
        await scene.clock.advance(100)
        assert await task == "answer"


async def test_a_full_storage_is_tried_again_too() -> None:
    scene = Scene()
    answers: list[str | StorageFull] = [StorageFull("no room"), "answer"]

    async def call() -> str:
        answer = answers.pop(0)
        if isinstance(answer, StorageFull):
            raise answer
        return answer

    task = asyncio.ensure_future(scene.outage.insist(call))
    await scene.clock.advance(1)
    assert await task == "answer"


@pytest.mark.parametrize("error", [ValueError("a bug"), StorageClosed("closed")], ids=repr)
async def test_what_waiting_cannot_mend_is_not_repeated(error: Exception) -> None:
    scene = Scene()

    async def call() -> None:
        raise error

    with pytest.raises(type(error)):
        await scene.outage.insist(call)
    assert scene.log.records == []


async def test_waiting_for_the_storage_can_be_cancelled() -> None:
    scene = Scene()
    task = asyncio.ensure_future(scene.outage.insist(Flaky(1000)))
    await scene.clock.advance(10)
    task.cancel()
    await scene.clock.settle()
    assert task.cancelled()
    assert scene.clock.pending == 0


async def test_calls_that_fail_together_are_one_outage() -> None:
    scene = Scene()
    tasks = [asyncio.ensure_future(scene.outage.insist(Flaky(1))) for _ in range(3)]
    await scene.clock.advance(10)
    assert [await task for task in tasks] == ["answer"] * 3
    assert scene.log.events == ["disconnected", "reconnected"]
    assert scene.metrics.told == [False, "again", "again", True]
    assert scene.errors == [GONE]


def test_collecting_nothing_is_a_collector_too() -> None:
    collector: MetricsCollector = NoMetrics()
    collector.increment_jobs_processed("q", "completed")
    collector.observe_job_duration("q", 0.1)
    collector.set_queue_length("q", "waiting", 3)
    collector.increment_stalled_jobs("q")
    collector.increment_heartbeat_success("q")
    collector.increment_heartbeat_failure("q")
    collector.set_active_workers("q", "w", True)
    collector.set_redis_connection_status(True)
    collector.increment_redis_reconnect_attempts()
    collector.increment_stalled_checker_skipped("q")
