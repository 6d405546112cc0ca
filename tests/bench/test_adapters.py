"""The workloads of the adapters, on storages that need no server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from benchmarks.compare.adapters.measure import HANDLER, MARKS, RATE
from benchmarks.compare.field import entries
from benchmarks.install import ROOT
from benchmarks.machine import Bench
from benchmarks.peers import Figures, Peer


def peer(key: str, where: str) -> Peer:
    found = replace(entries()[key].open(), where=where)
    assert found.command[0] == sys.executable
    return found


def run(program: Peer, verb: str, jobs: int, **env: str) -> Figures:
    class Nowhere:
        port = 0
        url = ""

    return program.run(verb, cast("Bench", Nowhere()), "q", jobs, 10, env=env, limit_s=60)


@pytest.mark.parametrize("key", ["toril-memory", "toril-memory-plain", "asyncio"])
def test_a_drain_in_memory_runs_every_job_once(key: str) -> None:
    figures = run(peer(key, "memory:"), "drain", 40)
    assert (figures["ran"], figures["again"], figures["jobs"]) == (40, 0, 30)
    assert figures["cpu_us"] > 0
    assert figures["peak_mb"] > 0


def test_jobs_added_by_one_process_are_drained_by_another(tmp_path: Path) -> None:
    toril, marks = peer("toril-file", f"file:{tmp_path}"), tmp_path / "marks"
    marks.write_bytes(bytes(40))
    assert run(toril, "add", 40)["jobs"] == 30
    wait = {HANDLER: "wait:1", MARKS: str(marks)}
    assert run(toril, "drain", 40, **wait)["ran"] == 40
    assert marks.read_bytes() == bytes([1]) * 40


def test_each_call_has_a_latency() -> None:
    figures = run(peer("toril-memory", "memory:"), "call", 20)
    assert len(figures["latencies"]) == 20


def test_many_latencies_of_a_node_library_arrive_whole() -> None:
    """They are more than a pipe holds."""
    node = shutil.which("node") or ""
    if not node:
        reason = "node is not installed (Debian: apt-get install nodejs)"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    shared = (ROOT / "benchmarks" / "node" / "measure.mjs").as_uri()
    program = f"import {{ main }} from {shared!r}; await main({{ call: async () => {{}} }});"
    words = [
        "--input-type=module",
        "--eval",
        program,
        "--",
        "adapter",
        "call",
        "0",
        "q",
        "20000",
        "1",
    ]
    printed = subprocess.run([node, *words], capture_output=True, check=True, timeout=60).stdout
    assert len(printed) > 65536
    assert len(json.loads(printed)["latencies"]) == 20000


def test_what_a_library_cannot_do_is_said_so() -> None:
    said = run(peer("asyncio", "memory:"), "late", 4, **{RATE: "1"})
    assert said == {"unsupported": "no delayed jobs"}
