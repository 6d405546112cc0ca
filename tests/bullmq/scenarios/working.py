"""Claim and complete."""

from __future__ import annotations

from tests.bullmq.scenarios.registry import scenario
from tests.bullmq.sides import New, Side


@scenario
async def a_claim_of_nothing(q: Side) -> None:
    assert await q.claim() == []


@scenario
async def one_job_in_hand(q: Side) -> None:
    await q.add("a")
    await q.add("b")
    assert await q.claim() == ["a"]


@scenario
async def a_worker_with_a_name(q: Side) -> None:
    await q.add("a")
    await q.claim(worker="mailer")
    await q.complete("a", fetch=True)


@scenario
async def several_jobs_in_hand(q: Side) -> None:
    await q.add_many([New(f"job-{n}") for n in range(5)])
    assert await q.claim(3) == ["job-0", "job-1", "job-2"]


@scenario
async def more_wanted_than_there_is(q: Side) -> None:
    await q.add_many([New("a"), New("b")])
    assert await q.claim(5) == ["a", "b"]


@scenario
async def waiting_jobs_go_before_prioritised_ones(q: Side) -> None:
    await q.add("a", priority=2)
    await q.add("b", priority=1)
    await q.add("c")
    assert await q.claim(2) == ["c", "b"]


@scenario
async def the_last_prioritised_job_is_taken(q: Side) -> None:
    await q.add("a", priority=2)
    await q.claim()
    await q.claim()


@scenario
async def a_delayed_job_falls_due(q: Side) -> None:
    await q.add("a", delay_ms=60_000)
    await q.add("b", delay_ms=120_000)
    q.lab.fall_due("a")
    assert await q.claim() == ["a"]


@scenario
async def a_delayed_job_with_a_priority_falls_due(q: Side) -> None:
    await q.add("a", delay_ms=60_000, priority=4)
    q.lab.fall_due("a")
    assert await q.claim() == ["a"]


@scenario
async def several_delayed_jobs_fall_due(q: Side) -> None:
    await q.add_many([New(job_id, terms={"delay_ms": 60_000}) for job_id in "abc"])
    for job_id in "abc":
        q.lab.fall_due(job_id)
    assert await q.claim(2) == ["a", "b"]


@scenario
async def a_completed_job(q: Side) -> None:
    await q.add("a")
    await q.claim()
    await q.complete("a", {"sent": True})


@scenario
async def a_completed_job_among_waiting_ones(q: Side) -> None:
    await q.add("a")
    await q.add("b")
    await q.claim()
    await q.complete("a", 1)


@scenario
async def a_completed_job_and_the_next_in_hand(q: Side) -> None:
    await q.add_many([New("a"), New("b"), New("c")])
    await q.claim()
    assert await q.complete("a", fetch=True) == ["b"]
    assert await q.complete("b", fetch=True) == ["c"]


@scenario
async def a_completed_job_with_nothing_next(q: Side) -> None:
    await q.add("a")
    await q.claim()
    assert await q.complete("a", fetch=True) == []


@scenario
async def a_completed_job_and_a_prioritised_one_next(q: Side) -> None:
    await q.add("a")
    await q.add("b", priority=3)
    await q.claim()
    assert await q.complete("a", fetch=True) == ["b"]


@scenario
async def a_completed_job_and_a_due_one_next(q: Side) -> None:
    await q.add("a")
    await q.add("b", delay_ms=60_000)
    await q.claim()
    q.lab.fall_due("b")
    assert await q.complete("a", fetch=True) == ["b"]


@scenario
async def several_completed_jobs(q: Side) -> None:
    await q.add_many([New(f"job-{n}") for n in range(4)])
    for job_id in await q.claim(4):
        await q.complete(job_id, job_id)


@scenario
async def a_renewed_lease(q: Side) -> None:
    await q.add("a")
    await q.claim()
    await q.renew("a")
