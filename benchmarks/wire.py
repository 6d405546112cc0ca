"""Measure the BullMQ wire: beside Node's bullmq, and against the ceiling of its scripts.

W2 adds jobs in bulk, W3 drains them by one worker process. The ceiling is what the same scripts
do when every command is packed beforehand, so that the server is the limit: ours, which take 25
plain jobs a call, and the official ones, which take one. All of it happens in every repetition;
the server is pinned to one core, the clients to the other.

    python -m benchmarks.wire [--server valkey|redis] [--reps 3] [--jobs 20000] [--json file]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.machine import Cores, binaries, serving
from benchmarks.peers import TORIL_WIRE, ceiling, node_peer
from benchmarks.report import begin
from benchmarks.versus import W2, W3, add_and_drain

SECTIONS: Final = {
    "node": "Beside Node: one worker process, concurrency 100, results kept",
    "batch": "Against the ceiling of our batch scripts",
    "official": "Against the ceiling of the official scripts",
}
TARGETS: Final = {
    ("node", W2): "≥ 4 × Node",
    ("node", W3): "≥ 1.5 × Node",
    ("batch", W3): "≥ 0.7 of the ceiling",
}


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wire", description=__doc__)
    parser.add_argument("--reps", type=int, default=3, help="repetitions (3)")
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs (20000)")
    parser.add_argument("--server", choices=("valkey", "redis", "both"), default="both")
    parser.add_argument("--no-node", action="store_true", help="leave Node's bullmq out")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    given = parser.parse_args(argv)
    if given.jobs < 2_000 or given.jobs % 100:
        parser.error("--jobs: 2000 or more, in hundreds; the first 1000 are the warm-up")
    return given


def main() -> None:
    """Measure."""
    given = parse()
    cores = Cores.choose()
    node = None if given.no_node else node_peer()
    report = begin(cores, node.name if node else None)
    others = {"node": node, "batch": ceiling("batch"), "official": ceiling("official")}
    for name, binary in binaries().items():
        if given.server in (name, "both"):
            with serving(binary, cores) as bench:
                add_and_drain(report, bench, TORIL_WIRE, others, TARGETS, given.reps, given.jobs)
    only = "" if given.server == "both" else f" --server {given.server}"
    for section, title in SECTIONS.items():
        peer = others[section]
        report.commands[section] = (
            f"python -m benchmarks.wire --reps {given.reps} --jobs {given.jobs}{only}"
        )
        report.show(section, title, ("toril", peer.name if peer else ""))
    if given.json is not None:
        report.save(given.json)


if __name__ == "__main__":
    main()
