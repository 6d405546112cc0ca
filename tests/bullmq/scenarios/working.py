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
async def due_jobs_stand_behind_waiting_ones(q: Side) -> None:
    await q.add_many([New(job_id, terms={"delay_ms": 60_000}) for job_id in "abc"])
    await q.add_many([New("x"), New("y")])
    q.lab.fall_due("a", "b")
    assert await q.claim(5) == ["x", "y", "a", "b"]


@scenario
async def due_jobs_behind_a_long_line_are_put_in_it(q: Side) -> None:
    await q.add("a", delay_ms=60_000)
    await q.add_many([New("x"), New("y"), New("z")])
    q.lab.fall_due("a")
    assert await q.claim(2) == ["x", "y"]


@scenario
async def due_jobs_with_and_without_a_priority(q: Side) -> None:
    for job_id, priority in zip("abcdef", (2, 0, 1, 2, 0, 2_000_000), strict=True):
        await q.add(job_id, delay_ms=60_000, priority=priority)
    await q.add("p", priority=2)
    q.lab.fall_due(*"abcdef")
    assert await q.claim(5) == ["b", "e", "c", "p", "a"]


@scenario
async def more_jobs_are_due_than_are_put_in_line_at_once(q: Side) -> None:
    ids = [f"job-{n:04}" for n in range(1_003)]
    await q.add_many([New(job_id, terms={"delay_ms": 60_000}) for job_id in ids])
    q.lab.fall_due(*ids)
    assert await q.claim(1) == ids[:1]
    await q.add("x")
    assert await q.claim(2) == ids[1:3]


@scenario
async def a_lost_job_falls_due(q: Side) -> None:
    await q.add_many([New(job_id, terms={"delay_ms": 60_000}) for job_id in "ab"])
    q.lab.fall_due("a", "b")
    q.lab.lose_record("a")
    await q.add("x")
    assert await q.claim(1) == ["x"]


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
async def a_completed_job_and_others_due_behind_the_next(q: Side) -> None:
    await q.add_many([New("a"), New("b")])
    await q.add_many([New(job_id, terms={"delay_ms": 60_000}) for job_id in "cd"])
    await q.add("e", delay_ms=60_000, priority=1)
    await q.claim()
    q.lab.fall_due("c", "d", "e")
    assert await q.complete("a", fetch=True) == ["b"]
    assert await q.complete("b", fetch=True) == ["c"]
    assert await q.complete("c", fetch=True) == ["d"]
    assert await q.complete("d", fetch=True) == ["e"]
    assert await q.complete("e", fetch=True) == []


@scenario
async def a_completed_job_leaves_due_ones_where_nothing_is_fetched(q: Side) -> None:
    await q.add("a")
    await q.add("b", delay_ms=60_000)
    await q.claim()
    q.lab.fall_due("b")
    await q.complete("a")


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
