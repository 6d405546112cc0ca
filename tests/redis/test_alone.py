"""A job that comes alone is stored, leased and ended in ways of its own; nothing tells of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from toril.event import Event
from toril.job import Dedup, JobSpec, Keep, State, Terms
from toril.outcome import Completed, Lease
from toril.resp.script import Script
from toril.storage.redis import RedisStorage, codec
from toril.storage.redis.scripts import _assemble, script

TERMS = (
    Terms(),
    Terms(result_ttl_ms=3_600_000),
    Terms(keep_completed=Keep(count=5)),
    Terms(keep_logs=7, attempts=3),
)
NAMES = ("job", "e" * 30, "ü" * 15)
TERMS_OF_A_CLAIM = ("token", "worker\nname", 100, 30_000, 0, 0)
ORIGINS = ("", "o", "o" * 26)


def plain_jobs() -> list[JobSpec]:
    return [
        JobSpec(
            id=f"{number}-{'i' * number}",
            payload=b"x" * number,
            name=name,
            origin=origin,
            terms=terms,
            reply=reply,
            requeue_failed=requeue,
        )
        for number, (terms, name, origin, reply, requeue) in enumerate(
            product(TERMS, NAMES, ORIGINS, (False, True), (False, True))
        )
    ]


async def add_as_many(storage: RedisStorage, queue: str, spec: JobSpec) -> int:
    """Hand in a job by what the script does with jobs that do not come alone."""
    script = Script.of("enqueue", _assemble("enqueue"))
    args = storage._intake.pack([spec])
    reply = await storage._client.run(script, storage._base(queue), storage.now_ms, *args)
    assert isinstance(reply, int)
    return reply


async def stored(storage: RedisStorage, queue: str) -> dict[str, Any]:
    """Everything the queue's keys hold."""
    base, call = storage._base(queue), storage._call
    commands = {
        "jobs": ("HGETALL",),
        "ended": ("HGETALL",),
        "specs": ("HGETALL",),
        "meta": ("HGETALL",),
        "queue": ("LRANGE", 0, -1),
        "wake": ("LRANGE", 0, -1),
        "results": ("HGETALL",),
        "processing": ("ZRANGE", 0, -1, "WITHSCORES"),
        "completed": ("ZRANGE", 0, -1, "WITHSCORES"),
        "expiry": ("ZRANGE", 0, -1, "WITHSCORES"),
        "delayed": ("ZRANGE", 0, -1, "WITHSCORES"),
        "prioritized": ("ZRANGE", 0, -1, "WITHSCORES"),
        "dedup:k": ("GET",),
        f"reply:{storage._intake._reply_to}": ("LRANGE", 0, -1),
        "events": ("XRANGE", "-", "+"),
    }
    return {
        key: await call(base + key, name, base + key, *rest)
        for key, (name, *rest) in commands.items()
    }


def told(entries: list[Any]) -> list[list[Event]]:
    return [list(codec.read_entry(raw_id, blob)) for raw_id, (_, blob) in entries]


def check_same(alone: dict[str, Any], many: dict[str, Any]) -> None:
    """Compare two queues; the fields of a hash may come in any order, events in any form."""
    for key, value in many.items():
        if key in ("jobs", "ended", "specs", "meta", "results"):
            first, second = (
                dict(zip(one[::2], one[1::2], strict=True)) for one in (alone[key], value)
            )
            assert first == second, key
        elif key == "events":
            assert told(alone[key]) == told(value)
        else:
            assert alone[key] == value, key


async def test_jobs_alone_and_jobs_among_others_are_stored_as_the_same_bytes(
    storage: RedisStorage,
) -> None:
    await storage._register("alone")
    await storage._register("many")
    for spec in plain_jobs():
        await storage.enqueue("alone", [spec])
        assert await add_as_many(storage, "many", spec) == 1
    alone, many = await stored(storage, "alone"), await stored(storage, "many")
    assert all(many[key] for key in ("jobs", "specs", "queue", "wake", "events"))
    check_same(alone, many)


