"""Guard against slow loss: CPU time per job, as a multiple of the ceiling's, beside a baseline.

    python -m benchmarks.compare.guard [--reps 15] [--jobs 20000] [--update]

A bulk add and a drain of toril, and right beside each the same jobs by the official scripts at the
speed of the server, in every repetition. Those scripts never change here, so the ratio of CPU times
moves with toril and hardly with the machine; many short repetitions make up for one that is shared.
A loss of more than a quarter against `benchmarks/baseline.json` fails; `--update` writes that file
anew.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Final

from benchmarks.compare.basic import bulk, drain
from benchmarks.compare.field import entries
from benchmarks.compare.records import ratios
from benchmarks.compare.stage import Sizes, Values, on_stage
from benchmarks.install import ROOT
from benchmarks.machine import Cores, binaries, serving

BASELINE: Final = ROOT / "benchmarks" / "baseline.json"
ALLOWED: Final = 1.25
LIMIT_S: Final = 300
BUSY: Final = 2.5
"""Two processes run at a time, so more are not ours."""
LAYOUTS: Final = {"lean": "toril-lean", "wire": "toril-wire"}
CEILING: Final = "ceiling-official"
WORK: Final = {"W2": bulk, "W3": drain}


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


def cpu_per_job(values: Values) -> float:
    """What client and server spent on a job."""
    return values["client µs/job"] + values["server µs/job"]


def measure(reps: int, jobs: int) -> dict[str, float]:
    """Multiples of the ceiling's CPU time, the median over the repetitions."""
    cores, known = Cores.choose(), entries()
    keys = (LAYOUTS["lean"], CEILING, LAYOUTS["wire"])  # each layout has the ceiling beside it
    spent: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    with serving(binaries()["valkey"], cores) as bench:
        for rep in range(reps):
            for (work, run), key in product(WORK.items(), keys[:: -1 if rep % 2 else 1]):
                entry = known[key]
                with on_stage(entry, entry.open(), bench, Sizes.of(jobs), LIMIT_S) as stage:
                    cost = spent[work, key][rep] = cpu_per_job(run(stage))
                print(f"rep {rep + 1}, {work} {entry.name}: {cost:.1f} µs/job", flush=True)
    return {
        f"{work} {layout}": statistics.median(ratios(spent[work, key], spent[work, CEILING]))
        for layout, key in LAYOUTS.items()
        for work in WORK
    }


def losses(
    now: Mapping[str, float], baseline: Mapping[str, float], allowed: float = ALLOWED
) -> list[str]:
    """Name what costs more than it may, with both numbers."""
    return [
        f"{name}: {now[name]:.2f} × the ceiling, {now[name] / before:.2f} of the baseline's "
        f"{before:.2f}; {allowed:g} is allowed"
        for name, before in baseline.items()
        if name in now and now[name] > before * allowed
    ]


def main() -> None:
    """Measure, then compare or write the baseline."""
    given = parse()
    if not given.update and not given.baseline.is_file():
        raise SystemExit(f"no baseline {given.baseline.name}; make one with --update")
    now = measure(given.reps, given.jobs)
    load = os.getloadavg()[0]
    if load > BUSY:
        print(f"load average {load:.1f}: other programs ran; do not trust this, repeat it alone")
    for name, value in now.items():
        print(f"{name}: {value:.2f} × the ceiling's CPU time per job")
    if given.update:
        given.baseline.parent.mkdir(parents=True, exist_ok=True)
        given.baseline.write_text(
            json.dumps({name: round(value, 3) for name, value in now.items()}, indent=1) + "\n"
        )
        print(f"wrote {given.baseline.name}")
        return
    lost = losses(now, json.loads(given.baseline.read_text()))
    print("\n".join(lost) if lost else "no loss of more than a quarter against the baseline")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
