"""Run one workload of one library in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import IO, Any, Final, cast

from benchmarks.install import ROOT, Pin, has_node, home_of, node, pins, python_of
from benchmarks.machine import Bench

LIMIT_S: Final = 600

Figures = dict[str, Any]


class PeerFailed(Exception):
    """A workload ended badly or not in time; the message ends with what it said."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A library and how its workloads are started; they all speak JSON lines."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    by_port: bool = False
    scheme: str = ""
    """What stands before the URL of the server: which layout."""
    where: str = ""
    """A place of its own, instead of the server's URL."""

    def argv(self, verb: str, bench: Bench, queue: str, jobs: int, concurrency: int) -> list[str]:
        """The command line of one workload."""
        server = str(bench.port) if self.by_port else self.scheme + bench.url
        where = self.where or server
        return [*self.command, verb, where, queue, str(jobs), str(concurrency)]

    def run(
        self,
        verb: str,
        bench: Bench,
        queue: str,
        jobs: int,
        concurrency: int,
        *,
        env: Mapping[str, str] | None = None,
        limit_s: float = LIMIT_S,
    ) -> Figures:
        """Run a workload to its end."""
        argv = self.argv(verb, bench, queue, jobs, concurrency)
        with self._started(argv, env) as (process, said):
            return self._last_line(process, said, limit_s)

    @contextmanager
    def serve(
        self,
        bench: Bench,
        queue: str,
        jobs: int,
        concurrency: int,
        url: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        limit_s: float = LIMIT_S,
    ) -> Iterator[Figures]:
        """Keep a worker running meanwhile; its figures are there afterwards, its `pid` at once."""
        argv = self.argv("serve", bench, queue, jobs, concurrency)
        if url is not None:
            argv[argv.index(bench.url)] = url
        with self._started(argv, env) as (process, said):
            assert process.stdout is not None
            if not process.stdout.readline():
                raise PeerFailed(f"{self.name}: the worker did not start: {_tail(said)}")
            figures: Figures = {"pid": process.pid}
            yield figures
            figures.update(self._last_line(process, said, limit_s))

    @contextmanager
    def _started(
        self, argv: list[str], env: Mapping[str, str] | None
    ) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
        """Start it in a session of its own, so that nothing it starts outlives this."""
        with tempfile.TemporaryFile("w+") as said:
            process = subprocess.Popen(
                argv,
                cwd=ROOT,
                env={**os.environ, **self.env, **(env or {})},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                start_new_session=True,
            )
            with process:
                try:
                    yield process, said
                finally:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)

    def _last_line(self, process: subprocess.Popen[str], said: IO[str], limit_s: float) -> Figures:
        try:
            out, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise PeerFailed(f"{self.name}: not done in {limit_s:g} s: {_tail(said)}") from None
        lines = [line for line in out.splitlines() if line.startswith("{")]
        if process.returncode or not lines:
            raise PeerFailed(f"{self.name}: ended with {process.returncode}: {_tail(said)}")
        return cast("Figures", json.loads(lines[-1]))


def _tail(said: IO[str]) -> str:
    """The last error it named, or else its last lines."""
    said.seek(0)
    lines = [line.strip() for line in said.read().splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line]
    return " / ".join(errors[-1:] or lines[-3:])[-400:]


_SOURCES: Final = {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}

TORIL: Final = Peer("toril", (sys.executable, "-m", "benchmarks.compare.adapters.toril"), _SOURCES)
TORIL_WIRE: Final = replace(TORIL, scheme="bullmq+")
UPKEEP: Final = replace(TORIL, command=(sys.executable, "-m", "benchmarks.upkeep_peer"))
"""Workloads that only toril has."""


def ceiling(kind: str) -> Peer:
    """The `batch` or the `official` scripts, driven as fast as the server takes them."""
    command = (sys.executable, "-m", "benchmarks.wire_peer", kind)
    return Peer(f"{kind} scripts", command, _SOURCES, scheme="bullmq+")


def peer_of(pin: Pin) -> Peer:
    """A pinned library, installed on first use."""
    home = home_of(pin)
    if pin.is_node:
        script = str(ROOT / "benchmarks" / "node" / pin.adapter)
        env = {"TORIL_PEER_DIR": str(home), "NODE_ENV": "production"}
        return Peer(pin.name, (node(), script), env, by_port=True)
    command = (str(python_of(home)), "-m", f"benchmarks.compare.adapters.{pin.adapter}")
    return Peer(pin.name, command, {"PYTHONPATH": str(ROOT)})


def node_peer() -> Peer | None:
    """Node's bullmq, installed on first use; None where there is no Node."""
    return peer_of(pins()["bullmq-node-5"]) if has_node() else None