@pytest.mark.parametrize("events_kept", [5, 20_000])
async def test_it_keeps_as_many_events(storage: RedisStorage, events_kept: int) -> None:
    for queue in ("alone", "many"):
        await storage._register(queue)
        await storage.tune(queue, events_kept=events_kept)
    for spec in plain_jobs()[:20]:
        await storage.enqueue("alone", [spec])
        await add_as_many(storage, "many", spec)
    assert (await stored(storage, "alone"))["events"] == (await stored(storage, "many"))["events"]


async def test_a_taken_id_is_told_in_the_same_call(storage: RedisStorage) -> None:
    spec = JobSpec(id="a", payload=b"1", origin="o1")
    (made,) = await storage.enqueue("q", [spec])
    (again,) = await storage.enqueue("q", [spec])
    (other,) = await storage.enqueue("q", [replace(spec, origin="o2", payload=b"2")])
    assert made.created
    assert again.created
    assert not other.created
    assert other.state is State.WAITING
    (record,) = await storage.get("q", ["a"])
    assert record is not None
    assert record.spec.payload == b"1"
    assert (await storage.counts("q")).waiting == 1


async def test_a_queue_that_was_deleted_is_listed_again(storage: RedisStorage) -> None:
    await storage.enqueue("q", [JobSpec(id="a", payload=b"1")])
    await storage._call("", "FLUSHALL")
    await storage.enqueue("q", [JobSpec(id="b", payload=b"1")])
    assert list(await storage.queues()) == ["q"]


class Both:
    """Two queues that are told the same: one by the ways of jobs alone, one by those of all."""

    def __init__(self, storage: RedisStorage) -> None:
        self._storage = storage
        self.now = 1_800_000_000_000

    async def open(self) -> None:
        for queue in ("alone", "many"):
            await self._storage._register(queue)

    async def run(self, queue: str, name: str, *args: Any) -> Any:
        told = script(name) if queue == "alone" else Script.of(name, _assemble(name))
        return await self._storage._client.run(told, self._storage._base(queue), self.now, *args)

    async def add(self, spec: JobSpec) -> None:
        for queue in ("alone", "many"):
            await self.run(queue, "enqueue", *self._storage._intake.pack([spec]))

    async def claim(self, token: str, *, again: int = 0) -> list[Lease]:
        terms = (token, *TERMS_OF_A_CLAIM[1:])
        alone = await self.run("alone", "claim_alone", *terms, 1, again)
        many = await self.run("many", "claim", *terms, again)
        if not many[3]:  # nothing has an age that a time is needed for
            alone[2] = many[2]
        assert alone == many
        return [one.lease for one in codec.read_batch(token, alone).jobs]

    async def settle(self, lease: Lease, result: bytes) -> Any:
        packed = codec.pack_outcomes([Completed(lease=lease, result=result)])
        answer = await self.run("alone", "settle_alone", packed)
        assert answer == await self.run("many", "settle", packed)
        return answer[0]

    async def check(self) -> None:
        check_same(await stored(self._storage, "alone"), await stored(self._storage, "many"))


@pytest.fixture
async def both(storage: RedisStorage) -> Both:
    made = Both(storage)
    await made.open()
    return made


async def test_a_life_alone_leaves_the_same_bytes(both: Both) -> None:
    specs = plain_jobs()[::5]
    specs += [
        JobSpec(id=f"held-{number}", payload=b"1", terms=Terms(dedup=Dedup(key="k")))
        for number in range(8)
    ]
    for number, spec in enumerate(specs):
        await both.add(spec)
        (lease,) = await both.claim(f"token-{number}")
        await both.check()
        both.now += number % 3
        assert await both.settle(lease, b"r" * number) == b"D"
        await both.check()


