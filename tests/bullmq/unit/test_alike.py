"""Batch scripts leave what the official ones leave, to the byte, at the same time of the clock."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import pytest
import redis

from tests.servers import Server
from toril.ids import ulid
from toril.job import Dedup, JobSpec, Terms
from toril.outcome import Completed, Lease
from toril.storage.bullmq import BullmqStorage
from toril.storage.protocol import Batch, Claim

QUEUE: Final = "q"
BEGUN: Final = 1_700_000_000_000
LEASE_MS: Final = 600_000
PLAIN: Final = Terms()


class Half:
    """One of two storages to which the same is done."""

    def __init__(self, server: Server, *, batch: bool) -> None:
        self.prefix = f"u{ulid()}"
        url = f"bullmq+redis://127.0.0.1:{server.port}?prefix={self.prefix}"
        self.storage = BullmqStorage(url, batch=batch)
        self.held: list[Lease] = []
        self.client = redis.Redis(port=server.port)
        self._claims = 0

    def at(self, ms: int) -> None:
        """Set the clock."""
        self.storage.now_ms = BEGUN + ms

    async def add(self, jobs: Sequence[tuple[str, Terms]]) -> list[object]:
        """Hand jobs in."""
        specs = [
            JobSpec(id=one, name="job", payload=b"1", terms=terms, origin=f"{one}-origin")
            for one, terms in jobs
        ]
        return list(await self.storage.enqueue(QUEUE, specs))

    async def claim(self, count: int) -> list[object]:
        """Claim jobs."""
        return self._take(await self.storage.claim(QUEUE, self._claim(count)))

    async def await_claim(self, count: int) -> list[object]:
        """Claim jobs that wait, by the claim that is left with the server where it may be."""
        cut = asyncio.get_running_loop().create_future()
        return self._take(await self.storage.await_claim(QUEUE, self._claim(count), 1000, cut))

    async def complete(self, places: Sequence[int], fetch: int) -> list[object]:
        """Complete jobs in hand, and claim the next ones with it."""
        leases = [self.held[place] for place in places]
        self.held = [lease for lease in self.held if lease not in leases]
        outcomes = [Completed(lease=lease, result=b"2") for lease in leases]
        refill = self._claim(fetch) if fetch else None
        settled = await self.storage.settle(QUEUE, outcomes, refill)
        return [*settled.answers, *self._take(settled.batch)]

    def _claim(self, count: int) -> Claim:
        self._claims += 1
        token = f"{self.prefix}-{self._claims}"
        return Claim(token=token, worker_id="w", count=count, lease_ms=LEASE_MS)

    def _take(self, batch: Batch) -> list[object]:
        self.held += [job.lease for job in batch.jobs]
        jobs = [(job.spec, job.lease.attempt, job.started) for job in batch.jobs]
        return [*jobs, batch.next_in_ms, batch.limited_for_ms]

    def left(self) -> dict[str, Any]:
        """Every key that Node sees, with its content."""
        base = f"{self.prefix}:{{{QUEUE}}}:"
        found: Any = self.client.keys(f"{self.prefix}:*")
        names = [key.decode().removeprefix(base) for key in found]
        return {name: self._content(base + name) for name in names if name != "toril-workers"}

    def _content(self, key: str) -> Any:
        client: Any = self.client
        match client.type(key).decode():
            case "string":
                return "a token" if key.endswith(":lock") else client.get(key)
            case "list":
                return client.lrange(key, 0, -1)
            case "hash":
                fields = client.hgetall(key)
                return {**fields, b"opts": json.loads(fields.get(b"opts", b"{}"))}
            case "set":
                return client.smembers(key)
            case "zset":
                return client.zrange(key, 0, -1, withscores=True)
            case "stream":
                return [fields for _, fields in client.xrange(key)]
            case other:
                raise AssertionError(other)


@pytest.fixture
async def halves(server: Server) -> AsyncIterator[tuple[Half, Half]]:
    """One that works with the official scripts alone, one with ours."""
    both = Half(server, batch=False), Half(server, batch=True)
    for half in both:
        await half.storage.open()
        half.at(0)
    yield both
    for half in both:
        await half.storage.close()
        half.client.close()


async def do(halves: tuple[Half, Half], verb: str, *args: Any) -> None:
    """Let both do the same, and compare the answers."""
    official, batch = [await getattr(half, verb)(*args) for half in halves]
    assert batch == official


def compare(halves: tuple[Half, Half]) -> None:
    """Compare everything that both left."""
    official, batch = (half.left() for half in halves)
    for kind, there in official.items():
        assert batch.get(kind) == there, kind
    assert batch.keys() == official.keys()


async def test_more_jobs_fall_due_in_one_millisecond_than_have_turns(
    halves: tuple[Half, Half],
) -> None:
    jobs = [(f"job-{n:04}", Terms(delay_ms=50)) for n in range(4_090)]
    await do(halves, "add", jobs)
    await do(halves, "add", [(f"more-{n}", Terms(delay_ms=50)) for n in range(12)])
    for half in halves:
        half.at(25)
    await do(halves, "add", [(f"late-{n}", Terms(delay_ms=25)) for n in range(6)])
    compare(halves)


async def test_due_jobs_are_put_in_line_by_thousands(halves: tuple[Half, Half]) -> None:
    jobs = [(f"job-{n:04}", Terms(delay_ms=50, priority=n % 7 // 6)) for n in range(2_050)]
    await do(halves, "add", jobs)
    for half in halves:
        half.at(50)
    for count in (1, 1, 40):
        await do(halves, "claim", count)
        compare(halves)


async def test_a_due_job_that_is_no_hash_is_left_to_the_official_scripts(
    halves: tuple[Half, Half],
) -> None:
    await do(halves, "add", [("x", PLAIN), ("y", PLAIN)])
    await do(halves, "claim", 1)
    await do(halves, "add", [("a", Terms(delay_ms=5)), ("b", Terms(delay_ms=5))])
    for half in halves:
        half.client.set(f"{half.prefix}:{{{QUEUE}}}:a", "no hash")
        half.at(5)
        with pytest.raises(Exception, match="WRONGTYPE"):
            await half.complete([0], 1)


async def test_a_counter_that_is_no_number_keeps_no_job_from_its_end(
    halves: tuple[Half, Half],
) -> None:
    _, batch = halves
    await batch.add([("x", PLAIN), ("a", Terms(delay_ms=5, priority=1))])
    await batch.claim(1)
    batch.client.set(f"{batch.prefix}:{{{QUEUE}}}:pc", "no number")
    batch.at(5)
    await batch.complete([0], 1)
    left = batch.left()
    assert left["completed"] == [(b"x", BEGUN + 5)]
    assert "active" not in left


@pytest.mark.parametrize("waiting", [0, 1])
@pytest.mark.parametrize("mark", ["none", "stalled", "dependencies"])
async def test_a_lone_job_ends_as_the_official_script_ends_it(
    mark: str, waiting: int, halves: tuple[Half, Half]
) -> None:
    jobs = [("a", PLAIN), *((f"more-{n}", PLAIN) for n in range(waiting))]
    await do(halves, "add", jobs)
    await do(halves, "claim", 1)
    for half in halves:
        half.at(7)
        base = f"{half.prefix}:{{{QUEUE}}}:"
        if mark == "stalled":
            half.client.sadd(f"{base}stalled", "a", "b")
        elif mark == "dependencies":
            half.client.sadd(f"{base}a:dependencies", "a child")
    await do(halves, "complete", [0], 0)
    compare(halves)
    assert ("active" in halves[1].left()) == (mark == "dependencies")


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("terms", [PLAIN, Terms(priority=2), Terms(lifo=True)])
async def test_a_claim_left_with_the_server_takes_a_job_as_the_official_script_does(
    terms: Terms, count: int, halves: tuple[Half, Half]
) -> None:
    await do(halves, "add", [("a", terms)])
    for half in halves:
        half.storage.now_ms = 0  # by the server's clock
    await do(halves, "await_claim", count)
    for half in halves:
        assert half.client.hdel(f"{half.prefix}:{{{QUEUE}}}:a", "processedOn") == 1
    official, batch = (f"{half.prefix}:{{{QUEUE}}}:marker" for half in halves)
    # The marker is for others: who saw that there was no more leaves none.
    assert halves[1].client.exists(batch) == (count == 1)
    halves[0].client.delete(official)
    halves[1].client.delete(batch)
    compare(halves)
    left = halves[1].left()
    assert (left["active"], left["a"][b"ats"]) == ([b"a"], b"1")


@pytest.mark.parametrize("seed", range(12))
async def test_the_same_work_leaves_the_same(seed: int, halves: tuple[Half, Half]) -> None:
    chance = random.Random(seed)
    now = made = 0
    delays, priorities = [0, 0, 1, 7, 30], [0, 0, 0, 1, 2]
    for step in range(60):
        now += chance.choice((0, 1, 5, 20))
        for half in halves:
            half.at(now)
        in_hand = len(halves[0].held)
        assert len(halves[1].held) == in_hand
        match chance.choice(("add", "add", "claim", "complete", "complete")):
            case "add":
                shared, jobs = chance.random() < 0.5, []
                terms = Terms(delay_ms=chance.choice(delays), priority=chance.choice(priorities))
                for _ in range(chance.choice((1, 3, 12, 70))):
                    made += 1
                    number = made if chance.random() < 0.98 else chance.randrange(made)
                    if not shared:
                        delay, priority = chance.choice(delays), chance.choice(priorities)
                        dedup = Dedup(f"k{made % 5}") if chance.random() < 0.03 else None
                        terms = Terms(delay_ms=delay, priority=priority, dedup=dedup)
                    jobs.append((f"job-{number}", terms))
                await do(halves, "add", jobs)
            case "claim":
                await do(halves, "claim", chance.choice((1, 3, 30)))
            case _ if in_hand:
                count = chance.randint(1, min(in_hand, 60))
                places = chance.sample(range(in_hand), count)
                await do(halves, "complete", places, chance.choice((0, count, count)))
            case _:
                pass
        if step % 10 == 9:
            compare(halves)
