"""What ended lies apart from what has not, and costs those that run nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from tests.resp.conftest import until
from tests.resp.proxy import Proxy
from tests.servers import Server, valkey_binary
from toril.drafts import Drafts
from toril.ids import ulid
from toril.job import DEFAULT_TERMS, JobSpec, Keep, State, Terms
from toril.outcome import Completed, Failed, Failure, Outcome, Retried
from toril.storage.protocol import Claim, Claimed, Removal
from toril.storage.redis import RedisStorage

SIZES = (0, 1, 2, 193, 194, 195, 255, 256, 450, 1023, 1024, 1025, 70_000)
"""Of results: beside the record up to 1,024 bytes, a byte of their size may be any."""


async def fields(storage: RedisStorage, name: str) -> set[str]:
    """The ids that a hash of the queue holds."""
    key = f"{storage._base('q')}{name}"
    return {one.decode() for one in cast("list[bytes]", await storage._call(key, "HKEYS", key))}


async def claim(storage: RedisStorage, count: int = 100) -> Sequence[Claimed]:
    wish = Claim(token=ulid(), worker_id="w", count=count, lease_ms=30_000)
    return (await storage.claim("q", wish)).jobs


async def settle(storage: RedisStorage, outcomes: Sequence[Outcome], *, alone: bool) -> None:
    for some in [[one] for one in outcomes] if alone else [outcomes]:
        for answer in (await storage.settle("q", some)).answers:
            assert answer.kind == "done"


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "together"])
async def test_results_of_any_size_come_back_from_every_place(
    storage: RedisStorage, alone: bool
) -> None:
    results = {f"j{size}": b"r" * size for size in SIZES}
    await storage.enqueue("q", [JobSpec(id=job_id, reply=True, origin="o") for job_id in results])
    jobs = await claim(storage)
    assert await fields(storage, "jobs") == set(results)
    outcomes = [Completed(lease=job.lease, result=results[job.spec.id]) for job in jobs]
    await settle(storage, outcomes, alone=alone)
    assert await fields(storage, "jobs") == set()
    assert await fields(storage, "ended") == set(results)
    assert await fields(storage, "results") == {"j0", "j1025", "j70000"}
    records = await storage.get("q", list(results))
    assert [one.result for one in records if one is not None] == list(results.values())
    endings = await storage.finished("q", list(results), 0)
    assert {one.id: one.result for one in endings} == results
    # To keep them for longer changes the record, and nothing behind it.
    assert all(await storage.keep("q", list(results), 60_000))
    records = await storage.get("q", list(results))
    assert [one.result for one in records if one is not None] == list(results.values())
    assert set(await storage.remove("q", list(results))) == {Removal.REMOVED}
    endings = await storage.finished("q", list(results), 0)
    assert {one.id: one.result for one in endings} == results, "kept for those who wait"


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "together"])
@pytest.mark.parametrize("size", [1, 5_000])
async def test_the_failure_of_a_job_tried_again_does_not_outlive_its_success(
    storage: RedisStorage, alone: bool, size: int
) -> None:
    ids = {"a", "b", "c"}
    await storage.enqueue("q", [JobSpec(id=job_id) for job_id in sorted(ids)])
    trouble = Failure(kind="ValueError", reason="no")
    tried = [Retried(lease=job.lease, failure=trouble, delay_ms=0) for job in await claim(storage)]
    await settle(storage, tried, alone=alone)
    assert await fields(storage, "results") == ids
    (record, *_) = await storage.get("q", ["a"])
    assert record is not None
    assert record.failure == trouble
    outcomes = [
        Completed(lease=job.lease, result=job.spec.id.encode() * size)
        for job in await claim(storage)
    ]
    await settle(storage, outcomes, alone=alone)
    assert await fields(storage, "results") == (ids if size > 1024 else set())
    records = await storage.get("q", sorted(ids))
    assert [one.result for one in records if one is not None] == [
        job_id.encode() * size for job_id in sorted(ids)
    ]


@pytest.mark.parametrize("reason", ["no", "no " * 1000], ids=["short", "long"])
async def test_a_failed_job_tells_why_and_starts_over(storage: RedisStorage, reason: str) -> None:
    await storage.enqueue("q", [JobSpec(id="a", payload=b"1")])
    (job,) = await claim(storage)
    failure = Failure(kind="ValueError", reason=reason)
    await settle(storage, [Failed(lease=job.lease, failure=failure, exhausted=True)], alone=False)
    (record,) = await storage.get("q", ["a"])
    assert record is not None
    assert record.failure == failure
    assert await storage.revive("q", ["a"], reset_attempts=True) == [True]
    assert (await fields(storage, "jobs"), await fields(storage, "ended")) == ({"a"}, set())
    assert await fields(storage, "results") == set()
    (job,) = await claim(storage)
    assert job.spec.payload == b"1"
    await settle(storage, [Completed(lease=job.lease, result=b"2")], alone=True)
    (record,) = await storage.get("q", ["a"])
    assert record is not None
    assert (record.state, record.result, record.failure) == (State.COMPLETED, b"2", None)


async def test_an_elder_that_makes_room_leaves_nothing(storage: RedisStorage) -> None:
    terms = Terms(keep_completed=Keep(count=1))
    for job_id, size in (("a", 1), ("b", 5_000), ("c", 1)):
        await storage.enqueue("q", [JobSpec(id=job_id, terms=terms)])
        (job,) = await claim(storage)
        await settle(storage, [Completed(lease=job.lease, result=b"r" * size)], alone=False)
    for name, left in (("jobs", set()), ("ended", {"c"}), ("specs", {"c"}), ("results", set())):
        assert await fields(storage, name) == left, name


@pytest.mark.parametrize("count", [15, 16, 250])
async def test_a_line_that_begins_anew_is_a_table_at_once(
    storage: RedisStorage, count: int
) -> None:
    ids = [ulid() for _ in range(count)]
    await storage.enqueue("q", drafts(ids))
    key = f"{storage._base('q')}jobs"
    assert await fields(storage, "jobs") == set(ids)
    form = await storage._call(key, "OBJECT", "ENCODING", key)
    assert form == (b"listpack" if count < 16 else b"hashtable")


async def test_an_id_that_comes_twice_in_a_new_line_is_one_job(storage: RedisStorage) -> None:
    ids = [f"j{number % 20}" for number in range(40)]
    receipts = await storage.enqueue("q", [JobSpec(id=job_id) for job_id in ids])
    assert [one.created for one in receipts] == [True] * 20 + [False] * 20
    assert await fields(storage, "jobs") == set(ids)


def drafts(ids: Sequence[str]) -> Drafts:
    """Jobs whose ids were made for them, as `add_many` hands them in."""
    count = len(ids)
    return Drafts(
        ids, ["job"] * count, [b"1"] * count, [DEFAULT_TERMS] * count, ["o"] * count, [True] * count
    )


@pytest.mark.parametrize("count", [1, 3])
async def test_a_repeated_hand_in_of_new_ids_finds_jobs_that_ended_meanwhile(count: int) -> None:
    ids = [ulid() for _ in range(count)]
    with Server(valkey_binary()) as server:
        async with Proxy(server.port) as proxy:
            near, far = RedisStorage(server.url), RedisStorage(f"redis://127.0.0.1:{proxy.port}")
            await near.open()
            await far.open()
            await far.enqueue("q", [JobSpec(id="warm")])
            proxy.switch("late_replies", delay_s=60)
            handing_in = asyncio.create_task(far.enqueue("q", drafts(ids)))

            async def arrived() -> bool:
                return (await near.counts("q")).waiting > count

            await until(arrived)
            jobs = await claim(near)
            done = [Completed(lease=job.lease, result=b"1") for job in jobs]
            await settle(near, done, alone=False)
            proxy.switch("pass_")
            proxy.abort_all()
            receipts = await handing_in
            assert [(one.created, one.state) for one in receipts] == [
                (True, State.COMPLETED)
            ] * count
            counts = await near.counts("q")
            assert (counts.waiting, counts.completed) == (0, count + 1)
            await far.close()
            await near.close()
