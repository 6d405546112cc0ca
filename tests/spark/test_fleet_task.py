"""The executor's side of a fleet, run here in a thread; no Spark."""

from __future__ import annotations

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.servers import Server
from tests.spark.filled import filled, until
from toril import JobContext, State
from toril.errors import InvalidOption
from toril.spark.board import Board, Order
from toril.spark.cargo import Cargo
from toril.spark.fleet_count import TaskCount
from toril.spark.fleet_task import FleetTask, TaskEnd
from toril.spark.target import target_of
from toril.storage import open_storage


async def answer(job: JobContext[Any]) -> int:
    """Be quick."""
    return 42


async def look_at_the_collector(job: JobContext[Any]) -> list[int]:
    """Tell after how many new objects it looks for circles, and how many it leaves alone."""
    return [gc.get_threshold()[0], gc.get_freeze_count()]


def task_of(url: str, queue: str, handler: Any = answer) -> FleetTask:
    """A task as it would travel."""
    cargo = Cargo(handler=handler, options={"concurrency": 4}).pack()
    return FleetTask(
        run="run", queue=queue, target=target_of("fleet", url, None, None), cargo=cargo
    )


def on_board(url: str, queue: str, work: Any) -> Any:
    """Do something on the board of that run."""

    async def do() -> Any:
        storage = open_storage(url)
        await storage.open()
        try:
            return await work(Board(storage, queue, "run"))
        finally:
            await storage.close()

    return asyncio.run(do())


def test_a_task_works_until_it_is_ordered_to_stop(server: Server, queue: str) -> None:
    with filled(queue, server.url, 20) as held, ThreadPoolExecutor(1) as pool:
        dead = TaskCount(task=3, attempt=-1, worker_id="w", completed=7)
        on_board(server.url, queue, lambda board: board.tell([dead]))
        working = pool.submit(lambda: list(task_of(server.url, queue)(3, ())))
        until(lambda: held.get_job_counts().completed == 20)
        on_board(server.url, queue, lambda board: board.give(Order(stop=True)))
        (end,) = working.result(30)
        told = on_board(server.url, queue, lambda board: board.told([3]))
    assert end.error is None
    assert end.attempts[0] == dead  # what its predecessor told is passed on
    assert (end.attempts[1].completed, end.attempts[1].ended) == (20, True)
    assert told == end.attempts


def test_a_task_spares_its_process_collections_while_it_works(server: Server, queue: str) -> None:
    before = gc.get_threshold()
    with filled(queue, server.url, 1) as held, ThreadPoolExecutor(1) as pool:
        task = task_of(server.url, queue, look_at_the_collector)
        working = pool.submit(lambda: list(task(0, ())))
        until(lambda: held.get_job_counts().completed == 1)
        on_board(server.url, queue, lambda board: board.give(Order(stop=True)))
        working.result(30)
        (job,) = held.get_jobs(State.COMPLETED)
    assert job.result is not None
    young, frozen = job.result
    assert young == 50_000
    assert frozen > 1_000
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


def test_a_task_that_comes_after_the_order_to_stop_takes_no_job(server: Server, queue: str) -> None:
    with filled(queue, server.url, 5) as held:
        on_board(server.url, queue, lambda board: board.give(Order(stop=True)))
        (end,) = task_of(server.url, queue)(0, ())
        assert held.get_job_counts().waiting == 5
    assert isinstance(end, TaskEnd)
    assert (end.attempts[0].completed, end.attempts[0].ended) == (0, True)


def test_a_task_that_cannot_work_returns_why(queue: str) -> None:
    (end,) = task_of("radis://127.0.0.1", queue)(0, ())
    assert isinstance(end.error, InvalidOption)
    assert "Did you mean 'redis'" in str(end.error)
