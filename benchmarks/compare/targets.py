"""What the project wants to reach, checked against a run: ratios within its repetitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.compare.field import Entry, entries
from benchmarks.compare.records import ByRep, Results, Spread, ratios
from benchmarks.compare.table import number

LEAN: Final = "toril-lean"
WIRE: Final = "toril-wire"
LEAN_PLAIN: Final = "toril-lean-plain"
WIRE_PLAIN: Final = "toril-wire-plain"
MEMORY: Final = "toril-memory"
FILE: Final = "toril-file"
NODE: Final = "bullmq-node-5"
PYTHON: Final = "the best Python peer"
ASYNCIO: Final = "the best asyncio peer"
ANYBODY: Final = "the best peer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A figure of ours, alone or by that of another, and its limit."""

    workload: str
    metric: str
    ours: str
    other: str = ""
    at_least: float | None = None
    at_most: float | None = None

    @property
    def limit(self) -> str:
        """The limit in words."""
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return f"≤ {self.at_most:g}"

    def met(self, value: float) -> bool:
        """Whether a value keeps within the limit."""
        if self.at_least is not None:
            return value >= self.at_least
        return self.at_most is None or value <= self.at_most


def _least(
    workload: str, metric: str, ours: Sequence[str], other: str, limit: float
) -> list[Target]:
    return [
        Target(workload=workload, metric=metric, ours=one, other=other, at_least=limit)
        for one in ours
    ]


def _most(
    workload: str, metrics: Sequence[str], ours: Sequence[str], limit: float, other: str = ""
) -> list[Target]:
    return [
        Target(workload=workload, metric=metric, ours=one, other=other, at_most=limit)
        for metric in metrics
        for one in ours
    ]


_CALLS: Final = [f"p{cut} ms, {callers} at once" for callers in (1, 100) for cut in (50, 99)]
_BOTH: Final = (WIRE, LEAN)
_OPERATIONS: Final = ("operations-lean", "operations-wire", "operations-file")

TARGETS: Final = (
    *_least("W1", "jobs/s", _BOTH, ASYNCIO, 1),
    *_least("W2", "jobs/s", [WIRE], NODE, 4),
    *_least("W2", "jobs/s", [LEAN], NODE, 6),
    *_least("W3", "jobs/s", [WIRE], NODE, 1.5),
    *_least("W3", "jobs/s", [WIRE], PYTHON, 10),
    *_least("W3", "jobs/s", [WIRE], "ceiling-wire", 0.7),
    *_least("W3", "jobs/s", [WIRE], "ceiling-batch", 0.7),
    *_least("W3", "jobs/s", [LEAN], NODE, 3),
    *_least("W3", "jobs/s", [LEAN], PYTHON, 15),
    *_least("W3", "jobs/s", [MEMORY], NODE, 4),
    *_least("W3", "jobs/s", [FILE], "job-queue-file", 1),
    *_least("W3", "jobs/s", [WIRE_PLAIN, LEAN_PLAIN], PYTHON, 3),
    *_most("W4", _CALLS, _BOTH, 1, ANYBODY),
    *_least("W6", "of the ideal, 100 at once", _BOTH, "", 0.95),
    *_least("W6", "of the ideal, 1,000 at once", _BOTH, "", 0.9),
    *_most("W8", ["% of a core"], _BOTH, 0.2),
    *_most("W8", ["commands/s"], _BOTH, 1),
    *_most("W9", ["work µs/job, growth", "add µs/job, growth"], _BOTH, 1.3),
    *_most("W9", ["worker MB, growth"], _BOTH, 1.1),
    *_most("W10", ["p99 ms late"], _BOTH, 50),
    *_most("W11", ["claim", "event"], _OPERATIONS, 5),
    *_most("W11", ["read", "settle", "renew", "progress", "log"], _OPERATIONS, 10),
    *_most("W11", ["reap of 10,000"], _OPERATIONS, 100),
)


def check(results: Results, targets: Sequence[Target] = TARGETS) -> list[list[str]]:
    """One row per target and server that the run has figures for; the first row is the header."""
    lines = [["target", "server", "limit", "reached", ""]]
    for target in targets:
        for key, server in results.pairs():
            if key != target.workload:
                continue
            reached = _reached(results, server, target)
            if reached is not None:
                verdict = "met" if target.met(reached.median) else "**missed**"
                lines.append([_words(target), server, target.limit, _span(reached), verdict])
    return lines


def _reached(results: Results, server: str, target: Target) -> Spread | None:
    known = entries()
    ours = results.values(target.workload, server, known[target.ours].name, target.metric)
    if not target.other:
        return Spread.of(ours.values())
    return Spread.of(ratios(ours, _others(results, server, target)))


def _others(results: Results, server: str, target: Target) -> ByRep:
    known = entries()
    kinds: dict[str, Callable[[Entry], bool]] = {
        PYTHON: lambda entry: entry.kind == "python",
        ASYNCIO: lambda entry: entry.kind == "python" and not entry.threads,
        ANYBODY: lambda entry: entry.kind in ("python", "node"),
    }
    if target.other not in kinds:
        name = known[target.other].name
        return results.reference(target.workload, server, name, target.metric)
    names = [entry.name for entry in known.values() if kinds[target.other](entry)]
    least = target.at_most is not None
    return results.best(target.workload, server, target.metric, names, least=least)


def _words(target: Target) -> str:
    known = entries()
    what = f"{target.workload} {known[target.ours].name}: {target.metric}"
    if not target.other:
        return what
    other = known[target.other].name if target.other in known else target.other
    return f"{what} / {other}"


def _span(spread: Spread) -> str:
    if spread.low == spread.high:
        return number(spread.median)
    return f"{number(spread.median)} ({number(spread.low)}–{number(spread.high)})"
