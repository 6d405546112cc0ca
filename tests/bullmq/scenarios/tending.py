"""Delete jobs and queues."""

from __future__ import annotations

from tests.bullmq.scenarios.registry import scenario
from tests.bullmq.sides import New, Side


async def _one_in_each_state(q: Side) -> None:
    await q.add("is-completed")
    await q.claim()
    await q.complete("is-completed")
    await q.add("is-failed")
    await q.claim()
    await q.fail("is-failed")
    await q.add("is-active")
    await q.claim()
    await q.add("is-waiting")
    await q.add("is-delayed", delay_ms=60_000)
    await q.add("is-prioritized", priority=3)


@scenario
async def one_job_in_each_state(q: Side) -> None:
    await _one_in_each_state(q)


@scenario
async def a_queue_is_drained(q: Side) -> None:
    await _one_in_each_state(q)
    await q.drain()


@scenario
async def a_queue_is_drained_with_its_delayed_jobs(q: Side) -> None:
    await _one_in_each_state(q)
    await q.drain(delayed=True)


@scenario
async def a_paused_queue_is_drained(q: Side) -> None:
    await q.add_many([New("a"), New("b")])
    await q.pause()
    await q.drain()


@scenario
async def completed_jobs_are_cleaned(q: Side) -> None:
    await _one_in_each_state(q)
    await q.clean("completed")


@scenario
async def failed_jobs_are_cleaned(q: Side) -> None:
    await _one_in_each_state(q)
    await q.clean("failed")


@scenario
async def delayed_jobs_are_cleaned(q: Side) -> None:
    await _one_in_each_state(q)
    await q.clean("delayed")


@scenario
async def prioritised_jobs_are_cleaned(q: Side) -> None:
    await _one_in_each_state(q)
    await q.clean("prioritized")


@scenario
async def waiting_jobs_are_cleaned(q: Side) -> None:
    await _one_in_each_state(q)
    await q.clean("waiting")


@scenario
async def some_completed_jobs_are_cleaned(q: Side) -> None:
    for job_id in "abc":
        await q.add(job_id)
        await q.claim()
        await q.complete(job_id)
    await q.clean("completed", limit=2)


@scenario
async def an_empty_queue_is_obliterated(q: Side) -> None:
    await q.add("a")
    await q.remove("a")
    await q.obliterate()


@scenario
async def a_queue_without_running_jobs_is_obliterated(q: Side) -> None:
    await q.add("a")
    await q.claim()
    await q.log("a", "a line")
    await q.complete("a")
    await q.add_many([New("b"), New("c", terms={"delay_ms": 60_000})])
    await q.add("d", priority=2)
    await q.obliterate()


@scenario
async def a_queue_with_running_jobs_is_obliterated_by_force(q: Side) -> None:
    await _one_in_each_state(q)
    await q.obliterate(force=True)


@scenario
async def a_job_of_each_state_is_removed(q: Side) -> None:
    await _one_in_each_state(q)
    for state in ("completed", "failed", "waiting", "delayed", "prioritized"):
        await q.remove(f"is-{state}")


@scenario
async def a_waiting_job_of_a_paused_queue_is_removed(q: Side) -> None:
    await q.add_many([New("a"), New("b")])
    await q.pause()
    await q.remove("a")
