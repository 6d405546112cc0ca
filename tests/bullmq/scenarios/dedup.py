"""Let one job live per key."""

from __future__ import annotations

from tests.bullmq.scenarios.registry import scenario
from tests.bullmq.sides import New, Side
from toril.job import Dedup


@scenario
async def a_key_is_held_until_its_job_finishes(q: Side) -> None:
    await q.add("a", dedup=Dedup("k"))
    await q.add("b", dedup=Dedup("k"))
    await q.claim()
    await q.add("c", dedup=Dedup("k"))


@scenario
async def a_key_is_free_when_its_job_has_completed(q: Side) -> None:
    await q.add("a", dedup=Dedup("k"))
    await q.claim()
    await q.complete("a")
    await q.add("b", dedup=Dedup("k"))


@scenario
async def a_key_is_free_when_its_job_has_failed(q: Side) -> None:
    await q.add("a", dedup=Dedup("k"))
    await q.claim()
    await q.fail("a")
    await q.add("b", dedup=Dedup("k"))


@scenario
async def a_key_is_free_when_its_job_is_removed(q: Side) -> None:
    await q.add("a", dedup=Dedup("k"))
    await q.remove("a")


@scenario
async def a_throttle_outlives_its_job(q: Side) -> None:
    await q.add("a", dedup=Dedup("k", ttl=60))
    await q.claim()
    await q.complete("a")
    await q.add("b", dedup=Dedup("k", ttl=60))


@scenario
async def a_throttle_that_is_extended(q: Side) -> None:
    await q.add("a", dedup=Dedup("k", ttl=60))
    await q.add("b", dedup=Dedup("k", ttl=120, extend=True))


@scenario
async def a_debounce_replaces_the_delayed_job(q: Side) -> None:
    debounce = Dedup("k", ttl=60, extend=True, replace=True)
    await q.add("a", {"n": 1}, delay_ms=60_000, dedup=debounce)
    await q.add("b", {"n": 2}, delay_ms=60_000, dedup=debounce)


@scenario
async def a_replacement_leaves_a_running_job_alone(q: Side) -> None:
    await q.add("a", dedup=Dedup("k", replace=True))
    await q.claim()
    await q.add("b", delay_ms=60_000, dedup=Dedup("k", replace=True))


@scenario
async def keys_among_many_jobs(q: Side) -> None:
    await q.add_many([New(i, terms={"dedup": Dedup(k)}) for i, k in zip("abc", "kkl", strict=True)])
