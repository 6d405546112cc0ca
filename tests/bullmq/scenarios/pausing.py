"""Pause and resume in each state."""

from __future__ import annotations

from tests.bullmq.scenarios.registry import scenario
from tests.bullmq.sides import Side


@scenario
async def an_empty_queue_is_paused(q: Side) -> None:
    await q.pause()


@scenario
async def an_empty_queue_is_paused_and_resumed(q: Side) -> None:
    await q.pause()
    await q.resume()


@scenario
async def waiting_jobs_are_paused(q: Side) -> None:
    for job_id in "abc":
        await q.add(job_id)
    await q.pause()
    assert await q.claim() == []


@scenario
async def waiting_jobs_are_paused_and_resumed(q: Side) -> None:
    for job_id in "abc":
        await q.add(job_id)
    await q.pause()
    await q.resume()


@scenario
async def jobs_added_while_paused_are_resumed(q: Side) -> None:
    await q.add("a")
    await q.pause()
    await q.add("b")
    await q.resume()
    assert await q.claim() == ["a"]


@scenario
async def prioritised_and_delayed_jobs_are_paused(q: Side) -> None:
    await q.add("a", priority=1)
    await q.add("b", delay_ms=60_000)
    await q.pause()


@scenario
async def prioritised_jobs_are_paused_and_resumed(q: Side) -> None:
    await q.add("a", priority=1)
    await q.pause()
    await q.resume()


@scenario
async def delayed_jobs_are_paused_and_resumed(q: Side) -> None:
    await q.add("a", delay_ms=60_000)
    await q.pause()
    await q.resume()


@scenario
async def a_running_job_completes_while_paused(q: Side) -> None:
    await q.add("a")
    await q.add("b")
    await q.claim()
    await q.pause()
    assert await q.complete("a", fetch=True) == []


@scenario
async def a_paused_queue_is_paused_again(q: Side) -> None:
    await q.add("a")
    await q.pause()
    await q.pause()


@scenario
async def a_running_queue_is_resumed(q: Side) -> None:
    await q.add("a")
    await q.resume()


@scenario
async def a_due_job_of_a_paused_queue(q: Side) -> None:
    await q.add("a", delay_ms=60_000)
    await q.pause()
    q.lab.fall_due("a")
    assert await q.claim() == []
