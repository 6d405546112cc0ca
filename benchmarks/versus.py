"""W2, W3 and W4: toril side by side with Node's bullmq, repetition by repetition."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks.compare.adapters.measure import warm_up
from benchmarks.machine import Bench
from benchmarks.peers import TORIL, Figures, Peer
from benchmarks.report import Figure, Report

W2: Final = "W2 bulk add"
W3: Final = "W3 drain"
CONCURRENCY: Final = 100
CALLS_ALONE: Final = 2_000
CALLS_TOGETHER: Final = 5_000

Values = dict[tuple[str, str], list[float]]


def _both(node: Peer | None, rep: int) -> Sequence[Peer]:
    """Ours and theirs, in turns first, so that neither always gets the warmer machine."""
    peers = [TORIL] if node is None else [TORIL, node]
    return peers if rep % 2 == 0 else peers[::-1]


def _cost(bench: Bench, figures: Figures, jobs: int) -> dict[str, float]:
    """The costs of a job; the server's count the warm-up, hence its own number of jobs."""
    usage = bench.usage()
    return {
        "client CPU": figures["cpu_us"] / figures["jobs"],
        "server CPU": usage.cpu_us / jobs,
        "server time in scripts": usage.script_us / jobs,
    }


def bulk(report: Report, bench: Bench, node: Peer | None, reps: int, jobs: int) -> None:
    """W2 and W3 beside Node."""
    others = {"bulk": node}
    targets = {("bulk", W2): "≥ 6 × Node", ("bulk", W3): "≥ 3 × Node"}
    add_and_drain(report, bench, TORIL, others, targets, reps, jobs)


def add_and_drain(
    report: Report,
    bench: Bench,
    ours: Peer,
    others: Mapping[str, Peer | None],
    targets: Mapping[tuple[str, str], str],
    reps: int,
    jobs: int,
) -> None:
    """W2 and W3: add the jobs in bulk, then let one worker process drain them.

    `others` are those we are compared with, by the section of the report that does it.
    """
    values: Values = defaultdict(list)
    peers = [ours, *(other for other in others.values() if other is not None)]
    for rep in range(reps):
        for peer in peers[:: -1 if rep % 2 else 1]:
            bench.clear()
            for work, verb in ((W2, "add"), (W3, "drain")):
                bench.reset()
                figures = peer.run(verb, bench, "bench", jobs, CONCURRENCY)
                rate = figures["jobs"] / figures["seconds"]
                values[work, peer.name].append(rate)
                for what, cost in _cost(bench, figures, jobs).items():
                    values[f"{work}: {what}", peer.name].append(cost)
    for section, other in others.items():
        for work in (W2, W3):
            target = targets.get((section, work), "")
            _collect(report, section, bench, work, "jobs/s", values, other, target)
            for what in ("client CPU", "server CPU", "server time in scripts"):
                _collect(report, section, bench, f"{work}: {what}", "µs/job", values, other)


def call(report: Report, bench: Bench, node: Peer | None, reps: int, jobs: int) -> None:
    """W4: request and response through an idle worker in another process."""
    values: Values = defaultdict(list)
    loads = ((1, min(jobs, CALLS_ALONE)), (CONCURRENCY, min(jobs, CALLS_TOGETHER)))
    for rep in range(reps):
        for peer in _both(node, rep):
            for callers, calls in loads:
                _call_once(values, bench, peer, callers, calls)
    for callers, _ in loads:
        for cut in ("p50", "p99"):
            target = "below Node"
            _collect(report, "call", bench, _w4(callers, cut), "ms", values, node, target)
        for what in ("client CPU", "server CPU", "server time in scripts"):
            _collect(report, "call", bench, _w4(callers, what), "µs/call", values, node)


def _w4(callers: int, what: str) -> str:
    return f"W4, {callers} at once: {what}"


def _call_once(values: Values, bench: Bench, peer: Peer, callers: int, calls: int) -> None:
    bench.clear()
    with peer.serve(bench, "bench", calls, CONCURRENCY) as worker:
        bench.reset()
        figures = peer.run("call", bench, "bench", calls, callers)
        warm = warm_up(calls)
        costs = _cost(bench, figures, calls + warm)
    costs["client CPU"] += worker["cpu_us"] / (calls + warm)
    cuts = statistics.quantiles(figures["latencies"], n=100, method="inclusive")
    values[_w4(callers, "p50"), peer.name].append(cuts[49])
    values[_w4(callers, "p99"), peer.name].append(cuts[98])
    for what, cost in costs.items():
        values[_w4(callers, what), peer.name].append(cost)


def _collect(
    report: Report,
    section: str,
    bench: Bench,
    what: str,
    unit: str,
    values: Values,
    node: Peer | None,
    target: str = "",
) -> None:
    report.add(
        Figure(
            section=section,
            server=bench.name,
            what=what,
            unit=unit,
            toril=values[what, TORIL.name],
            peer=[] if node is None else values[what, node.name],
            target=target if node else "",
        )
    )
