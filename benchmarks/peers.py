"""Run one workload of one library in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

from benchmarks.machine import Bench

BULLMQ: Final = "5.62.0"
LIMIT_S: Final = 600
ROOT: Final = Path(__file__).resolve().parent.parent

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Peer:
    """A library and how its workloads are started; they all speak JSON lines."""

    name: str
    command: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    by_port: bool = False
    scheme: str = ""
    """What stands before the URL of the server: which layout."""

    def argv(self, verb: str, bench: Bench, queue: str, jobs: int, concurrency: int) -> list[str]:
        """The command line of one workload."""
        where = str(bench.port) if self.by_port else self.scheme + bench.url
        return [*self.command, verb, where, queue, str(jobs), str(concurrency)]

    def run(self, verb: str, bench: Bench, queue: str, jobs: int, concurrency: int) -> Figures:
        """Run a workload to its end."""
        done = subprocess.run(
            self.argv(verb, bench, queue, jobs, concurrency),
            cwd=ROOT,
            env={**os.environ, **self.env},
            check=True,
            stdout=subprocess.PIPE,
            timeout=LIMIT_S,
        )
        return cast("Figures", json.loads(done.stdout.splitlines()[-1]))

    @contextmanager
    def serve(
        self, bench: Bench, queue: str, jobs: int, concurrency: int, url: str | None = None
    ) -> Iterator[Figures]:
        """Keep a worker running meanwhile; its figures are there afterwards."""
        argv = self.argv("serve", bench, queue, jobs, concurrency)
        if url is not None:
            argv[argv.index(bench.url)] = url
        figures: Figures = {}
        with subprocess.Popen(
            argv,
            cwd=ROOT,
            env={**os.environ, **self.env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            try:
                assert process.stdout.readline(), f"{self.name}: the worker did not start"
                yield figures
                last, _ = process.communicate(timeout=LIMIT_S)
                figures.update(json.loads(last.splitlines()[-1]))
            finally:
                process.kill()


TORIL: Final = Peer("toril", (sys.executable, "-m", "benchmarks.lean_peer"))
TORIL_WIRE: Final = replace(TORIL, scheme="bullmq+")


def ceiling(kind: str) -> Peer:
    """The `batch` or the `official` scripts, driven as fast as the server takes them."""
    command = (sys.executable, "-m", "benchmarks.wire_peer", kind)
    return Peer(f"{kind} scripts", command, scheme="bullmq+")


def cache_home() -> Path:
    """Where the peers are installed: never inside the repository."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "toril-bench"


def node_peer() -> Peer | None:
    """Node's bullmq, installed on first use; None where there is no Node."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    home = cache_home() / f"bullmq-{BULLMQ}"
    if not (home / "node_modules" / "bullmq").is_dir():
        install(npm, home, [f"bullmq@{BULLMQ}"])
    script = ROOT / "benchmarks" / "node" / "bullmq.mjs"
    return Peer(
        f"Node bullmq {BULLMQ}",
        (node, str(script)),
        env={"TORIL_PEER_DIR": str(home), "NODE_ENV": "production"},
        by_port=True,
    )


def install(npm: str, home: Path, packages: Sequence[str]) -> None:
    """Install packages for Node into a folder of their own."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "package.json").write_text('{"private": true}\n')
    options = ("--no-audit", "--no-fund", "--silent")
    subprocess.run([npm, "install", *options, *packages], cwd=home, check=True, timeout=LIMIT_S)
