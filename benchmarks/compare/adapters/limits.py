"""Limits that are measured from inside: raw commands of the server, single operations of toril.

python -m benchmarks.compare.adapters.limits raw|operations limits <url> <queue> <rounds> 1
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable
from typing import Any, Final

from benchmarks.compare.adapters.loops import run_loop
from benchmarks.compare.adapters.measure import Given, say
from benchmarks.compare.records import percentile

RAW: Final = ("LPUSH", "BLMOVE", "HSET", "XADD", "EVALSHA")
OPERATIONS: Final = (
    "claim",
    "read",
    "settle",
    "renew",
    "progress",
    "log",
    "event",
    "reap of 10,000",
)
ACTIVE: Final = 10_000
REAPS: Final = 20
LEASE_MS: Final = 600_000
PAYLOAD: Final = b'{"to":"user-000123@example.com","subject":"Your invoice","amount":12.5,"n":1}'
UNDER_WAY: Final = 200


def raw(given: Given) -> None:
    """Let one connection send commands packed beforehand."""
    from benchmarks.wire_peer import Wire
    from toril.resp.url import parse_url
    from toril.resp.wire import pack

    wire = Wire(*parse_url(given.where).hosts[0])
    sha = wire.ask("SCRIPT", "LOAD", "return 1").decode()
    rounds = range(given.jobs * 10)
    commands: dict[str, list[bytes]] = {
        "LPUSH": [pack("LPUSH", "line", number) for number in rounds],
        "BLMOVE": [pack("BLMOVE", "line", "taken", "RIGHT", "LEFT", 1) for _ in rounds],
        "HSET": [pack("HSET", "jobs", number, PAYLOAD) for number in rounds],
        "XADD": [pack("XADD", "events", "*", "kind", "added", "id", number) for number in rounds],
        "EVALSHA": [pack("EVALSHA", sha, 0) for _ in rounds],
    }
    figures = {}
    for name, packed in commands.items():
        begun = time.perf_counter()
        wire.push(packed, UNDER_WAY)
        figures[f"{name}/s"] = len(packed) / (time.perf_counter() - begun)
    say(figures)


async def operations(given: Given) -> None:
    """Time each operation of a storage alone; p95 of so many rounds, in milliseconds."""
    from toril import open_storage
    from toril.ids import token, ulid
    from toril.job import JobSpec
    from toril.outcome import Completed
    from toril.storage.protocol import Claim, Notes

    times: dict[str, list[float]] = {name: [] for name in OPERATIONS}

    async def timed(name: str, call: Awaitable[Any]) -> Any:
        begun = time.perf_counter()
        answer = await call  # it begins here
        times[name].append((time.perf_counter() - begun) * 1000)
        return answer

    def wish(count: int) -> Claim:
        return Claim(token=token(), worker_id="bench", count=count, lease_ms=LEASE_MS)

    async def add(count: int) -> None:
        specs = [JobSpec(id=ulid(), payload=PAYLOAD, origin=ulid()) for _ in range(count)]
        await storage.enqueue(given.queue, specs)

    storage, queue = open_storage(given.where), given.queue
    await storage.open()
    assert isinstance(storage, Notes)
    for _ in range(min(given.jobs, 500)):
        cursor = await storage.cursor(queue)
        await add(1)
        (job,) = (await timed("claim", storage.claim(queue, wish(1)))).jobs
        lease = job.lease
        ids, leases = [lease.job_id], [lease]
        await timed("read", storage.get(queue, ids))
        await timed("renew", storage.renew(queue, leases, LEASE_MS))
        await timed("progress", storage.progress(queue, [(lease, b"50")]))
        await timed("log", storage.log(queue, [(lease, "half done")]))
        done = [Completed(lease=lease, result=b"1")]
        await timed("settle", storage.settle(queue, done))
        assert await timed("event", storage.events(queue, cursor, limit=1))
    for _ in range(0, ACTIVE, 1000):
        await add(1000)
    held = 0
    while held < ACTIVE:
        held += len((await storage.claim(queue, wish(1000))).jobs)
    for _ in range(REAPS):
        await asyncio.sleep(0.005)
        await timed("reap of 10,000", storage.reap(queue, 1, 1))
    say({name: percentile(values, 95) for name, values in times.items()})
    await storage.close()


def main() -> None:
    """Measure what the first argument names."""
    kind = sys.argv.pop(1)
    given = Given.read()
    if kind == "raw":
        raw(given)
    else:
        run_loop(operations(given))


if __name__ == "__main__":
    main()
