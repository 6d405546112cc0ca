"""Measure the file storage: beside @platformatic/job-queue's, between processes, at its limits.

Each workload runs in a process of its own, in a new directory. A figure is a median over
repetitions, a ratio the median of the ratios within each repetition. The disk decides what
`local` costs: compare ratios of one run.

    python -m benchmarks.file [section ...] [--reps 3] [--jobs 2000] [--dir folder] [--json file]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.compare.adapters.measure import payload
from benchmarks.install import ROOT, has_node, home_of, pins
from benchmarks.peers import LIMIT_S
from benchmarks.report import Figure, Report
from toril import FileStorage, Queue, __version__
from toril.job import JobSpec
from toril.outcome import Completed
from toril.storage.protocol import Claim

CALLERS: Final = 20
PICKUPS: Final = 200
FEW: Final = 10_000
MANY: Final = 300_000
ROUNDS: Final = 100
SECTIONS: Final = {
    "life": f"Add, run, done: one process, {CALLERS} callers, one job at a time each",
    "pickup": "Pick-up: enqueue until the handler starts in a process that never polls",
    "flat": f"Flatness: time per call with {MANY:,} and {FEW:,} jobs waiting, durability memory",
}


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.file", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="section", help=", ".join(SECTIONS))
    parser.add_argument("--reps", type=int, default=3, help="repetitions (3)")
    parser.add_argument("--jobs", type=int, default=2_000, help="jobs of the life (2000)")
    parser.add_argument("--dir", type=Path, help="where to put the storages (a temporary folder)")
    parser.add_argument("--no-node", action="store_true", help="leave the peer out")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    given = parser.parse_args(argv)
    for section in given.sections:
        if section not in SECTIONS:
            parser.error(f"no section {section!r}; there are {', '.join(SECTIONS)}")
    return given


def job_queue_home() -> Path | None:
    """Where the peer is, installed on first use; None where there is no Node."""
    return home_of(pins()["job-queue"]) if has_node() else None


@contextmanager
def folder(where: Path | None) -> Iterator[Path]:
    """A new folder, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="toril-bench-", dir=where) as name:
        yield Path(name)


