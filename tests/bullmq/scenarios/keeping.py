"""Keep finished jobs by number and by age."""

from __future__ import annotations

from tests.bullmq.scenarios.registry import scenario
from tests.bullmq.sides import Side
from toril.job import Keep


async def _complete(q: Side, *job_ids: str, keep: Keep) -> None:
    for job_id in job_ids:
        await q.add(job_id, keep_completed=keep, keep_failed=keep)
        await q.claim()
        await q.complete(job_id)


async def _fail(q: Side, *job_ids: str, keep: Keep) -> None:
    for job_id in job_ids:
        await q.add(job_id, keep_completed=keep, keep_failed=keep)
        await q.claim()
        await q.fail(job_id)


@scenario
async def a_completed_job_that_is_not_kept(q: Side) -> None:
    await _complete(q, "a", keep=Keep(count=0))


@scenario
async def a_failed_job_that_is_not_kept(q: Side) -> None:
    await _fail(q, "a", keep=Keep(count=0))


@scenario
async def a_job_with_logs_that_is_not_kept(q: Side) -> None:
    await q.add("a", keep_completed=Keep(count=0))
    await q.claim()
    await q.log("a", "a line")
    await q.complete("a")


@scenario
async def two_completed_jobs_are_kept(q: Side) -> None:
    await _complete(q, "a", "b", "c", keep=Keep(count=2))


@scenario
async def two_failed_jobs_are_kept(q: Side) -> None:
    await _fail(q, "a", "b", "c", keep=Keep(count=2))


@scenario
async def an_old_completed_job_goes(q: Side) -> None:
    await _complete(q, "a", keep=Keep(age=60))
    q.lab.age("completed", "a")
    await _complete(q, "b", keep=Keep(age=60))


@scenario
async def an_old_failed_job_goes(q: Side) -> None:
    await _fail(q, "a", keep=Keep(age=60))
    q.lab.age("failed", "a")
    await _fail(q, "b", keep=Keep(age=60))


@scenario
async def age_and_number_together(q: Side) -> None:
    both = Keep(count=2, age=60)
    await _complete(q, "a", "b", keep=both)
    q.lab.age("completed", "a")
    await _complete(q, "c", "d", keep=both)


@scenario
async def a_job_that_is_not_kept_and_the_next_in_hand(q: Side) -> None:
    await q.add("a", keep_completed=Keep(count=0))
    await q.add("b")
    await q.claim()
    assert await q.complete("a", fetch=True) == ["b"]
