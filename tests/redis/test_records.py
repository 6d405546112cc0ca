"""Records and events put together from bytes are those made from tables."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.servers import Server, valkey_binary
from toril.event import Cursor
from toril.job import JobSpec, Keep, State, Terms
from toril.outcome import Completed, Released
from toril.storage.protocol import Claim
from toril.storage.redis import RedisStorage

TERMS = {
    "plain": Terms(),
    "kept for an hour": Terms(result_ttl_ms=3_600_000),
    "a record that ends in false": Terms(keep_completed=Keep(count=5)),
    "prioritized": Terms(priority=3),
}
NAMES = ("job", "e" * 31, "f" * 32, "n" * 255, "ü" * 15, "ü" * 16)
ORIGINS = ("", "o", "ü", "o" * 31, "o" * 32)


@pytest.fixture
async def storage() -> AsyncIterator[RedisStorage]:
    with Server(valkey_binary()) as server:
        storage = RedisStorage(server.url)
        await storage.open()
        yield storage
        await storage.close()


def jobs_of_all_sizes(terms: Terms) -> list[JobSpec]:
    return [
        JobSpec(id=f"{number}-{'i' * number}", name=name, origin=origin, terms=terms, reply=reply)
        for number, (name, origin, reply) in enumerate(
            (name, origin, reply) for name in NAMES for origin in ORIGINS for reply in (False, True)
        )
    ]


@pytest.mark.parametrize("terms", TERMS.values(), ids=TERMS)
async def test_jobs_of_all_sizes_live_their_lives(storage: RedisStorage, terms: Terms) -> None:
    specs = jobs_of_all_sizes(terms)
    names = {spec.id: spec.name for spec in specs}
    await storage.enqueue("q", specs)
    # The second time around their records hold how the first attempt ended.
    for token, ending in (("t1", "released"), ("t2", "completed")):
        batch = await storage.claim(
            "q", Claim(token=token, worker_id="w", count=len(specs), lease_ms=30_000)
        )
        assert {job.spec.id: job.spec.name for job in batch.jobs} == names
        await storage.settle(
            "q",
            [
                Released(lease=job.lease)
                if ending == "released"
                else Completed(lease=job.lease, result=b"1")
                for job in batch.jobs
            ],
        )
    told = await storage.events("q", Cursor(0), limit=10_000)
    line = "prioritized" if terms.priority else "waiting"
    for spec in specs:
        mine = [event for event in told if event.job_id == spec.id]
        assert [event.kind for event in mine] == [
            *("added", "waiting", "active", "waiting", "active", "completed")
        ]
        assert {event.job_name for event in mine} == {spec.name}
        assert [event.prev for event in mine[2:]] == [line, "active", line, "active"]
    kept = terms.keep_completed.count or len(specs)
    records = [one for one in await storage.get("q", list(names)) if one is not None]
    assert len(records) == kept
    for record in records:
        assert record.state is State.COMPLETED
        assert (record.attempts_made, record.attempts_started) == (1, 2)
        assert record.spec.name == names[record.spec.id]
        assert record.worker_id == "w"
