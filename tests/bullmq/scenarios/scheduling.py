"""Go on with what Node schedules; the next iteration is made at the claim."""

from __future__ import annotations

from tests.bullmq.scenarios.registry import scenario
from tests.bullmq.sides import Side

DAY_MS = 86_400_000
YEARLY = {"pattern": "0 0 1 1 *", "tz": "Etc/UTC"}


async def _claim_due(q: Side) -> str:
    for job_id in q.lab.ids("delayed"):
        q.lab.fall_due(job_id)
    (job_id,) = await q.claim()
    return job_id


@scenario
async def a_scheduler_by_interval_goes_on(q: Side) -> None:
    template = {"name": "tick", "data": {"n": 1}, "opts": {"attempts": 2}}
    await q.lab.node.call("upsertJobScheduler", "often", {"every": DAY_MS}, template)
    await q.claim()


@scenario
async def a_scheduler_by_interval_goes_on_twice(q: Side) -> None:
    await q.lab.node.call("upsertJobScheduler", "often", {"every": DAY_MS}, {"name": "tick"})
    (first,) = await q.claim()
    await q.complete(first, 1)
    await q.complete(await _claim_due(q), 2)


@scenario
async def a_scheduler_by_pattern_goes_on(q: Side) -> None:
    template = {"name": "year", "data": {"text": "¡feliz año!"}, "opts": {"priority": 3}}
    await q.lab.node.call("upsertJobScheduler", "yearly", YEARLY, template)
    await q.complete(await _claim_due(q))


@scenario
async def a_scheduler_with_a_limit_ends(q: Side) -> None:
    repeat = {"every": DAY_MS, "limit": 2}
    await q.lab.node.call("upsertJobScheduler", "twice", repeat, {"name": "tick"})
    (first,) = await q.claim()
    await q.complete(first)
    await q.complete(await _claim_due(q))


@scenario
async def a_removed_scheduler_does_not_go_on(q: Side) -> None:
    await q.lab.node.call("upsertJobScheduler", "often", {"every": DAY_MS}, {"name": "tick"})
    (first,) = await q.claim()
    await q.lab.node.call("removeJobScheduler", "often")
    await q.complete(first)


@scenario
async def a_scheduler_goes_on_when_its_job_is_fetched(q: Side) -> None:
    await q.add("a")
    await q.lab.node.call("upsertJobScheduler", "often", {"every": DAY_MS}, {"name": "tick"})
    await q.claim()
    (second,) = await q.complete("a", fetch=True)
    await q.complete(second)


@scenario
async def a_failing_iteration_is_tried_again_without_another(q: Side) -> None:
    template = {"name": "tick", "opts": {"attempts": 2}}
    await q.lab.node.call("upsertJobScheduler", "often", {"every": DAY_MS}, template)
    (first,) = await q.claim()
    await q.fail(first)
    assert await q.claim() == [first]


@scenario
async def a_legacy_repeatable_goes_on(q: Side) -> None:
    await q.lab.node.add("old", {"n": 1}, repeat=YEARLY)
    await q.complete(await _claim_due(q))


@scenario
async def a_legacy_repeatable_by_interval_goes_on(q: Side) -> None:
    await q.lab.node.add("old", {"n": 1}, repeat={"every": DAY_MS}, attempts=3)
    await q.complete(await _claim_due(q))


@scenario
async def a_repeatable_of_the_oldest_kind_goes_on(q: Side) -> None:
    q.lab.remember_repeatable(f"old:::Etc/UTC:{YEARLY['pattern']}")
    await q.lab.node.add("old", {"n": 1, "text": "ñ"}, repeat=YEARLY, attempts=2)
    await q.complete(await _claim_due(q))


@scenario
async def an_interval_of_the_oldest_kind_goes_on(q: Side) -> None:
    q.lab.remember_repeatable(f"old::::{DAY_MS}")
    await q.lab.node.add("old", {"n": 1}, repeat={"every": DAY_MS, "limit": 5})
    await q.complete(await _claim_due(q))
