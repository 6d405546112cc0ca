"""The workloads: each runs one peer once and tells what it reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks.compare.records import percentile
from benchmarks.compare.stage import CONCURRENCY, Stage, Values

_COSTS: Final = ("jobs/s", "client µs/job", "server µs/job")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is done, and which figures it gives; the first one is compared with Node's."""

    key: str
    title: str
    metrics: tuple[str, ...]
    run: Callable[[Stage], Values]
    kinds: frozenset[str] = frozenset({"toril", "python", "node", "bare"})
    places: frozenset[str] = frozenset({"server", "memory", "file"})
    least: bool = False
    """Whether less is better."""


def one_by_one(stage: Stage) -> Values:
    """W1."""
    return stage.measured("one", stage.sizes.singles, 1)[1]


def bulk(stage: Stage) -> Values:
    """W2."""
    return stage.measured("add", stage.sizes.jobs, 1)[1]


def drain(stage: Stage) -> Values:
    """W3; the adapter ends only when every job has run."""
    jobs = stage.sizes.jobs
    if stage.entry.place != "memory":  # there, the worker's process adds them
        stage.run("add", jobs, 1)
    figures, values = stage.measured("drain", jobs, CONCURRENCY)
    if "peak_mb" in figures:
        values["peak MB"] = figures["peak_mb"]
        values["ran again"] = figures["again"]
        _all_ran(int(figures["ran"]), jobs)
    return values


def _all_ran(ran: int, jobs: int) -> None:
    if ran != jobs:
        raise AssertionError(f"{ran:,} of {jobs:,} jobs ran")


def calls(stage: Stage) -> Values:
    """W4."""
    values: Values = {}
    for callers, count in ((1, stage.sizes.lone_calls), (CONCURRENCY, stage.sizes.calls)):
        stage.bench.clear()
        if stage.entry.place == "memory":
            figures = stage.run("call", count, callers)
        else:
            with stage.serve(count, CONCURRENCY):
                figures = stage.run("call", count, callers)
        for share in (50, 99):
            name = f"p{share} ms, {callers} at once"
            values[name] = percentile(figures["latencies"], share)
    return values


W4_METRICS: Final = tuple(f"p{cut} ms, {n} at once" for n in (1, CONCURRENCY) for cut in (50, 99))

WORKLOADS: Final = {
    workload.key: workload
    for workload in (
        Workload(
            key="W1",
            title="Add one by one: a caller that awaits each",
            metrics=_COSTS,
            run=one_by_one,
        ),
        Workload(
            key="W2",
            title="Add in bulk, a thousand a call",
            metrics=_COSTS,
            run=bulk,
            kinds=frozenset({"toril", "python", "node", "ceiling"}),
        ),
        Workload(
            key="W3",
            title=f"Drain no-op jobs: one worker process, concurrency {CONCURRENCY}, results kept",
            metrics=(*_COSTS, "peak MB", "ran again"),
            run=drain,
            kinds=frozenset({"toril", "python", "node", "bare", "ceiling"}),
        ),
        Workload(
            key="W4",
            title="Request and response through an idle worker in another process",
            metrics=W4_METRICS,
            run=calls,
            least=True,
        ),
    )
}
