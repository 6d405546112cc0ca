"""Ten thousand jobs whose handlers do everything wrong; the worker lives."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest

from toril import JobContext, MemoryStorage, Queue, Reject, State, Worker

Ctx = JobContext[object]


class Unspeakable(Exception):
    """Raises when anybody wants to read it."""

    def __str__(self) -> str:
        raise RuntimeError("no text for you")

    __repr__ = __str__


class Rude(BaseException):
    """Not an Exception."""


KINDS = (
    "fine",
    "raise",
    "base",
    "exit",
    "interrupt",
    "generator",
    "cancelled",
    "unspeakable",
    "group",
    "hang",
    "object",
    "nan",
    "surrogate",
    "deep",
    "reject",
    "stop-iteration",
)


def deep() -> object:
    value: object = 1
    for _ in range(100):
        value = [value]
    return value


async def handler(job: Ctx) -> object:
    match str(job.data):
        case "raise":
            raise ValueError("boom \x1b[31m\n\ud800")
        case "base":
            raise Rude
        case "exit":
            raise SystemExit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "generator":
            raise GeneratorExit
        case "cancelled":
            raise asyncio.CancelledError
        case "unspeakable":
            raise Unspeakable
        case "group":
            raise ExceptionGroup("many", [ValueError(1), Unspeakable()])
        case "hang":
            await asyncio.Event().wait()
        case "object":
            return object()
        case "nan":
            return float("nan")
        case "surrogate":
            return "\ud800"
        case "deep":
            return deep()
        case "reject":
            raise Reject("no thanks")
        case "stop-iteration":
            raise StopIteration("odd")
    return job.data


@pytest.mark.parametrize("jobs", [10_000])
async def test_hostile_handlers_end_in_the_right_states_and_the_worker_lives(jobs: int) -> None:
    before = asyncio.all_tasks()
    threads = threading.active_count()
    queue: Queue[object, object] = Queue("hostile", MemoryStorage())
    for number in range(jobs):
        kind = KINDS[number % len(KINDS)]
        timeout = 0.01 if kind == "hang" else None
        await queue.enqueue(f"{kind}-{number}", kind, attempts=2, backoff=None, timeout=timeout)
    async with Worker(queue, handler, concurrency=200) as worker:
        assert await queue.enqueue_and_wait("last", "fine") == "fine"
        finished = asyncio.Event()
        worker.on("completed")(lambda *_: finished.set())
        while (await queue.get_job_counts()).total != (await done(queue)):
            finished.clear()
            await queue.enqueue(f"tick-{await done(queue)}", "fine")
            await finished.wait()
        assert await queue.enqueue_and_wait("still-alive", "fine") == "fine"
    await check(queue, jobs)
    await queue.stop()
    assert asyncio.all_tasks() == before
    assert threading.active_count() == threads


async def done(queue: Queue[object, object]) -> int:
    counts = await queue.get_job_counts()
    return counts.completed + counts.failed


async def check(queue: Queue[object, object], jobs: int) -> None:
    states: Counter[tuple[str, State, int]] = Counter()
    for number in range(jobs):
        kind = KINDS[number % len(KINDS)]
        job = await queue.get_job(f"{kind}-{number}")
        assert job is not None
        states[kind, job.state, job.attempts_made] += 1
    once = {"object", "nan", "surrogate", "deep", "reject"}
    for (kind, state, attempts), count in states.items():
        expected = (State.COMPLETED, 1) if kind == "fine" else (State.FAILED, 2)
        if kind in once:
            expected = (State.FAILED, 1)
        assert (state, attempts) == expected, f"{count} jobs of kind {kind!r}"
    assert sum(states.values()) == jobs


async def test_plain_handlers_that_misbehave_end_in_the_right_states() -> None:
    def plain(job: Ctx) -> object:
        match str(job.data):
            case "exit":
                raise SystemExit(3)
            case "unspeakable":
                raise Unspeakable
            case "stop-iteration":
                raise StopIteration("odd")
        return job.data

    queue: Queue[object, object] = Queue("plain", MemoryStorage())
    kinds = ("fine", "exit", "unspeakable", "stop-iteration")
    for number in range(200):
        kind = kinds[number % 4]
        await queue.enqueue(f"{kind}-{number}", kind, attempts=1)
    async with Worker(queue, plain, concurrency=4):
        assert await queue.enqueue_and_wait("end", "fine") == "fine"
    counts = await queue.get_job_counts()
    assert (counts.completed, counts.failed) == (51, 150)
    await queue.stop()
