"""All workloads by key: what is done, by whom, and which figures it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks.compare import basic, busy, still
from benchmarks.compare.adapters.limits import OPERATIONS, RAW
from benchmarks.compare.stage import CONCURRENCY, Stage, Values

_COSTS: Final = ("jobs/s", "client µs/job", "server µs/job")
_EVERYBODY: Final = frozenset({"toril", "python", "node"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is done, and which figures it gives; the first one is compared with Node's."""

    key: str
    title: str
    metrics: tuple[str, ...]
    run: Callable[[Stage], Values]
    kinds: frozenset[str] = _EVERYBODY
    places: frozenset[str] = frozenset({"server", "memory", "file"})
    less: bool = False
    """Whether less is better."""


def _reported(stage: Stage) -> Values:
    """What a program that measures by itself says."""
    return {name: float(value) for name, value in stage.run("limits", 2_000, 1).items()}


_ALL: Final = (
    Workload(
        key="W1",
        title="add one by one, each awaited",
        metrics=_COSTS,
        run=basic.one_by_one,
        kinds=_EVERYBODY | {"bare"},
    ),
    Workload(
        key="W2",
        title="add in bulk, up to a thousand a call",
        metrics=_COSTS,
        run=basic.bulk,
        kinds=_EVERYBODY | {"ceiling"},
    ),
    Workload(
        key="W3",
        title=f"drain no-op jobs, one worker process, concurrency {CONCURRENCY}, results kept",
        metrics=(*_COSTS, "peak MB", "ran again"),
        run=basic.drain,
        kinds=_EVERYBODY | {"bare", "ceiling"},
    ),
    Workload(
        key="W4",
        title="request and response, an idle worker in another process",
        metrics=tuple(f"p{cut} ms, {n} at once" for n in (1, CONCURRENCY) for cut in (50, 99)),
        run=basic.calls,
        less=True,
        kinds=_EVERYBODY | {"bare"},
    ),
    Workload(
        key="W5",
        title="what the server does for a client that packed everything beforehand",
        metrics=tuple(f"{name}/s" for name in RAW),
        run=_reported,
        kinds=frozenset({"raw"}),
    ),
    Workload(
        key="W6",
        title=f"handlers that wait {busy.WAIT_MS} ms, one worker process",
        metrics=tuple(
            f"{name}, {slots:,} at once"
            for name in (busy.SHARE, busy.at_first(busy.SHARE), "client µs/job", busy.STOLEN)
            for slots in busy.WAITERS
        ),
        run=busy.waiting,
        kinds=_EVERYBODY | {"bare"},
    ),
    Workload(
        key="W7",
        title=f"handlers that compute {busy.SPIN_MS} ms, {busy.PROCESSES} worker processes",
        metrics=(busy.SHARE, "jobs/s", "ran again"),
        run=busy.computing,
        places=frozenset({"server", "file"}),
    ),
    Workload(
        key="W8",
        title="an idle worker",
        metrics=("% of a core", "commands/s", "MB"),
        run=still.idle,
        less=True,
    ),
    Workload(
        key="W9",
        title="a long line: growth of the cost per job from few to many jobs waiting",
        metrics=(
            *("work µs/job, growth", "add µs/job, growth", "worker MB, growth"),
            *("work µs/job", "add µs/job", "worker MB", "bytes/job"),
        ),
        run=still.long_line,
        less=True,
        kinds=frozenset({"toril", "node"}),
        places=frozenset({"server", "file"}),
    ),
    Workload(
        key="W10",
        title="delayed jobs at half of the rate that can be added and worked",
        metrics=(
            *(busy.LATE, busy.at_first(busy.LATE), "p50 ms late"),
            *("load, jobs/s", busy.STOLEN),
        ),
        run=busy.coming_due,
        less=True,
        places=frozenset({"server", "file"}),
    ),
    Workload(
        key="W11",
        title="single operations, p95 in ms; reap over 10,000 active jobs",
        metrics=OPERATIONS,
        run=_reported,
        less=True,
        kinds=frozenset({"operations"}),
    ),
)

WORKLOADS: Final = {workload.key: workload for workload in _ALL}
