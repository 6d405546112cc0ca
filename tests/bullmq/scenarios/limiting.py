"""Bound workers and queues."""

from __future__ import annotations

from tests.bullmq.scenarios.registry import scenario
from tests.bullmq.sides import New, Side


@scenario
async def a_worker_with_a_limit_takes_one(q: Side) -> None:
    await q.add_many([New("a"), New("b")])
    assert await q.claim(rate=(2, 60_000)) == ["a"]


@scenario
async def a_worker_reaches_its_limit(q: Side) -> None:
    await q.add_many([New("a"), New("b"), New("c")])
    assert await q.claim(3, rate=(2, 60_000)) == ["a", "b"]


@scenario
async def a_worker_at_its_limit_completes(q: Side) -> None:
    await q.add_many([New("a"), New("b")])
    await q.claim(rate=(1, 60_000))
    assert await q.complete("a", fetch=True) == []


@scenario
async def a_queue_with_a_limit(q: Side) -> None:
    await q.limit(rate=(1, 60_000))
    await q.add_many([New("a"), New("b")])
    assert await q.claim(2) == ["a"]


@scenario
async def a_limit_is_lifted(q: Side) -> None:
    await q.limit(rate=(1, 60_000), concurrency=3)
    await q.limit()


@scenario
async def a_queue_with_a_bound_for_running_jobs(q: Side) -> None:
    await q.limit(concurrency=2)
    await q.add_many([New("a"), New("b"), New("c")])
    assert await q.claim(3) == ["a", "b"]


@scenario
async def a_full_queue_completes_a_job(q: Side) -> None:
    await q.limit(concurrency=1)
    await q.add_many([New("a"), New("b")])
    await q.claim()
    assert await q.complete("a", fetch=True) == ["b"]


@scenario
async def a_full_queue_completes_a_job_without_another(q: Side) -> None:
    await q.limit(concurrency=1)
    await q.add_many([New("a"), New("b")])
    await q.claim()
    await q.complete("a")
