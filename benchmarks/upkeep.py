"""What a queue owes its users besides speed: quick pick-up, recovery, flatness, no leaks."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.machine import Bench
from benchmarks.peers import UPKEEP
from benchmarks.report import Figure, Report
from toril import Queue
from toril.ids import token, ulid
from toril.job import JobSpec
from toril.outcome import Completed, Lease
from toril.storage.protocol import Claim
from toril.storage.redis import RedisStorage

PICK_UPS: Final = 100
SPACING_S: Final = 0.02
LOAD_JOBS: Final = 10_000
SINGLES: Final = 500
BATCHES: Final = 20
BATCH: Final = 100
PAYLOAD: Final = b'{"to":"user-000123@example.com","subject":"Your invoice","amount":12.5,"n":1}'

Calls = Queue[Any, int]


# -- pick-up -----------------------------------------------------------------------------------


def pickup(report: Report, bench: Bench, reps: int, idle_s: float) -> None:
    """Time from enqueue to the start of the handler, in workers idle for so long."""
    names = [f"idle-{number}" for number in range(PICK_UPS)]
    cuts = []
    for _ in range(reps):
        bench.clear()
        with UPKEEP.serve(bench, ",".join(names), PICK_UPS, 1):
            late = asyncio.run(_pick_ups(bench.url, names, idle_s))
        cuts.append((statistics.median(late), _p99(late), max(late)))
    what = f"pick-up after {idle_s:g} s idle, {PICK_UPS * reps} of them"
    for at, cut in enumerate(("p50", "p99", "max")):
        report.add(
            Figure(
                section="pickup",
                server=bench.name,
                what=f"{what}: {cut}",
                unit="ms",
                toril=[one[at] for one in cuts],
                target="≤ 50" if cut == "p99" else "",
            )
        )


def _p99(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[98]


async def _pick_ups(url: str, names: Sequence[str], idle_s: float) -> list[float]:
    storage = RedisStorage(url)
    queues = [Calls(name, storage=storage) for name in names]
    for queue in queues:  # the first one connects, loads the scripts and shows that all is well
        await queue.enqueue_and_wait("warm", None)
    await asyncio.sleep(idle_s)
    waits = []
    for queue in queues:
        waits.append(asyncio.ensure_future(_pick_up(queue, "job-x")))
        await asyncio.sleep(SPACING_S)
    late = await asyncio.gather(*waits)
    for queue in queues:
        await queue.stop()
    return late


async def _pick_up(queue: Calls, job_id: str) -> float:
    """Milliseconds; both processes read the machine's one monotonic clock."""
    sent = time.monotonic_ns() // 1000
    started = await queue.enqueue_and_wait(job_id, None, timeout=120)
    return (started - sent) / 1000


# -- half-open ---------------------------------------------------------------------------------


def halfopen(report: Report, bench: Bench, reps: int) -> None:
    """Time until a worker works again after its connections died without a word."""
    seconds = [asyncio.run(_half_open(bench)) for _ in range(reps)]
    report.add(
        Figure(
            section="halfopen",
            server=bench.name,
            what="pick-up through dead connections",
            unit="s",
            toril=seconds,
            target="< 10",
        )
    )


async def _half_open(bench: Bench) -> float:
    from tests.resp.proxy import Proxy

    bench.clear()
    async with Proxy(bench.port) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}"
        serving = UPKEEP.serve(bench, "bench", 1, 1, url=url)
        await asyncio.to_thread(serving.__enter__)
        try:
            async with Calls("bench", storage=bench.url) as queue:
                await queue.enqueue_and_wait("warm", None)
                await asyncio.sleep(1)
                proxy.switch("dead_old")
                return await _pick_up(queue, "job-x") / 1000
        finally:
            await asyncio.to_thread(serving.__exit__, None, None, None)


# -- flatness ----------------------------------------------------------------------------------


def flat(report: Report, bench: Bench, reps: int, few: int, many: int) -> None:
    """What enqueue, claim and settle cost the server with few and with many jobs waiting."""
    bench.clear()
    cost = asyncio.run(_flat(bench, reps, few, many))
    for size in (1, BATCH):
        for verb in ("enqueue", "claim", "settle"):
            report.add(
                Figure(
                    section="flat",
                    server=bench.name,
                    what=f"{verb} of {size}, {many:,} and {few:,}",
                    unit="µs/call",
                    toril=cost[verb, size, many],
                    peer=cost[verb, size, few],
                    target="ratio ≤ 1.3",
                )
            )


async def _flat(
    bench: Bench, reps: int, few: int, many: int
) -> dict[tuple[str, int, int], list[float]]:
    storage = RedisStorage(bench.url)
    await storage.open()
    cost: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    try:
        for waiting in (few, many):
            for _ in range(0, waiting, 1000):
                await storage.enqueue(f"flat-{waiting}", _specs(1000))
        for rep in range(reps):
            for size, calls in ((1, SINGLES), (BATCH, BATCHES)):
                for waiting in (few, many) if rep % 2 == 0 else (many, few):
                    usec = await _turn(bench, storage, f"flat-{waiting}", size, calls)
                    for verb, value in usec.items():
                        cost[verb, size, waiting].append(value)
    finally:
        await storage.close()
    return cost


def _specs(count: int) -> list[JobSpec]:
    return [JobSpec(id=ulid(), payload=PAYLOAD, origin=ulid()) for _ in range(count)]


async def _turn(
    bench: Bench, storage: RedisStorage, queue: str, size: int, calls: int
) -> dict[str, float]:
    """Add, claim and settle as many jobs, so that the number of those waiting stays."""
    usec: dict[str, float] = {}
    bench.reset()
    for _ in range(calls):
        await storage.enqueue(queue, _specs(size))
    usec["enqueue"] = bench.usec_per_script()
    bench.reset()
    held: list[list[Lease]] = []
    for _ in range(calls):
        claim = Claim(token=token(), worker_id="bench", count=size, lease_ms=600_000)
        held.append([job.lease for job in (await storage.claim(queue, claim)).jobs])
    usec["claim"] = bench.usec_per_script()
    bench.reset()
    for leases in held:
        await storage.settle(queue, [Completed(lease=lease, result=b"1") for lease in leases])
    usec["settle"] = bench.usec_per_script()
    return usec


# -- load --------------------------------------------------------------------------------------


def load(report: Report, bench: Bench, reps: int) -> None:
    """The seed's load test: 10,000 jobs with 10 workers."""
    runs = []
    for _ in range(reps):
        bench.clear()
        runs.append(UPKEEP.run("load", bench, "bench", LOAD_JOBS, 1))
    grown = [
        [after - before for before, after in zip(run["before"], run["after"], strict=True)]
        for run in runs
    ]
    rates = [run["jobs"] / run["seconds"] for run in runs]
    rows = (
        ("10 workers, concurrency 1, 10,000 jobs", "jobs/s", rates, "≥ 1,000"),
        ("memory, more than before", "MB", [one[0] for one in grown], "< 100"),
        ("tasks, more than before", "", [one[1] for one in grown], "0"),
        ("threads, more than before", "", [one[2] for one in grown], "0"),
    )
    for what, unit, values, target in rows:
        report.add(
            Figure(
                section="load",
                server=bench.name,
                what=what,
                unit=unit,
                toril=values,
                target=target,
            )
        )
