"""Who has just handed a job in is told of its end; whatever is in doubt has to be asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.servers import Server, valkey_binary
from toril.ids import token, ulid
from toril.job import JobSpec
from toril.outcome import Completed, Failed, Failure
from toril.storage import open_storage
from toril.storage.bullmq import BullmqStorage
from toril.storage.protocol import Claim, Claimed, Ending, EndingKind
from toril.storage.redis import RedisStorage

Hearing = RedisStorage | BullmqStorage


@pytest.fixture(params=["", "bullmq+"], ids=["lean", "wire"])
async def storage(request: pytest.FixtureRequest) -> AsyncIterator[Hearing]:
    with Server(valkey_binary()) as server:
        storage = open_storage(request.param + server.url)
        assert isinstance(storage, Hearing)
        await storage.open()
        yield storage
        await storage.close()


class Ear:
    """Hears of one job, and counts how often it is told."""

    def __init__(self, storage: Hearing, job_id: str) -> None:
        self.told: asyncio.Queue[Ending | None] = asyncio.Queue()
        self.open = storage.hear("q", job_id, self.told.put_nowait)

    async def next(self) -> Ending | None:
        return await asyncio.wait_for(self.told.get(), 5)


async def call(storage: Hearing, *ids: str) -> None:
    specs = [JobSpec(id=one, payload=b"1", origin=ulid(), reply=True) for one in ids]
    await storage.enqueue("q", specs)


async def take(storage: Hearing, count: int = 1) -> list[Claimed]:
    claim = Claim(token=token(), worker_id="w", count=count, lease_ms=30_000)
    return list((await storage.claim("q", claim)).jobs)


async def complete(storage: Hearing, job: Claimed, result: bytes) -> None:
    await storage.settle("q", [Completed(lease=job.lease, result=result)])


async def test_the_result_is_told_once(storage: Hearing) -> None:
    await call(storage, "a")
    ear = Ear(storage, "a")
    assert ear.open
    (job,) = await take(storage)
    await complete(storage, job, b"5")
    assert await ear.next() == Ending(id="a", kind=EndingKind.COMPLETED, result=b"5")
    await asyncio.sleep(1.2)  # longer than a storage trusts that it will hear of an end by itself
    assert ear.told.empty()


async def test_jobs_handed_in_together_are_all_heard_of(storage: Hearing) -> None:
    ids = [f"job-{number}" for number in range(6)]
    await asyncio.gather(*(call(storage, one) for one in ids))
    ears = {one: Ear(storage, one) for one in ids}
    assert all(ear.open for ear in ears.values())
    for job in await take(storage, 6):
        await complete(storage, job, job.spec.id[-1].encode())
    for one, ear in ears.items():
        assert await ear.next() == Ending(
            id=one, kind=EndingKind.COMPLETED, result=one[-1].encode()
        )


async def test_a_failure_is_told_or_has_to_be_asked_for(storage: Hearing) -> None:
    await call(storage, "a")
    ear = Ear(storage, "a")
    (job,) = await take(storage)
    await storage.settle("q", [Failed(lease=job.lease, failure=Failure(kind="E", reason="no"))])
    ending = await ear.next()
    if ending is None:
        (ending,) = await storage.finished("q", ["a"], 1_000)
    assert ending.kind is EndingKind.FAILED


async def test_a_job_of_somebody_else_has_to_be_asked_for(storage: Hearing) -> None:
    await storage.enqueue("q", [JobSpec(id="a", payload=b"1", origin="o")])
    assert not Ear(storage, "a").open
    await call(storage, "a")
    assert not Ear(storage, "a").open, "it was there already, and may have ended"


async def test_an_id_that_is_handed_in_again_makes_the_first_ask(storage: Hearing) -> None:
    await call(storage, "a")
    ear = Ear(storage, "a")
    await call(storage, "a")
    assert await ear.next() is None


async def test_after_a_silence_it_has_to_be_asked_for(storage: Hearing) -> None:
    await call(storage, "a")
    ear = Ear(storage, "a")
    assert await ear.next() is None
    (job,) = await take(storage)
    await complete(storage, job, b"5")
    (ending,) = await storage.finished("q", ["a"], 1_000)
    assert ending.result == b"5"


async def test_closing_leaves_nobody_behind(storage: Hearing) -> None:
    await call(storage, "a")
    ear = Ear(storage, "a")
    await storage.close()
    assert await ear.next() is None
    await storage.open()
