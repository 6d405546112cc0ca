"""Measure the core on the memory storage: each figure is the median of three runs.

The ratio compares with a bare asyncio loop that runs the same handlers without a queue; it says
how many times longer the queue takes.
"""

from __future__ import annotations

import asyncio
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from toril import JobContext, NewJob, Queue, __version__

JOBS: Final = 10_000
CALLS: Final = 2_000
RUNS: Final = 3
IMPORTS: Final = 7
IMPORT_LIMIT_MS: Final = 100
HELP_LIMIT_MS: Final = 200

Numbers = Queue[int, int]


async def same(job: JobContext[int]) -> int:
    return job.data


async def bare_same(number: int) -> int:
    return number


async def bare_task(number: int) -> int:
    return await asyncio.create_task(bare_same(number))


def starts(*args: str) -> list[tuple[float, str]]:
    """Run fresh interpreters, compiled before as an installed package is: seconds and output."""
    with tempfile.TemporaryDirectory() as compiled:
        env = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        runs = []
        for _ in range(1 + IMPORTS):
            begun = time.perf_counter()
            done = subprocess.run(
                [sys.executable, *args], env=env, check=True, capture_output=True, text=True
            )
            runs.append((time.perf_counter() - begun, done.stdout))
    return runs[1:]


def import_ms(statement: str) -> float:
    """Time an import alone."""
    code = (
        f"import time; begun = time.perf_counter(); {statement};"
        "print((time.perf_counter() - begun) * 1000)"
    )
    return statistics.median(float(said) for _, said in starts("-c", code))


def help_ms() -> float:
    """Time `toril --help` from the start of the process to its end."""
    return statistics.median(took for took, _ in starts("-m", "toril.cli", "--help")) * 1000


def new_jobs(count: int) -> list[NewJob[int]]:
    return [NewJob(name="same", data=number) for number in range(count)]


async def add_bulk() -> float:
    """Seconds to hand in JOBS jobs."""
    async with Numbers("bench", storage="memory:") as queue:
        jobs = new_jobs(JOBS)
        begun = time.perf_counter()
        await queue.add_bulk(jobs)
        return time.perf_counter() - begun


async def drain(concurrency: int) -> float:
    """Seconds to work JOBS jobs that wait already."""
    queue = Numbers("bench", storage="memory:")
    await queue.add_bulk(new_jobs(JOBS))
    left, done = JOBS, asyncio.Event()

    async def handler(job: JobContext[int]) -> int:
        nonlocal left
        left -= 1
        if not left:
            done.set()
        return job.data

    queue.execute(handler, concurrency=concurrency)
    begun = time.perf_counter()
    async with queue:
        await done.wait()
    return time.perf_counter() - begun  # stopping records the last results


async def call_all(call: Callable[[int], Awaitable[int]], callers: int) -> list[float]:
    """Let `callers` make CALLS calls, each one after the other; return every latency."""
    latencies: list[float] = []

    async def caller(numbers: range) -> None:
        for number in numbers:
            begun = time.perf_counter()
            assert await call(number) == number
            latencies.append(time.perf_counter() - begun)

    await asyncio.gather(*(caller(range(first, CALLS, callers)) for first in range(callers)))
    return latencies


async def round_trips(concurrency: int) -> list[float]:
    queue = Numbers("bench", storage="memory:")
    queue.execute(same, concurrency=concurrency)
    async with queue:
        return await call_all(lambda n: queue.enqueue_and_wait(f"job-{n}", n), concurrency)


async def bare(concurrency: int) -> float:
    """Seconds a loop without a queue takes: a task per job, `concurrency` of them at once."""
    begun = time.perf_counter()
    for first in range(0, JOBS, concurrency):
        numbers = range(first, min(first + concurrency, JOBS))
        await asyncio.gather(*map(bare_task, numbers))
    return time.perf_counter() - begun


async def median_of(measure: Callable[[], Awaitable[float]]) -> float:
    return statistics.median([await measure() for _ in range(RUNS)])


def row(what: str, figure: str, ratio: float | None = None) -> None:
    print(f"{what:<42}{figure:>26}{'' if ratio is None else f'{ratio:,.0f} x':>10}", flush=True)


async def main() -> None:
    print(f"toril {__version__}, Python {platform.python_version()}, memory storage\n")
    took = import_ms("import toril")
    verdict = "yes" if took < IMPORT_LIMIT_MS else "no"
    row("import toril", f"{took:.0f} ms, < {IMPORT_LIMIT_MS} ms: {verdict}")
    for statement in ("from toril import Queue, Worker", "import asyncio"):
        row(statement, f"{import_ms(statement):.0f} ms")
    took = help_ms()
    verdict = "yes" if took < HELP_LIMIT_MS else "no"
    row("toril --help, whole process", f"{took:.0f} ms, < {HELP_LIMIT_MS} ms: {verdict}")
    print()
    print(f"{'':<42}{'':>26}{'vs. bare':>10}")
    seconds = await median_of(add_bulk)
    row(f"add_bulk of {JOBS:,}", f"{JOBS / seconds:,.0f} jobs/s")
    for concurrency in (1, 100):
        seconds = await median_of(partial(drain, concurrency))
        alone = await median_of(partial(bare, concurrency))
        figure = f"{JOBS / seconds:,.0f} jobs/s"
        row(f"drain {JOBS:,} no-ops, concurrency {concurrency}", figure, seconds / alone)
    for concurrency in (1, 100):
        cuts = [
            statistics.quantiles(await round_trips(concurrency), n=100, method="inclusive")
            for _ in range(RUNS)
        ]
        p50, p99 = (statistics.median(cut[at] for cut in cuts) * 1000 for at in (49, 98))
        alone_s = [statistics.median(await call_all(bare_task, concurrency)) for _ in range(RUNS)]
        ratio = p50 / 1000 / statistics.median(alone_s)
        figure = f"p50 {p50:.2f} ms, p99 {p99:.2f} ms"
        row(f"request/response, {concurrency} at once", figure, ratio)


if __name__ == "__main__":
    asyncio.run(main())
