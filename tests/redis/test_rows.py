"""Outcomes settled in one call leave what they leave one by one, and so do claims in rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from toril.event import Cursor
from toril.job import JobSpec, Terms
from toril.outcome import Completed, Failed, Failure, Outcome, Released, Retried
from toril.storage.protocol import Claim, Claimed
from toril.storage.redis import RedisStorage

HASHES = ("jobs", "results")
SETS = ("completed", "failed", "processing", "delayed")


def jobs() -> list[JobSpec]:
    """Twins, some between them that are none, and some with terms that make them special."""
    special = Terms(result_ttl_ms=60_000)
    twins = [JobSpec(id=f"twin-{n}", payload=b"1", origin="together") for n in range(8)]
    others = [JobSpec(id=f"other-{n}", payload=b"2", origin=f"o-{n}") for n in range(4)]
    kept = [JobSpec(id=f"kept-{n}", payload=b"3", origin="k", terms=special) for n in range(4)]
    return [*twins[:4], *others, *kept, *twins[4:]]


def outcomes(claimed: Sequence[Claimed], seed: int) -> list[Outcome]:
    dice = random.Random(seed)
    failure = Failure(kind="E", reason="no")
    ends: list[Outcome] = []
    for job in claimed:
        lease = job.lease
        choice: list[Outcome] = [
            *[Completed(lease=lease, result=b"1")] * 6,
            *[Completed(lease=lease, result=b"22")] * 2,
            Failed(lease=lease, failure=failure),
            Retried(lease=lease, failure=failure, delay_ms=0),
            Released(lease=lease),
        ]
        ends.append(dice.choice(choice))
    if dice.random() < 0.5:  # the same end once more, as after a lost reply
        ends.insert(dice.randrange(len(ends)), dice.choice(ends))
    return ends


async def start(storage: RedisStorage, queue: str) -> list[Claimed]:
    await storage.enqueue(queue, jobs())
    claimed: list[Claimed] = []
    for token in ("t-1", "t-2", "t-3"):
        claim = Claim(token=token, worker_id="w", count=6, lease_ms=30_000)
        claimed += (await storage.claim(queue, claim)).jobs
    assert len(claimed) == len(jobs())
    return claimed


async def left(storage: RedisStorage, queue: str) -> dict[str, Any]:
    base = storage._base(queue)
    found: dict[str, Any] = {}
    for name in HASHES:
        flat = await storage._client.call(base, "HGETALL", base + name)
        assert isinstance(flat, list)
        found[name] = sorted(zip(flat[::2], flat[1::2], strict=True))
    for name in SETS:
        found[name] = await storage._client.call(base, "ZRANGE", base + name, 0, -1)
    found["queue"] = await storage._client.call(base, "LRANGE", base + "queue", 0, -1)
    events = await storage.events(queue, Cursor.START, limit=1_000)
    # Between calls, but not within one, the queue may be empty.
    told = [replace(one, cursor=Cursor.START) for one in events if one.kind != "drained"]
    found["events"] = sorted(map(repr, told))
    return found


@pytest.mark.parametrize("seed", range(12))
async def test_one_call_leaves_what_many_calls_leave(storage: RedisStorage, seed: int) -> None:
    together, apart = f"together-{seed}", f"apart-{seed}"
    one_call = outcomes(await start(storage, together), seed)
    answers = (await storage.settle(together, one_call)).answers
    many_calls = outcomes(await start(storage, apart), seed)
    separate = [(await storage.settle(apart, [one])).answers[0] for one in many_calls]
    assert [one.kind for one in answers] == [one.kind for one in separate]
    found, wanted = await left(storage, together), await left(storage, apart)
    lines = found.pop("queue"), wanted.pop("queue")
    assert [one.partition(b":")[2] for one in lines[0]] == [
        one.partition(b":")[2] for one in lines[1]
    ]
    finished = {job_id for name in ("completed", "failed") for job_id in wanted[name]}
    for name in HASHES:  # the tickets of those back in line depend on the number of calls
        for side in (found, wanted):
            side[name] = [(key, value) for key, value in side[name] if key in finished]
    assert found == wanted
