"""Measure toril on Spark: `python -m benchmarks.spark [section ...] [--reps 3]`.

Each figure is a median over repetitions, beside what the same work costs without Spark in the same
run; a ratio is the median of those within each repetition, with the smallest and the largest.
Servers are started here, on loopback and without persistence. Machines differ and are noisy:
compare ratios of one run.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Final

from benchmarks.spark.figure import Figure
from toril.spark.session import open_session

SECTIONS: Final = {
    # First: its peak of memory is that of the whole session so far.
    "analytics": "Bronze to gold, 1,000,000 and 5,000,000 events",
    "events": "Events: read by Spark and by the blocking client alone",
    "jobs": "Jobs: read and written by Spark and by the client alone",
    "fleet": "Workers on executors and without Spark",
}


def show(figure: Figure) -> None:
    """Print one line: what, ours, the other, the ratio, the target."""
    other = "" if figure.other is None else f"{figure.other:,.2f}"
    print(
        f"  {figure.name:<58}{figure.ours:>14,.2f}{other:>14} {figure.unit:<9}"
        f"{figure.compared:>18}  {figure.target}",
        flush=True,
    )


def main() -> None:
    """Run the sections asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("section", nargs="*", choices=[*SECTIONS, []], help=", ".join(SECTIONS))
    parser.add_argument("--reps", type=int, default=3, help="repetitions (3)")
    asked = parser.parse_args()
    spark = open_session("local[2]", app="toril-bench")
    for name in asked.section or SECTIONS:
        print(f"\n{SECTIONS[name]}\n$ python -m benchmarks.spark {name} --reps {asked.reps}")
        print(f"  {'':<58}{'with Spark':>14}{'without':>14} {'unit':<9}{'ratio':>18}  target")
        for figure in import_module(f"benchmarks.spark.{name}").measure(spark, asked.reps):
            show(figure)
    spark.stop()


if __name__ == "__main__":
    main()
