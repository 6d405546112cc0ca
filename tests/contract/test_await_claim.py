"""A claim left with the server runs right when there is work, and is as safe as any other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from tests.servers import Server, valkey_binary
from toril import JobContext, ManualClock, Queue
from toril.errors import StorageDenied
from toril.ids import token
from toril.job import JobSpec, State, Terms
from toril.resp.client import Client
from toril.resp.url import parse_url
from toril.storage import open_storage
from toril.storage.bullmq import BullmqStorage
from toril.storage.protocol import Batch, Claim
from toril.storage.redis import RedisStorage

LeftClaims = RedisStorage | BullmqStorage
LONG_MS = 4_000


@pytest.fixture(params=["", "bullmq+"], ids=["lean", "wire"])
async def storage(request: pytest.FixtureRequest) -> AsyncIterator[LeftClaims]:
    with Server(valkey_binary()) as server:
        storage = open_storage(request.param + server.url)
        assert isinstance(storage, LeftClaims)
        await storage.open()
        yield storage
        await storage.close()


@pytest.fixture
async def admin(storage: LeftClaims) -> AsyncIterator[Client]:
    client = Client(parse_url(storage.url.removeprefix("bullmq+")))
    await client.open()
    yield client
    await client.close()


def wish(count: int = 3) -> Claim:
    return Claim(token=token(), worker_id="w", count=count, lease_ms=30_000)


def never() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


async def add(storage: LeftClaims, *ids: str) -> None:
    for job_id in ids:
        await storage.enqueue("q", [JobSpec(id=job_id, payload=b"1", origin=f"o-{job_id}")])


async def leave(
    storage: LeftClaims, admin: Client, claim: Claim, cut: asyncio.Future[None] | None = None
) -> asyncio.Task[Batch]:
    """Leave a claim with the server; return once it is there."""
    await storage.claim("q", wish())  # nothing is left from before, and all scripts are known
    task = asyncio.create_task(storage.await_claim("q", claim, LONG_MS, cut or never()))
    for _ in range(200):
        if task.done() or b"flags=b" in await clients(admin):
            break
        await asyncio.sleep(0.01)
    return task


async def clients(admin: Client) -> bytes:
    reply = await admin.call("", "CLIENT", "LIST")
    assert isinstance(reply, bytes)
    return reply


def ids(batch: Batch) -> list[str]:
    return [job.spec.id for job in batch.jobs]


async def test_it_brings_the_job_that_comes(storage: LeftClaims, admin: Client) -> None:
    task = await leave(storage, admin, wish())
    before = time.time() * 1000
    await add(storage, "a")
    batch = await asyncio.wait_for(task, 2)
    assert ids(batch) == ["a"]
    (record,) = await storage.get("q", ["a"])
    assert record is not None
    assert record.state is State.ACTIVE
    assert record.processed_ms is not None
    assert abs(record.processed_ms - before) < 2_000, "the time is that of the start"


async def test_what_waits_already_is_brought_at_once(storage: LeftClaims) -> None:
    await add(storage, "a", "b")
    assert ids(await storage.await_claim("q", wish(1), LONG_MS, never())) == ["a"]
    assert ids(await storage.await_claim("q", wish(1), LONG_MS, never())) == ["b"]


async def test_others_hear_of_what_it_left(storage: LeftClaims, admin: Client) -> None:
    task = await leave(storage, admin, wish(1))
    await storage.enqueue("q", [JobSpec(id=one, payload=b"1") for one in ("a", "b")])
    assert ids(await task) == ["a"]
    assert ids(await storage.await_claim("q", wish(1), LONG_MS, never())) == ["b"]


async def commands(admin: Client) -> int:
    """How many commands the server has run, those of scripts included."""
    reply = await admin.call("", "INFO", "stats")
    assert isinstance(reply, bytes)
    (line,) = (one for one in reply.splitlines() if one.startswith(b"total_commands_processed"))
    return int(line.partition(b":")[2])


async def test_a_wait_in_vain_costs_the_server_three_commands(
    storage: LeftClaims, admin: Client
) -> None:
    await storage.claim("q", wish())
    await storage.await_claim("q", wish(), 20, never())
    before = await commands(admin)
    for _ in range(5):
        batch = await storage.await_claim("q", wish(), 20, never())
        assert (ids(batch), batch.limited_for_ms, batch.next_in_ms) == ([], 0, None)
    assert await commands(admin) - before - 1 <= 5 * 3


async def test_a_worker_that_waits_in_vain_stays_listed() -> None:
    with Server(valkey_binary()) as server:
        clock = ManualClock()
        storage = RedisStorage(server.url, clock=clock)
        await storage.open()

        async def listed() -> list[str]:
            await storage.await_claim("q", wish(), 20, never())
            return [one.id for one in await storage.workers("q")]

        assert await listed() == ["w"]
        await storage.leave("q", "w")
        assert await listed() == ["w"], "who left and came again"
        await storage._call("", "DEL", storage._base("q") + "workers")
        assert await listed() == [], "it is listed already, as far as it knows"
        await clock.advance(15)
        assert await listed() == ["w"]
        await storage.close()


async def test_it_ends_when_the_time_is_up(storage: LeftClaims) -> None:
    assert ids(await storage.await_claim("q", wish(), 20, never())) == []


async def test_it_ends_soon_once_it_is_cut(storage: LeftClaims, admin: Client) -> None:
    cut = never()
    task = await leave(storage, admin, wish(), cut)
    cut.set_result(None)
    assert ids(await asyncio.wait_for(task, 1)) == []
    await add(storage, "a")
    assert ids(await storage.claim("q", wish())) == ["a"]


async def test_one_that_is_cancelled_keeps_nothing(storage: LeftClaims, admin: Client) -> None:
    task = await leave(storage, admin, wish())
    await asyncio.gather(add(storage, "a"), _cancelled(task))
    found: list[str] = []
    deadline = time.monotonic() + 5
    while not found and time.monotonic() < deadline:
        found = ids(await storage.claim("q", wish()))
        await asyncio.sleep(0.02)
    assert found == ["a"]


async def _cancelled(task: asyncio.Task[Batch]) -> None:
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_server_that_forgot_its_scripts_gets_them_again(
    storage: LeftClaims, admin: Client
) -> None:
    task = await leave(storage, admin, wish())
    await admin.call("", "SCRIPT", "FLUSH")
    await add(storage, "a")
    assert ids(await asyncio.wait_for(task, 2)) == ["a"]


async def test_a_connection_that_breaks_costs_no_job(storage: LeftClaims, admin: Client) -> None:
    task = await leave(storage, admin, wish())
    for line in (await clients(admin)).decode().splitlines():
        facts = dict(part.partition("=")[::2] for part in line.split(" "))
        if facts["flags"] == "b":
            await admin.call("", "CLIENT", "KILL", "ID", facts["id"])
    await asyncio.wait_for(task, 2)
    await add(storage, "a")
    assert ids(await storage.claim("q", wish())) == ["a"]


async def test_the_same_claim_repeated_brings_the_same_job(
    storage: LeftClaims, admin: Client
) -> None:
    claim = wish(1)
    task = await leave(storage, admin, claim)
    await storage.enqueue("q", [JobSpec(id=one, payload=b"1") for one in ("a", "b")])
    assert ids(await task) == ["a"]
    assert ids(await storage.claim("q", claim)) == ["a"]


async def test_an_idle_worker_needs_no_way_to_ask_for_a_job(
    storage: LeftClaims, admin: Client
) -> None:
    async def double(job: JobContext[int]) -> int:
        return 2 * job.data

    queue = Queue[int, int]("q", storage=storage)
    queue.execute(double, concurrency=10)
    async with queue:
        for number in range(20):
            assert await queue.enqueue_and_wait(f"call-{number}", number) == 2 * number
        begun = time.monotonic()
    assert time.monotonic() - begun < 1, "an idle worker stops at once"


async def test_its_first_lease_is_short_in_case_nobody_is_there_and_soon_as_asked_for(
    storage: LeftClaims, admin: Client
) -> None:
    left_s: list[float] = []

    async def look(job: JobContext[int]) -> None:
        left_s.append(await _lease_left_s(storage, admin, job.id))
        while left_s[-1] < 30 and len(left_s) < 100:
            await asyncio.sleep(0.05)
            left_s.append(await _lease_left_s(storage, admin, job.id))

    queue = Queue[int, None]("q", storage=storage)
    queue.execute(look, concurrency=10, lease=60)
    async with queue:
        await queue.enqueue_and_wait("first", 1)
        left_s.clear()
        await queue.enqueue_and_wait("second", 2)
    assert 10 < left_s[0] <= 15
    assert left_s[-1] > 50


async def _lease_left_s(storage: LeftClaims, admin: Client, job_id: str) -> float:
    if isinstance(storage, BullmqStorage):
        lock = storage.keys("q").of(f"{job_id}:lock")
        reply = await admin.call("", "PTTL", lock)
        assert isinstance(reply, int)
        return reply / 1000
    score = await admin.call("", "ZSCORE", "{jq:q}:processing", job_id)
    assert isinstance(score, bytes)
    return float(score) / 1000 - time.time()


async def test_a_server_that_does_not_let_it_wait_says_so(
    storage: LeftClaims, admin: Client
) -> None:
    await storage.claim("q", wish())
    await admin.call("", "ACL", "SETUSER", "default", "-blpop", "-bzpopmin")
    await add(storage, "a")
    with pytest.raises(StorageDenied):
        await storage.await_claim("q", wish(), LONG_MS, never())
    assert ids(await storage.claim("q", wish())) == ["a"]


async def test_it_brings_what_waits_in_other_lines_too(storage: LeftClaims, admin: Client) -> None:
    task = await leave(storage, admin, wish())
    later, urgent = Terms(delay_ms=60_000), Terms(priority=1)
    specs = [
        JobSpec(id="later", payload=b"1", origin="o-later", terms=later),
        JobSpec(id="urgent", payload=b"1", origin="o-urgent", terms=urgent),
        JobSpec(id="plain", payload=b"1", origin="o-plain"),
    ]
    await storage.enqueue("q", specs)
    batch = await asyncio.wait_for(task, 2)
    found = ids(batch)
    while len(found) < 2:  # it may have been granted before all were there
        batch = await storage.claim("q", wish())
        found += ids(batch)
    assert sorted(found) == ["plain", "urgent"]
    batch = await storage.await_claim("q", wish(), 1, never())
    assert ids(batch) == []
    assert batch.next_in_ms is not None
    assert 50_000 < batch.next_in_ms <= 60_000
