"""Attempts share tasks as long as they never wait, and nothing else."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from toril import JobCancelled, JobContext, NewJob, Queue, Worker

COUNT = 30
mood: ContextVar[str] = ContextVar("mood", default="none")


async def add(queue: Queue[int, object], count: int = COUNT) -> list[str]:
    jobs = await queue.add_bulk([NewJob(name="job", data=number) for number in range(count)])
    return [job.id for job in jobs]


async def test_handlers_that_never_wait_share_a_task_and_begin_in_order() -> None:
    queue: Queue[int, object] = Queue("q", "memory:")
    tasks: set[object] = set()
    order: list[int] = []

    async def handler(job: JobContext[int]) -> None:
        tasks.add(asyncio.current_task())
        order.append(job.data)

    async with queue:
        ids = await add(queue)
        async with Worker(queue, handler, concurrency=COUNT):
            await queue.wait_until_finished(ids[-1])
    assert order == list(range(COUNT))
    assert len(tasks) < COUNT / 2


async def test_what_a_handler_binds_is_unseen_by_the_next_in_the_same_task() -> None:
    queue: Queue[int, object] = Queue("q", "memory:")

    async def handler(job: JobContext[int]) -> str:
        found = mood.get()
        mood.set(f"of {job.data}")
        return found

    async with queue:
        ids = await add(queue)
        async with Worker(queue, handler, concurrency=COUNT):
            found = [await queue.wait_until_finished(one) for one in ids]
    assert found == ["none"] * COUNT


async def test_what_a_handler_binds_is_there_after_it_waited() -> None:
    queue: Queue[int, object] = Queue("q", "memory:")

    async def handler(job: JobContext[int]) -> str:
        mood.set(f"of {job.data}")
        await asyncio.sleep(0.001 * (job.data % 3))
        async with asyncio.timeout(5):
            await asyncio.sleep(0)
        return mood.get()

    async with queue:
        ids = await add(queue)
        async with Worker(queue, handler, concurrency=COUNT):
            found = [await queue.wait_until_finished(one) for one in ids]
    assert found == [f"of {number}" for number in range(COUNT)]


@pytest.mark.parametrize("patient", [0, 3, COUNT - 1])
async def test_a_handler_that_waits_holds_up_none_that_started_beside_it(patient: int) -> None:
    queue: Queue[int, object] = Queue("q", "memory:")
    others_ran = asyncio.Event()
    ran: set[int] = set()

    async def handler(job: JobContext[int]) -> None:
        if job.data == patient:
            await others_ran.wait()
        ran.add(job.data)
        if len(ran) == COUNT - 1:
            others_ran.set()

    async with queue:
        ids = await add(queue)
        async with Worker(queue, handler, concurrency=COUNT):
            await queue.wait_until_finished(ids[patient], timeout=10)
    assert ran == set(range(COUNT))


async def test_handlers_that_all_wait_run_at_the_same_time() -> None:
    queue: Queue[int, object] = Queue("q", "memory:")
    together = asyncio.Barrier(COUNT)

    async def handler(job: JobContext[int]) -> None:
        await together.wait()

    async with queue:
        ids = await add(queue, 2 * COUNT)
        async with Worker(queue, handler, concurrency=COUNT):
            await queue.wait_until_finished(ids[-1], timeout=10)


async def test_handlers_that_wait_no_more_share_a_task_again() -> None:
    queue: Queue[int, object] = Queue("q", "memory:")
    tasks: set[object] = set()

    async def handler(job: JobContext[int]) -> None:
        if job.data < 2 * COUNT:
            await asyncio.sleep(0.001)
        else:
            tasks.add(asyncio.current_task())

    async with queue:
        ids = await add(queue, 10 * COUNT)
        async with Worker(queue, handler, concurrency=COUNT):
            for one in ids:
                await queue.wait_until_finished(one)
    assert len(tasks) < 4 * COUNT


async def test_a_task_that_was_cancelled_is_no_other_jobs_task() -> None:
    queue: Queue[int, object] = Queue("q", "memory:")

    async def handler(job: JobContext[int]) -> int:
        if job.data % 2 == 0:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()  # and goes on, without another wait
        else:
            await asyncio.sleep(0)
        return job.data

    async with queue:
        ids = await add(queue)
        async with Worker(queue, handler, concurrency=COUNT):
            for number, one in enumerate(ids):
                assert await queue.wait_until_finished(one) == number


async def test_a_cancelled_job_takes_none_of_those_beside_it_along() -> None:
    queue: Queue[int, object] = Queue("q", "memory:")
    waiting = asyncio.Event()
    go_on = asyncio.Event()

    async def handler(job: JobContext[int]) -> int:
        if job.data == 1:
            waiting.set()
        if job.data % 2:
            await go_on.wait()
        return job.data

    async with queue:
        ids = await add(queue)
        async with Worker(queue, handler, concurrency=COUNT):
            await waiting.wait()
            await queue.cancel(ids[1], running=True)
            with pytest.raises(JobCancelled):
                await queue.wait_until_finished(ids[1])
            go_on.set()
            for number, one in enumerate(ids):
                if number != 1:
                    assert await queue.wait_until_finished(one) == number
