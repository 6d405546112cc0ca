"""Change jobs that do not run."""

from __future__ import annotations

from tests.bullmq.scenarios.registry import scenario
from tests.bullmq.sides import Side


@scenario
async def a_delayed_job_is_promoted(q: Side) -> None:
    await q.add("a", delay_ms=60_000)
    await q.add("b")
    await q.promote("a")


@scenario
async def a_delayed_job_with_a_priority_is_promoted(q: Side) -> None:
    await q.add("a", delay_ms=60_000, priority=3)
    await q.promote("a")


@scenario
async def a_delayed_job_of_a_paused_queue_is_promoted(q: Side) -> None:
    await q.add("a", delay_ms=60_000)
    await q.pause()
    await q.promote("a")


@scenario
async def a_failed_job_is_retried(q: Side) -> None:
    await q.add("a")
    await q.claim()
    await q.fail("a")
    await q.retry("a")


@scenario
async def a_failed_job_is_retried_and_completes(q: Side) -> None:
    await q.add("a")
    await q.claim()
    await q.fail("a")
    await q.retry("a")
    await q.claim()
    await q.complete("a")


@scenario
async def a_completed_job_is_retried(q: Side) -> None:
    await q.add("a")
    await q.claim()
    await q.complete("a", "done")
    await q.retry("a", "completed")


@scenario
async def a_failed_job_of_a_paused_queue_is_retried(q: Side) -> None:
    await q.add("a")
    await q.claim()
    await q.fail("a")
    await q.pause()
    await q.retry("a")


@scenario
async def a_waiting_job_gets_a_priority(q: Side) -> None:
    await q.add("a")
    await q.add("b")
    await q.reprioritize("a", 7)


@scenario
async def a_prioritised_job_gets_another_priority(q: Side) -> None:
    await q.add("a", priority=2)
    await q.add("b", priority=2)
    await q.reprioritize("a", 9)


@scenario
async def a_prioritised_job_loses_its_priority(q: Side) -> None:
    await q.add("a", priority=2)
    await q.add("b", priority=2)
    await q.reprioritize("a", 0)


@scenario
async def a_delayed_job_gets_a_priority(q: Side) -> None:
    await q.add("a", delay_ms=60_000)
    await q.reprioritize("a", 4)


@scenario
async def a_waiting_job_of_a_paused_queue_gets_a_priority(q: Side) -> None:
    await q.add("a")
    await q.pause()
    await q.reprioritize("a", 4)


@scenario
async def a_delayed_job_gets_another_time(q: Side) -> None:
    await q.add("a", delay_ms=60_000)
    await q.add("b", delay_ms=120_000)
    await q.reschedule("a", 600_000)


@scenario
async def a_delayed_job_gets_an_earlier_time(q: Side) -> None:
    await q.add("a", delay_ms=600_000)
    await q.reschedule("a", 60_000)


@scenario
async def a_waiting_job_gets_other_data(q: Side) -> None:
    await q.add("a", {"n": 1})
    await q.update("a", {"n": 2, "text": "ñ"})
