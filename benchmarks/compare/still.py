"""W8, W9: what a worker costs that has nothing to do, and what a long line costs."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.compare.stage import CONCURRENCY, Stage, Values

SETTLE_S: Final = 2.0
OPERATIONS: Final = 2_000
TIMES: Final = 3
"""How often, with as many jobs waiting again: what took longest and shortest is left out."""


def idle(stage: Stage) -> Values:
    """W8: CPU time and commands of a worker without jobs."""
    values: Values = {}
    with stage.serve(1, CONCURRENCY) as worker:
        time.sleep(SETTLE_S)
        stage.bench.reset()
        spent = _cpu_ns(worker["pid"])
        time.sleep(stage.sizes.idle_s)
        values["% of a core"] = (_cpu_ns(worker["pid"]) - spent) / stage.sizes.idle_s / 1e7
        if stage.entry.place == "server":
            values["commands/s"] = stage.bench.calls() / stage.sizes.idle_s
    values["MB"] = worker["peak_mb"]
    return values


def _cpu_ns(pid: int) -> int:
    """The CPU time of all threads of a process; finer than the ticks of its `stat`."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads)


def long_line(stage: Stage) -> Values:
    """W9: memory and CPU time per job with few and with many jobs waiting."""
    values: Values = {}
    few, *_, many = sizes = stage.sizes.backlogs
    for waiting in sizes:
        stage.bench.clear()
        stage.fill(waiting)
        if stage.entry.place == "server":
            values[f"bytes/job, {waiting:,}"] = stage.bench.used_bytes() / waiting
        found: dict[str, list[float]] = defaultdict(list)
        for _ in range(TIMES):
            _, added = stage.measured("one", OPERATIONS, CONCURRENCY)
            worker, worked = stage.measured("drain", OPERATIONS, CONCURRENCY)
            for what, costs in (("add µs/job", added), ("work µs/job", worked)):
                found[what].append(costs["client µs/job"] + costs.get("server µs/job", 0.0))
            found["worker MB"].append(worker["peak_mb"])
        values |= {f"{what}, {waiting:,}": median(costs) for what, costs in found.items()}
    for what in ("work µs/job", "add µs/job", "worker MB", "bytes/job"):
        if f"{what}, {many:,}" not in values:
            continue
        values[what] = values[f"{what}, {many:,}"]
        values[f"{what}, growth"] = values[f"{what}, {many:,}"] / values[f"{what}, {few:,}"]
    return values
