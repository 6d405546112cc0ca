"""End and fetch several jobs in one call."""

from __future__ import annotations

from tests.bullmq.scenarios.registry import scenario, scenario_in_any_order
from tests.bullmq.sides import New, Side
from toril.job import Dedup, Keep


def plain(count: int) -> list[New]:
    """Jobs whose ids sort as they are added."""
    return [New(f"job-{n:02}", {"n": n}) for n in range(count)]


@scenario
async def several_end_together(q: Side) -> None:
    await q.add_many(plain(5))
    await q.complete_many(await q.claim(3))


@scenario
async def the_last_ones_end_together(q: Side) -> None:
    await q.add_many(plain(3))
    await q.complete_many(await q.claim(3))


@scenario_in_any_order
async def several_end_and_several_follow(q: Side) -> None:
    await q.add_many(plain(12))
    taken = await q.claim(4)
    taken = await q.complete_many(taken, fetch=4)
    assert taken == ["job-04", "job-05", "job-06", "job-07"]
    await q.complete_many(taken, fetch=2)


@scenario_in_any_order
async def more_end_than_follow(q: Side) -> None:
    await q.add_many(plain(5))
    assert await q.complete_many(await q.claim(4), fetch=4) == ["job-04"]


@scenario_in_any_order
async def all_end_and_none_follows(q: Side) -> None:
    await q.add_many(plain(3))
    assert await q.complete_many(await q.claim(3), fetch=3) == []


@scenario_in_any_order
async def more_than_one_script_takes(q: Side) -> None:
    await q.add_many(plain(70))
    await q.complete_many(await q.claim(60), fetch=10)


@scenario_in_any_order
async def plain_and_other_jobs_end_together(q: Side) -> None:
    await q.add_many(
        [
            New("a"),
            New("b", terms={"dedup": Dedup("k")}),
            New("c", terms={"keep_completed": Keep(count=0)}),
            New("d", terms={"keep_completed": Keep(count=5)}),
            New("e"),
        ]
    )
    await q.complete_many(await q.claim(5), fetch=5)


@scenario_in_any_order
async def prioritised_jobs_follow_plain_ones(q: Side) -> None:
    await q.add_many([New("a"), New("b"), New("c")])
    await q.add("d", priority=2)
    await q.add("e", priority=1)
    assert await q.complete_many(await q.claim(2), fetch=3) == ["c", "e", "d"]


@scenario_in_any_order
async def several_end_in_a_paused_queue(q: Side) -> None:
    await q.add_many(plain(4))
    taken = await q.claim(2)
    await q.pause()
    assert await q.complete_many(taken, fetch=2) == []


@scenario_in_any_order
async def several_end_in_a_full_queue(q: Side) -> None:
    await q.limit(concurrency=2)
    await q.add_many(plain(5))
    assert await q.complete_many(await q.claim(3), fetch=2) == ["job-02", "job-03"]


@scenario_in_any_order
async def marked_jobs_end_together(q: Side) -> None:
    await q.add_many(plain(3))
    taken = await q.claim(2)
    await q.reap()
    await q.complete_many(taken, fetch=1)


@scenario_in_any_order
async def several_end_and_due_ones_follow(q: Side) -> None:
    await q.add_many(plain(4))
    await q.add_many([New(job_id, terms={"delay_ms": 60_000}) for job_id in "abc"])
    taken = await q.claim(3)
    q.lab.fall_due("a", "b")
    assert await q.complete_many(taken, fetch=3) == ["job-03", "a", "b"]


@scenario_in_any_order
async def several_end_and_due_ones_of_all_kinds_follow(q: Side) -> None:
    await q.add_many(plain(3))
    for job_id, priority in zip("abcd", (0, 2, 1, 0), strict=True):
        await q.add(job_id, delay_ms=60_000, priority=priority)
    taken = await q.claim(3)
    q.lab.fall_due(*"abcd")
    assert await q.complete_many(taken, fetch=4) == ["a", "d", "c", "b"]


@scenario_in_any_order
async def others_end_while_jobs_are_due(q: Side) -> None:
    await q.add_many([New("a"), New("b", terms={"dedup": Dedup("k")}), New("c")])
    await q.add_many([New(job_id, terms={"delay_ms": 60_000}) for job_id in "de"])
    taken = await q.claim(3)
    q.lab.fall_due("d", "e")
    await q.complete_many(taken, fetch=2)


@scenario_in_any_order
async def more_are_due_than_one_script_takes(q: Side) -> None:
    await q.add_many(plain(60))
    ids = [f"late-{n:02}" for n in range(60)]
    await q.add_many([New(job_id, terms={"delay_ms": 60_000}) for job_id in ids])
    taken = await q.claim(60)
    q.lab.fall_due(*ids)
    assert await q.complete_many(taken, fetch=55) == ids[:55]
