"""W8, W9: what a worker costs that has nothing to do, and what a long line costs."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.compare.stage import CONCURRENCY, Stage, Values

SETTLE_S: Final = 2.0
OPERATIONS: Final = 2_000
TIMES: Final = 9
"""How often, with as many jobs waiting again: the median counts."""


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
    """W9: memory and CPU time per job with few and with many jobs waiting.

    Short and long lines wait side by side and are measured in turns: what an operation costs
    changes with the speed of the machine, twofold within seconds.
    """
    values: Values = {}
    few, *_, many = sizes = stage.sizes.backlogs
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    with ExitStack() as others:
        lines = {few: stage, **{n: others.enter_context(stage.another()) for n in sizes[1:]}}
        for waiting, line in lines.items():
            line.fill(waiting)
            if stage.entry.place == "server":
                found["bytes/job", waiting].append(line.bench.used_bytes() / waiting)
        for _ in range(TIMES):
            for waiting, line in lines.items():
                for what, cost in _costs(line).items():
                    found[what, waiting].append(cost)
    for (what, waiting), costs in found.items():
        values[f"{what}, {waiting:,}"] = median(costs)
        if waiting == many:
            values[what] = median(costs)
            pairs = zip(costs, found[what, few], strict=True)
            values[f"{what}, growth"] = median(long / short for long, short in pairs)
    return values


def _costs(line: Stage) -> Values:
    """Add some jobs and work as many, so that the line stays as long as it is."""
    _, added = line.measured("one", OPERATIONS, CONCURRENCY)
    worker, worked = line.measured("drain", OPERATIONS, CONCURRENCY)
    return {
        "add µs/job": added["client µs/job"] + added.get("server µs/job", 0.0),
        "work µs/job": worked["client µs/job"] + worked.get("server µs/job", 0.0),
        "worker MB": worker["peak_mb"],
    }
