"""Orders and counts on a storage, and when a queue is drained; no Spark here."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from toril import ManualClock, MemoryStorage
from toril.ids import token
from toril.job import JobSpec, Terms
from toril.outcome import Failure, Retried
from toril.spark.board import Board, Order, control_queue
from toril.spark.drained import is_drained
from toril.spark.fleet_count import TaskCount
from toril.storage.protocol import Claim

DAY = 24 * 3600


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still."""
    return ManualClock()


@pytest.fixture
async def storage(clock: ManualClock) -> AsyncIterator[MemoryStorage]:
    """An open storage on that clock."""
    made = MemoryStorage(clock=clock)
    await made.open()
    yield made
    await made.close()


def count(task: int, attempt: int = 0, completed: int = 0) -> TaskCount:
    """What a task tells."""
    return TaskCount(task=task, attempt=attempt, worker_id="w", completed=completed)


async def test_tasks_read_the_newest_order_and_the_driver_the_newest_counts(
    storage: MemoryStorage,
) -> None:
    driver, task = Board(storage, "emails", "run"), Board(storage, "emails", "run")
    await driver.begin()
    assert await task.order() == Order()
    await task.tell([count(0, completed=1)])
    await task.tell([count(0, completed=2)])
    await task.tell([count(1, 0), count(1, 1)])
    assert await driver.told(range(3)) == [count(0, completed=2), count(1, 0), count(1, 1)]
    await driver.give(Order(stop=True, grace_s=2.5))
    assert await task.order() == Order(stop=True, grace_s=2.5)


async def test_runs_do_not_hear_each_other_and_the_last_one_leaves_nothing(
    storage: MemoryStorage,
) -> None:
    one, other = Board(storage, "emails", "one"), Board(storage, "emails", "other")
    await one.begin()
    await other.begin()
    await one.give(Order(stop=True))
    await one.tell([count(0)])
    assert await other.order() == Order()
    await one.clear(1)
    assert (await storage.counts(control_queue("emails"))).total == 1
    await other.clear(1)
    assert await storage.queues() == []


async def test_records_that_vanished_are_made_again(storage: MemoryStorage) -> None:
    board = Board(storage, "emails", "run")
    await board.begin()
    await storage.destroy(control_queue("emails"))
    assert await board.order() == Order()
    await board.give(Order(stop=True))
    assert (await board.order()).stop


async def test_what_a_dead_driver_left_goes_with_the_first_fleet_a_day_later(
    storage: MemoryStorage, clock: ManualClock
) -> None:
    await Board(storage, "emails", "dead").begin()
    await clock.advance(DAY - 1)
    await Board(storage, "emails", "young").begin()
    assert (await storage.counts(control_queue("emails"))).total == 2
    await clock.advance(2)
    await Board(storage, "emails", "new").begin()
    assert (await storage.counts(control_queue("emails"))).total == 2


def test_a_long_queue_name_has_a_control_queue_too() -> None:
    long = "é" * 125
    assert control_queue("emails") == "toril-fleet-emails"
    assert len(control_queue(long).encode()) <= 255
    assert control_queue(long) != control_queue("è" * 125)


async def drained(storage: MemoryStorage, clock: ManualClock) -> bool:
    """Look now."""
    return await is_drained(storage, "emails", await storage.counts("emails"), clock)


async def test_waiting_and_running_jobs_are_work_left(
    storage: MemoryStorage, clock: ManualClock
) -> None:
    assert await drained(storage, clock)
    await storage.enqueue("emails", [JobSpec(id="a", origin="1", terms=Terms(attempts=2))])
    assert not await drained(storage, clock)
    claim = Claim(token=token(), worker_id="w", count=1, lease_ms=1000)
    batch = await storage.claim("emails", claim)
    assert not await drained(storage, clock)
    failure = Failure(kind="ValueError", reason="no")
    retry = Retried(lease=batch.jobs[0].lease, failure=failure, delay_ms=3_600_000)
    await storage.settle("emails", [retry])
    assert not await drained(storage, clock)  # a retry is waited for, however late


async def test_delayed_jobs_are_work_left_only_shortly_before_their_time(
    storage: MemoryStorage, clock: ManualClock
) -> None:
    later = JobSpec(id="b", origin="2", terms=Terms(delay_ms=60_000))
    await storage.enqueue("emails", [later])
    assert await drained(storage, clock)
    await clock.advance(56)
    assert not await drained(storage, clock)