def run(command: Sequence[str], env: dict[str, str] | None = None) -> float:
    """Run a workload to its end and return its jobs per second."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        check=True,
        stdout=subprocess.PIPE,
        timeout=LIMIT_S,
    )
    figures = json.loads(done.stdout.splitlines()[-1])
    return float(figures["jobs"] / figures["seconds"])


def ours(verb: str, directory: Path, jobs: int, callers: int, durability: str) -> list[str]:
    """The command line of a workload of ours."""
    program = [sys.executable, "-m", "benchmarks.file_peer", verb, str(directory)]
    return [*program, str(jobs), str(callers), durability]


def life(report: Report, given: argparse.Namespace, home: Path | None) -> None:
    """Compare whole lives of jobs, turn by turn."""
    rates: dict[str, list[float]] = {"local": [], "memory": [], "peer": [], "alone": []}
    script = str(ROOT / "benchmarks" / "node" / "job_queue.mjs")
    for _ in range(given.reps):
        with folder(given.dir) as at:
            for durability in ("local", "memory"):
                command = ours("life", at / durability, given.jobs, CALLERS, durability)
                rates[durability].append(run(command))
            rates["alone"].append(run(ours("life", at / "alone", given.jobs // 4, 1, "local")))
            if home is not None:
                node = ["node", script, "life", str(at / "peer"), str(given.jobs), str(CALLERS)]
                rates["peer"].append(run(node, {"TORIL_PEER_DIR": str(home)}))
    peer = rates["peer"]
    alone = Figure(
        section="life", server="local", what="1 caller", unit="jobs/s", toril=rates["alone"]
    )
    report.add(alone)
    for durability, target in (("local", ">= 1,000"), ("memory", "")):
        what = f"{CALLERS} callers"
        figure = Figure(
            section="life",
            server=durability,
            what=what,
            unit="jobs/s",
            toril=rates[durability],
            peer=peer,
            target=target,
        )
        report.add(figure)


def pickup(report: Report, given: argparse.Namespace) -> None:
    """Measure how soon a job handed in here starts over there."""
    middle: list[float] = []
    late: list[float] = []
    for _ in range(given.reps):
        with folder(given.dir) as at, _serving(at / "store"):
            delays = asyncio.run(_pick_up(at / "store"))
        middle.append(statistics.median(delays))
        late.append(max(delays))
    for what, values, target in (
        ("median", middle, ""),
        (f"latest of {PICKUPS}", late, "<= 50 ms"),
    ):
        report.add(
            Figure(
                section="pickup",
                server="local, poll off",
                what=what,
                unit="ms",
                toril=values,
                target=target,
            )
        )


@contextmanager
def _serving(directory: Path) -> Iterator[None]:
    """Keep a worker running in another process meanwhile."""
    with subprocess.Popen(
        ours("serve", directory, 0, 1, "local"),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), "the worker did not start"
            yield
        finally:
            process.kill()


async def _pick_up(directory: Path) -> list[float]:
    delays: list[float] = []
    async with Queue[Any, int]("serve", FileStorage(directory)) as queue:
        for number in range(PICKUPS):
            await asyncio.sleep(0.01)  # the worker goes back to sleep
            begun_us = time.monotonic_ns() // 1000
            seen_us = await queue.enqueue_and_wait(f"job-{number}", payload(number))
            delays.append((seen_us - begun_us) / 1000)
    return delays


def flat(report: Report, given: argparse.Namespace) -> None:
    """Compare the time of each call on a long and on a short line, turn by turn."""
    with folder(given.dir) as at:
        times = asyncio.run(_flatness(at, given.reps))
    for what, (many, few) in times.items():
        report.add(
            Figure(
                section="flat",
                server=f"{MANY:,} by {FEW:,}",
                what=what,
                unit="µs",
                toril=many,
                peer=few,
                target="<= 1.3",
            )
        )


async def _flatness(at: Path, reps: int) -> dict[str, tuple[list[float], list[float]]]:
    stores = {size: FileStorage(at / str(size), durability="memory") for size in (MANY, FEW)}
    for size, storage in stores.items():
        await storage.open()
        for first in range(0, size, 1000):
            await storage.enqueue("flat", _specs(f"fill-{first}", 1000))
    found: dict[str, tuple[list[float], list[float]]] = {}
    for rep in range(reps):
        for place, size in enumerate(stores):
            for what, micros in (await _calls(stores[size], rep)).items():
                found.setdefault(what, ([], []))[place].append(micros)
    for storage in stores.values():
        await storage.close()
    return found


def _specs(label: str, count: int) -> list[JobSpec]:
    body = json.dumps(payload(1)).encode()
    return [JobSpec(id=f"{label}-{number}", payload=body) for number in range(count)]


async def _calls(storage: FileStorage, rep: int) -> dict[str, float]:
    times: dict[str, list[float]] = {}

    def lap(what: str, begun: float) -> None:
        times.setdefault(what, []).append((time.perf_counter() - begun) * 1e6)

    for number in range(ROUNDS):
        label = f"r{rep}-{number}"
        begun = time.perf_counter()
        await storage.enqueue("flat", _specs(label, 10))
        lap("enqueue 10", begun)
        wish = Claim(token=label, worker_id="w", count=10, lease_ms=60_000)
        begun = time.perf_counter()
        batch = await storage.claim("flat", wish)
        lap("claim 10", begun)
        outcomes = [Completed(lease=job.lease, result=b"1") for job in batch.jobs]
        begun = time.perf_counter()
        await storage.settle("flat", outcomes)
        lap("settle 10", begun)
        begun = time.perf_counter()
        await storage.counts("flat")
        lap("counts", begun)
    return {what: statistics.median(values) for what, values in times.items()}


def main() -> None:
    """Measure what was asked for."""
    given = parse()
    home = None if given.no_node else job_queue_home()
    peer = pins()["job-queue"].name if home else None
    about = {
        "toril": __version__,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "peer": peer,
    }
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    report = Report(about=about, peer="job-queue" if peer else None)
    columns = {"pickup": ("toril", ""), "flat": ("many", "few")}
    for section in given.sections or SECTIONS:
        report.commands[section] = f"python -m benchmarks.file {section} --reps {given.reps}"
        if section == "life":
            life(report, given, home)
        elif section == "pickup":
            pickup(report, given)
        else:
            flat(report, given)
        report.show(section, SECTIONS[section], columns.get(section))
    if given.json is not None:
        report.save(given.json)


if __name__ == "__main__":
    main()