async def test_a_lone_job_is_not_settled_under_a_lost_lease(both: Both) -> None:
    await both.add(JobSpec(id="a", payload=b"1"))
    (lease,) = await both.claim("token")
    assert await both.settle(replace(lease, token="other"), b"1") == b"L"
    assert await both.settle(replace(lease, job_id="b"), b"1") == b"G"
    assert await both.settle(lease, b"1") == b"D"
    assert await both.settle(lease, b"1") == b"D"
    await both.check()


async def test_a_repeated_claim_is_given_the_lone_job_again(both: Both) -> None:
    await both.add(JobSpec(id="a", payload=b"1"))
    granted = await both.claim("token")
    assert await both.claim("token", again=1) == granted != []
    await both.check()


async def test_what_is_no_lone_job_is_claimed_as_ever(both: Both) -> None:
    assert await both.claim("none") == []
    await both.add(JobSpec(id="late", payload=b"1", terms=Terms(delay_ms=1000)))
    await both.add(JobSpec(id="first", payload=b"1"))
    (first,) = await both.claim("with-one-delayed")
    both.now += 1000
    await both.add(JobSpec(id="urgent", payload=b"1", terms=Terms(priority=1)))
    await both.add(JobSpec(id="second", payload=b"1"))
    leases = [first, *await both.claim("of-all-lines")]
    assert sorted(one.job_id for one in leases) == ["first", "late", "second", "urgent"]
    await both.add(JobSpec(id="third", payload=b"1"))
    await both.add(JobSpec(id="fourth", payload=b"1"))
    leases += await both.claim("two-in-line")
    assert len(leases) == 6
    for lease in leases:
        assert await both.settle(lease, b"1") == b"D"
        await both.check()


@pytest.mark.parametrize(
    "limits",
    [("paused", 1), ("concurrency", 1), ("rate_max", 1, "rate_ms", 1000), ("events_kept", 5)],
    ids=lambda limits: str(limits[0]),
)
async def test_limits_hold_for_lone_jobs(
    both: Both, storage: RedisStorage, limits: tuple[Any, ...]
) -> None:
    for queue in ("alone", "many"):
        meta = f"{storage._base(queue)}meta"
        await storage._call(meta, "HSET", meta, *limits)
    for number in range(20):
        await both.add(JobSpec(id=f"job-{number}", payload=b"1"))
        for lease in await both.claim(f"token-{number}"):
            await both.settle(lease, b"1")
        both.now += 400
        await both.check()


@pytest.mark.parametrize("busy", [False, True], ids=["drained", "beside-one-that-runs"])
async def test_lone_jobs_forget_what_is_past_its_time(
    both: Both, storage: RedisStorage, busy: bool
) -> None:
    if busy:
        await both.add(JobSpec(id="runs", payload=b"1"))
        await both.claim("other")
    for number in range(40):
        terms = Terms(result_ttl_ms=10)
        await both.add(JobSpec(id=f"job-{number}", payload=b"1", terms=terms))
        (lease,) = await both.claim(f"token-{number}")
        await both.settle(lease, b"1")
        await both.check()
        both.now += 5
    key = f"{storage._base('alone')}ended"
    kept = await storage._call(key, "HLEN", key)
    assert isinstance(kept, int)
    assert kept < 10


@pytest.mark.parametrize("damage", ["record", "spec"])
async def test_a_damaged_job_does_not_stop_a_lone_claim(
    both: Both, storage: RedisStorage, damage: str
) -> None:
    await both.add(JobSpec(id="a", payload=b"1"))
    for queue in ("alone", "many"):
        jobs, specs = (f"{storage._base(queue)}{part}" for part in ("jobs", "specs"))
        if damage == "record":
            await storage._call(jobs, "HSET", jobs, "a", b"\x9e\xa1w")
        else:
            await storage._call(specs, "HDEL", specs, "a")
    await both.run("alone", "claim_alone", *TERMS_OF_A_CLAIM, 1, 0)
    await both.run("many", "claim", *TERMS_OF_A_CLAIM, 0)
    await both.check()
