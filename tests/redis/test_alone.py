"""A job handed in alone is stored in a way of its own; nothing tells it from the others."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from toril.job import JobSpec, Keep, State, Terms
from toril.resp.script import Script
from toril.storage.redis import RedisStorage
from toril.storage.redis.scripts import _assemble

TERMS = (
    Terms(),
    Terms(result_ttl_ms=3_600_000),
    Terms(keep_completed=Keep(count=5)),
    Terms(keep_logs=7, attempts=3),
)
NAMES = ("job", "e" * 30, "ü" * 15)
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
        "specs": ("HGETALL",),
        "meta": ("HGETALL",),
        "queue": ("LRANGE", 0, -1),
        "wake": ("LRANGE", 0, -1),
        "events": ("XRANGE", "-", "+"),
    }
    return {
        key: await call(base + key, name, base + key, *rest)
        for key, (name, *rest) in commands.items()
    }


async def test_jobs_alone_and_jobs_among_others_are_stored_as_the_same_bytes(
    storage: RedisStorage,
) -> None:
    await storage._register("alone")
    await storage._register("many")
    for spec in plain_jobs():
        await storage.enqueue("alone", [spec])
        assert await add_as_many(storage, "many", spec) == 1
    alone, many = await stored(storage, "alone"), await stored(storage, "many")
    for key, value in many.items():
        assert value, key
        if key == "meta":
            pairs = (dict(zip(one[::2], one[1::2], strict=True)) for one in (alone[key], value))
            first, second = pairs
            assert first == second
        else:
            assert alone[key] == value, key


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
