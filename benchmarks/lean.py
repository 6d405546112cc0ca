"""Measure the lean Redis storage: side by side with Node's bullmq, and against its own limits.

The servers are started here, on loopback and without persistence, pinned to one core; the clients
get the other. A figure is a median over repetitions, a ratio the median of the ratios within each
repetition. Machines differ and are noisy: compare ratios of one run.

    python -m benchmarks.lean [section ...] [--reps 3] [--jobs 20000] [--json file]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks import upkeep, versus
from benchmarks.machine import Bench, Cores, binaries, serving
from benchmarks.peers import Peer, node_peer
from benchmarks.report import Report, begin

SECTIONS: Final = {
    "bulk": "W2 bulk add and W3 drain: one worker process, concurrency 100, results kept",
    "call": "W4 request/response: an idle worker in another process",
    "pickup": "Pick-up: enqueue to an idle worker until its handler starts",
    "halfopen": "Half-open: the worker's connections fall silent, new ones work",
    "flat": "Flatness: server time per call with many and with few jobs waiting",
    "load": "Load test: one process, a shared connection",
}
_FEW: Final = 10_000
_COLUMNS: Final = {
    "pickup": ("toril", ""),
    "halfopen": ("toril", ""),
    "flat": ("many", "few"),
    "load": ("toril", ""),
}


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lean", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="section", help=", ".join(SECTIONS))
    parser.add_argument("--reps", type=int, default=3, help="repetitions (3)")
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs of W2 and W3 (20000)")
    parser.add_argument("--idle", type=float, default=2.0, help="seconds before a pick-up (2)")
    parser.add_argument("--million", action="store_true", help="flatness up to 1,000,000 jobs")
    parser.add_argument("--server", choices=("valkey", "redis", "both"), default="both")
    parser.add_argument("--no-node", action="store_true", help="leave Node's bullmq out")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    given = parser.parse_args(argv)
    for section in given.sections:
        if section not in SECTIONS:
            parser.error(f"no section {section!r}; there are {', '.join(SECTIONS)}")
    if given.jobs < 2_000:
        parser.error("--jobs: 2000 or more, for the first 1000 are the warm-up")
    return given


def command(section: str, given: argparse.Namespace) -> str:
    """The command that makes the figures of a section, and no others."""
    options = [f"--reps {given.reps}"]
    if section in ("bulk", "call"):
        options.append(f"--jobs {given.jobs}")
    if section == "pickup":
        options.append(f"--idle {given.idle:g}")
    if section == "flat" and given.million:
        options.append("--million")
    if given.server != "both":
        options.append(f"--server {given.server}")
    return f"python -m benchmarks.lean {section} {' '.join(options)}"


def measure(
    section: str, report: Report, bench: Bench, node: Peer | None, given: argparse.Namespace
) -> None:
    """Fill the report with the figures of one section on one server."""
    match section:
        case "bulk":
            versus.bulk(report, bench, node, given.reps, given.jobs)
        case "call":
            versus.call(report, bench, node, given.reps, given.jobs)
        case "pickup":
            upkeep.pickup(report, bench, given.reps, given.idle)
        case "halfopen":
            upkeep.halfopen(report, bench, given.reps)
        case "flat":
            many = 1_000_000 if given.million else 10 * _FEW
            upkeep.flat(report, bench, given.reps, _FEW, many)
        case "load":
            upkeep.load(report, bench, given.reps)


def main() -> None:
    """Measure what was asked for."""
    given = parse()
    cores = Cores.choose()
    node = None if given.no_node else node_peer()
    report = begin(cores, node.name if node else None)
    chosen = {name: binary for name, binary in binaries().items() if given.server in (name, "both")}
    for section in given.sections or SECTIONS:
        report.commands[section] = command(section, given)
        for binary in chosen.values():
            with serving(binary, cores) as bench:
                measure(section, report, bench, node, given)
        report.show(section, SECTIONS[section], _COLUMNS.get(section))
    if given.json is not None:
        report.save(given.json)


if __name__ == "__main__":
    main()
