"""Measure toril beside its peers, in one run, on servers of its own.

    python -m benchmarks.compare [W1 ...] [--peers arq,toril-lean] [--server valkey] [--reps 3]

Every peer is installed into an environment of its own on first use and runs as a process of its
own, with a time limit; one that fails is reported and the others go on. The server is pinned to one
core, the clients to the other. A figure is a median over repetitions, a ratio the median of the
ratios within each repetition. With `--turns` everybody has so many turns in a repetition, and the
median of them counts: where speeds change from minute to minute, one turn each tells little. Each
record is written down at once; `--from` shows them again.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any, Final

from benchmarks.compare.adapters.measure import Unsupported
from benchmarks.compare.field import NODE, Entry, entries
from benchmarks.compare.page import publish
from benchmarks.compare.records import Book, Record, Results, read
from benchmarks.compare.stage import Sizes, on_stage
from benchmarks.compare.table import number, rows, text
from benchmarks.compare.targets import check
from benchmarks.compare.workloads import WORKLOADS, Workload
from benchmarks.install import ROOT, NotInstalled, cache_home
from benchmarks.machine import Bench, Cores, binaries, serving
from benchmarks.peers import Peer, PeerFailed
from toril import __version__

SIDE_BY_SIDE: Final = ("toril-lean", NODE, "toril-wire")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("workloads", nargs="*", metavar="W", help="which (all)")
    parser.add_argument("--peers", default="", help="their keys, with commas (all)")
    parser.add_argument("--server", choices=("valkey", "redis", "both"), default="both")
    parser.add_argument("--reps", type=int, default=3, help="repetitions (3)")
    parser.add_argument("--turns", type=int, default=1, help="turns in a repetition (1)")
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs of W2 and W3 (20000)")
    parser.add_argument("--million", action="store_true", help="W9 up to 1,000,000 jobs")
    parser.add_argument("--limit", type=float, default=300, help="seconds for one process (300)")
    parser.add_argument("--out", type=Path, help="where to write the records down")
    parser.add_argument("--from", type=Path, nargs="+", dest="files", help="show these records")
    parser.add_argument("--page", action="store_true", help="write tables and pictures into docs")
    parser.add_argument("--list", action="store_true", help="name peers and workloads, and end")
    given = parser.parse_args(argv)
    for kind, names, known in (
        ("workload", given.workloads, WORKLOADS),
        ("peer", [key for key in given.peers.split(",") if key], entries()),
    ):
        if unknown := [name for name in names if name not in known]:
            parser.error(f"no {kind} {unknown[0]!r}; there are {', '.join(known)}")
    if given.jobs < 400 or given.jobs % 100:
        parser.error("--jobs: 400 or more, in hundreds; a quarter, at most 1000, is the warm-up")
    return given


def about(cores: Cores) -> dict[str, Any]:
    """What is measured, and where."""
    return {
        "toril": __version__,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "placement": str(cores),
        "begun": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"python -m benchmarks.compare {shlex.join(sys.argv[1:])}".strip(),
    }


def opened(given: argparse.Namespace) -> list[tuple[Entry, Peer]]:
    """Those who take part, installed; who cannot be is reported and left out."""
    wanted = [key for key in given.peers.split(",") if key] or in_turn()
    found = []
    for key in wanted:
        entry = entries()[key]
        try:
            found.append((entry, entry.open()))
        except NotInstalled as reason:
            print(f"{entry.name}: left out, not installed: {reason}", flush=True)
    return found


def in_turn() -> list[str]:
    """Everybody, with both layouts right beside the one they are compared with: speeds drift."""
    return [*SIDE_BY_SIDE, *(key for key in entries() if key not in SIDE_BY_SIDE)]


def takes_part(workload: Workload, entry: Entry) -> bool:
    """Whether a workload is meant for one of this kind."""
    able = not entry.only or workload.key in entry.only
    return able and entry.kind in workload.kinds and entry.place in workload.places


def measure(
    workload: Workload, entry: Entry, peer: Peer, bench: Bench, rep: int, sizes: Sizes, limit: float
) -> Record:
    """Run one workload of one peer; whatever happens becomes a record."""
    load, begun = os.getloadavg()[0], time.perf_counter()
    values: dict[str, float] = {}
    note, failed = "", False
    try:
        with on_stage(entry, peer, bench, sizes, limit) as stage:
            values = workload.run(stage)
    except Unsupported as reason:
        note = str(reason)
    except PeerFailed as reason:
        note, failed = f"failed: {reason}", True
    except Exception as reason:  # whatever a peer does, the others go on
        note, failed = f"failed: {type(reason).__name__}: {reason}", True
    return Record(
        workload=workload.key,
        server=bench.name if entry.place == "server" else "no server",
        peer=entry.name,
        rep=rep,
        values=values,
        note=note,
        failed=failed,
        load=load,
        seconds=time.perf_counter() - begun,
    )


def runs(
    chosen: Sequence[Workload],
    field: Sequence[tuple[Entry, Peer]],
    first: bool,
    rep: int,
    turns: int = 1,
) -> Iterator[tuple[Workload, Entry, Peer]]:
    """The runs of a repetition, every other turn backwards; who needs no server runs once."""
    for workload in chosen:
        some = [
            (workload, entry, peer)
            for entry, peer in field
            if takes_part(workload, entry) and (first or entry.place == "server")
        ]
        for turn in range(rep, rep + turns):
            yield from some[:: -1 if turn % 2 else 1]


def run_all(given: argparse.Namespace) -> Results:
    """Measure everything asked for, and say how it goes."""
    cores = Cores.choose()
    facts = about(cores)
    stamp = facts["begun"][:19].replace(":", "")
    path = given.out or cache_home() / "results" / f"{stamp}.jsonl"
    print(", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    field = opened(given)
    chosen = [WORKLOADS[key] for key in given.workloads or WORKLOADS]
    servers = [file for name, file in binaries().items() if given.server in (name, "both")]
    sizes = Sizes.of(given.jobs, million=given.million)
    book = Book(path, facts)
    total = given.reps * sum(
        sum(1 for _ in runs(chosen, field, not at, 0, given.turns)) for at, _ in enumerate(servers)
    )
    done, begun = 0, time.perf_counter()
    with suppress(KeyboardInterrupt):  # what was measured until then is shown all the same
        for rep, (at, binary) in product(range(given.reps), enumerate(servers)):
            with serving(binary, cores) as bench:
                for workload, entry, peer in runs(chosen, field, not at, rep, given.turns):
                    record = measure(workload, entry, peer, bench, rep, sizes, given.limit)
                    book.add(record)
                    done += 1
                    left = (time.perf_counter() - begun) / done * (total - done) / 60
                    print(f"[{done}/{total}, {left:.0f} min left] {progress(record, workload)}")
                    sys.stdout.flush()
    path.with_suffix(".txt").write_text(tables(book.results), encoding="utf-8")
    print(f"\nrecords: {path}, tables beside them as .txt\n")
    return book.results


def progress(record: Record, workload: Workload) -> str:
    """One line on one run."""
    main = workload.metrics[0]
    said = f"{number(record.values[main])} {main}" if main in record.values else record.note
    where = f"rep {record.rep + 1}, {record.server}, {record.workload}"
    return f"{where}, {record.peer}: {said} ({record.seconds:.1f} s, load {record.load:.1f})"


def tables(results: Results) -> str:
    """All tables, then the targets."""
    reference, parts = entries()[NODE].name, []
    for key, server in results.pairs():
        workload = WORKLOADS[key]
        table = text(rows(results, key, server, workload.metrics, reference))
        parts.append(f"{key} {workload.title}\n{results.conditions(key, server)}\n{table}")
    goals = check(results)
    if len(goals) > 1:
        parts.append(f"Targets\n{text(goals)}")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Measure, or show what was measured."""
    given = parse()
    if given.list:
        for key, entry in entries().items():
            print(f"{key:<20}{entry.name}")
        for key, workload in WORKLOADS.items():
            print(f"{key:<20}{workload.title}")
        return
    results = read(given.files) if given.files else run_all(given)
    print(tables(results))
    if given.page:
        for path in publish(results):
            print(f"wrote {path.relative_to(ROOT)}")
    if any(one.failed for one in results.records):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
