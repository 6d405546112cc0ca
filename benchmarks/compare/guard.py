"""Guard against slow loss: CPU time per job, as a multiple of the ceilings', beside a baseline.

    python -m benchmarks.compare.guard [--reps 15] [--jobs 20000] [--update]

A bulk add and a drain of toril, and right beside each what never changes here: the same jobs by the
official scripts, which tell what the server's core can do, and a bare asyncio loop, which tells
what Python can do on the client's. Machines differ in how fast one is beside the other, so each
side is held against its own; many short repetitions make up for a machine that is shared. CPU time
of both sides together that is more than a quarter above what `benchmarks/baseline.json` stands for
on this machine fails; `--update` writes that file anew.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

from benchmarks.compare.basic import bulk, drain
from benchmarks.compare.field import entries
from benchmarks.compare.stage import Sizes, Values, on_stage
from benchmarks.install import ROOT
from benchmarks.machine import Cores, binaries, serving

BASELINE: Final = ROOT / "benchmarks" / "baseline.json"
ALLOWED: Final = 1.25
LIMIT_S: Final = 300
BUSY: Final = 2.5
"""Two processes run at a time, so more are not ours."""
SIDES: Final = ("client µs/job", "server µs/job")
LAYOUTS: Final = {"lean": "toril-lean", "wire": "toril-wire"}
OFFICIAL: Final = "ceiling-official"
"""What the server's side is held against."""
BARE: Final = "asyncio"
"""What the client's side is held against."""
BARE_JOBS: Final = 10
"""So many times as many jobs: it is that much quicker."""
WORK: Final = {"W2": bulk, "W3": drain}


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU time of a job on both sides: in µs, or as multiples of the ceilings'."""

    client: float
    server: float


Costs = dict[str, Cost]


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare.guard",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--reps", type=int, default=15, help="repetitions (15)")
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs (20000)")
    parser.add_argument("--baseline", type=Path, default=BASELINE, help="the file to compare with")
    parser.add_argument("--update", action="store_true", help="make this run the baseline")
    return parser.parse_args(argv)


def measure(reps: int, jobs: int) -> tuple[Costs, Costs]:
    """What a job costs toril as a multiple of the ceilings, and these in µs; medians."""
    cores, known = Cores.choose(), entries()
    order = (LAYOUTS["lean"], OFFICIAL, BARE, LAYOUTS["wire"])  # the ceilings beside each layout
    spent: dict[tuple[str, str], dict[int, Values]] = defaultdict(dict)
    with serving(binaries()["valkey"], cores) as bench:
        for rep in range(reps):
            for work, key in product(WORK, order[:: -1 if rep % 2 else 1]):
                entry = known[key]
                run = drain if key == BARE else WORK[work]
                sizes = Sizes.of(jobs * BARE_JOBS if key == BARE else jobs)
                with on_stage(entry, entry.open(), bench, sizes, LIMIT_S) as stage:
                    values = spent[work, key][rep] = run(stage)
                sides = (f"{side} {values[side]:.2f}" for side in SIDES if side in values)
                print(f"rep {rep + 1}, {work} {entry.name}: {', '.join(sides)}", flush=True)
    now: Costs = {}
    ceilings: Costs = {}
    for (layout, key), work in product(LAYOUTS.items(), WORK):
        ours, official, bare = (spent[work, one] for one in (key, OFFICIAL, BARE))
        name = f"{work} {layout}"
        now[name] = Cost(_ratio(ours, bare, SIDES[0]), _ratio(ours, official, SIDES[1]))
        ceilings[name] = Cost(_median(bare, SIDES[0]), _median(official, SIDES[1]))
    return now, ceilings


def _ratio(ours: Mapping[int, Values], theirs: Mapping[int, Values], side: str) -> float:
    return statistics.median(ours[rep][side] / theirs[rep][side] for rep in ours)


def _median(spent: Mapping[int, Values], side: str) -> float:
    return statistics.median(values[side] for values in spent.values())


def in_us(cost: Cost, ceiling: Cost) -> float:
    """What a job costs both sides together where the ceilings cost this."""
    return cost.client * ceiling.client + cost.server * ceiling.server


def losses(
    now: Mapping[str, Cost],
    ceilings: Mapping[str, Cost],
    baseline: Mapping[str, Cost],
    allowed: float = ALLOWED,
) -> list[str]:
    """Name what costs more than it may, with both numbers."""
    said = []
    for name, before in baseline.items():
        if name not in now:
            continue
        cost, once = in_us(now[name], ceilings[name]), in_us(before, ceilings[name])
        if cost > once * allowed:
            said.append(
                f"{name}: {cost:.1f} µs a job, {cost / once:.2f} of the baseline, which is"
                f" {once:.1f} µs here; {allowed:g} is allowed"
            )
    return said


def read_baseline(path: Path) -> Costs:
    """Read what `write_baseline` wrote."""
    return {name: Cost(**cost) for name, cost in json.loads(path.read_text()).items()}


def write_baseline(path: Path, costs: Mapping[str, Cost]) -> None:
    """Write multiples of the ceilings down."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rounded = {
        name: {"client": round(cost.client, 3), "server": round(cost.server, 3)}
        for name, cost in costs.items()
    }
    path.write_text(json.dumps(rounded, indent=1) + "\n")


def main() -> None:
    """Measure, then compare or write the baseline."""
    given = parse()
    if not given.update and not given.baseline.is_file():
        raise SystemExit(f"no baseline {given.baseline.name}; make one with --update")
    now, ceilings = measure(given.reps, given.jobs)
    load = os.getloadavg()[0]
    if load > BUSY:
        print(f"load average {load:.1f}: other programs ran; do not trust this, repeat it alone")
    for name, cost in now.items():
        print(
            f"{name}: {in_us(cost, ceilings[name]):.1f} µs a job; client {cost.client:.2f} × bare"
            f" asyncio, server {cost.server:.2f} × the official scripts"
        )
    if given.update:
        write_baseline(given.baseline, now)
        print(f"wrote {given.baseline.name}")
        return
    lost = losses(now, ceilings, read_baseline(given.baseline))
    print("\n".join(lost) if lost else "no loss of more than a quarter against the baseline")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
