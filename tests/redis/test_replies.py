"""Word of an ending reaches the caller it is meant for."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.servers import Server, valkey_binary
from toril.job import JobSpec
from toril.outcome import Completed, Failed, Failure
from toril.storage.protocol import Claim, EndingKind
from toril.storage.redis import RedisStorage


@pytest.fixture
async def storage() -> AsyncIterator[RedisStorage]:
    with Server(valkey_binary()) as server:
        storage = RedisStorage(server.url)
        await storage.open()
        yield storage
        await storage.close()


async def take(storage: RedisStorage, token: str) -> Claim:
    return Claim(token=token, worker_id="w", count=1, lease_ms=30_000)


async def test_word_of_an_earlier_job_of_the_id_is_not_taken_for_the_new_one(
    storage: RedisStorage,
) -> None:
    first = JobSpec(id="a", origin="one", reply=True)
    await storage.enqueue("q", [first])
    (job,) = (await storage.claim("q", await take(storage, "t1"))).jobs
    # Nobody listens any more when it fails, so the word of it stays in the list.
    mailbox = storage._mailbox("q")
    mailbox.forgive("a")
    await mailbox.close()
    await storage.settle("q", [Failed(lease=job.lease, failure=Failure(kind="E", reason="r"))])

    second = JobSpec(id="a", origin="two", reply=True, requeue_failed=True)
    await storage.enqueue("q", [second])
    assert list(await storage.finished("q", ["a"], 300)) == []
    (job,) = (await storage.claim("q", await take(storage, "t2"))).jobs
    await storage.settle("q", [Completed(lease=job.lease, result=b"2")])
    (ending,) = await storage.finished("q", ["a"], 5_000)
    assert (ending.kind, ending.result) == (EndingKind.COMPLETED, b"2")


async def test_an_ending_that_comes_before_it_is_waited_for_is_not_lost(
    storage: RedisStorage,
) -> None:
    await storage.enqueue("q", [JobSpec(id="a", origin="one", reply=True)])
    (job,) = (await storage.claim("q", await take(storage, "t1"))).jobs
    await storage.settle("q", [Completed(lease=job.lease, result=b"1")])
    (ending,) = await storage.finished("q", ["a"], 5_000)
    assert ending.result == b"1"


async def test_promises_that_nobody_collects_do_not_pile_up(storage: RedisStorage) -> None:
    for first in range(0, 6_000, 1_000):
        ids = (f"j{number}" for number in range(first, first + 1_000))
        await storage.enqueue("q", [JobSpec(id=one, origin=one, reply=True) for one in ids])
    mailbox = storage._mailbox("q")
    assert len(mailbox._promised) == 4096
    assert len(mailbox._origins) == 4096
