"""Workers and calls from the command line, as real processes with real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import Done, toril
from tests.servers import Server, valkey_binary
from toril import SyncQueue
from toril.ids import ulid

TASKS = """
import asyncio, gc, os, time
from datetime import date
from pathlib import Path
from toril import Queue, Reject, Toril, Worker

app = Toril("sums")

@app.task
def add(a: int, b: int = 0) -> int:
    return a + b

@app.task
async def twice(a: int) -> str:
    return (await add.enqueue(a, a)).id

@app.task(attempts=1)
async def fail(reason: str) -> None:
    raise Reject(reason)

@app.task(queue="slow")
async def sleep(seconds: float) -> str:
    Path("started").touch()
    await asyncio.sleep(seconds)
    return "slept"

@app.task(queue="dates")
def later(day: date, *, text: str = "x") -> date:
    return day.replace(day=2)

@app.task(queue="pids")
def pid() -> int:
    time.sleep(0.05)
    return os.getpid()

@app.task(queue="gc")
def collector() -> list[int]:
    return [gc.get_freeze_count(), *gc.get_threshold()]

plain = Queue("plain")
worker = Worker(plain, lambda job: job.data, concurrency=2)
number = 5
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(valkey_binary()) as running:
        yield running


@pytest.fixture
def url(server: Server) -> str:
    return f"{server.url}?prefix=w{ulid()}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(TASKS)
    return tmp_path


def run(folder: Path, url: str, *args: str, code: int = 0) -> Done:
    done = toril(*args, cwd=folder, TORIL_URL=url)
    assert done.code == code, done.err + done.out
    return done


def start(folder: Path, url: str, *args: str) -> subprocess.Popen[str]:
    """Start a worker and wait until it said its first line."""
    process = subprocess.Popen(
        [sys.executable, "-m", "toril.cli", "worker", *args],
        cwd=folder,
        env={**os.environ, "TORIL_URL": url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    first = process.stderr.readline()
    assert first.startswith("toril "), first
    return process


def end(process: subprocess.Popen[str], *signals: signal.Signals) -> tuple[int, str, str]:
    for number in signals:
        process.send_signal(number)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_a_worker_says_what_it_does_and_a_call_gets_its_result(folder: Path, url: str) -> None:
    process = start(folder, url, "tasks:app", "-c", "5")
    try:
        assert run(folder, url, "call", "tasks", "add", "2", "3").out == "5\n"
        named = run(folder, url, "call", "tasks:app", "later", "day=2026-01-31", "text=7")
        assert named.out == '"2026-01-02"\n'
        failed = run(folder, url, "call", "tasks", "fail", "no money", code=1)
        assert "no money" in failed.err
        failed.check_brief()
    finally:
        code, out, err = end(process, signal.SIGINT)
    assert code == 0
    assert out.startswith("2 completed, 1 failed in ")
    assert " add " in err
    assert "picked up, attempt 1" in err
    assert "failed: Reject: no money" in err
    assert "stopping; 0 running jobs may finish" in err


def test_one_signal_drains_and_a_second_hands_back(folder: Path, url: str) -> None:
    process = start(folder, url, "tasks", "--queue", "slow")
    job_id = run(folder, url, "call", "tasks", "sleep", "600", "--no-wait").out.strip()
    while not (folder / "started").exists():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    while "stopping; 1 running" not in process.stderr.readline():
        pass
    code, _, err = end(process, signal.SIGINT)
    assert code == 130
    assert "stopping now; running jobs go back in line" in err
    with SyncQueue[object, object]("slow", url) as queue:
        job = queue.get_job(job_id)
    assert job is not None
    assert (str(job.state), job.attempts_made) == ("waiting", 0)


def test_a_burst_ends_with_a_telling_code(folder: Path, url: str) -> None:
    run(folder, url, "call", "tasks", "add", "1", "2", "--no-wait")
    fine = run(folder, url, "worker", "tasks", "--queue", "sums", "--burst", "--json")
    assert fine.json()["completed"] == 1
    run(folder, url, "call", "tasks", "fail", "never", "--no-wait")
    bad = run(folder, url, "worker", "tasks", "--queue", "sums", "--burst", "-q", code=1)
    assert bad.out.startswith("0 completed, 1 failed")
    empty = run(folder, url, "worker", "tasks", "--burst")
    assert empty.out.startswith("0 completed, 0 failed")


def test_a_crowd_of_jobs_is_told_by_the_second(folder: Path, url: str) -> None:
    with SyncQueue[object, object]("sums", url) as queue:
        from toril import NewJob

        queue.add_bulk([NewJob(name="add", data={"a": n}) for n in range(3000)])
    done = run(folder, url, "worker", "tasks", "--queue", "sums", "-c", "100", "--burst")
    assert done.out.startswith("3,000 completed, 0 failed")
    assert len([line for line in done.err.splitlines() if " add " in line]) <= 200


def test_a_worker_keeps_the_garbage_collector_out_of_its_way(folder: Path, url: str) -> None:
    process = start(folder, url, "tasks", "--queue", "gc")
    try:
        frozen, young, *_ = json.loads(run(folder, url, "call", "tasks", "collector").out)
    finally:
        end(process, signal.SIGINT)
    assert frozen > 1_000
    assert young == 50_000


def test_processes_share_the_work_and_end_together(folder: Path, url: str) -> None:
    for _ in range(3):
        run(folder, url, "call", "tasks", "pid", "--no-wait")
    done = run(folder, url, "worker", "tasks", "--queue", "pids", "--processes", "2", "--burst")
    sums = [line for line in done.out.splitlines() if "completed" in line]
    assert len(sums) == 2
    assert sum(int(line.split()[0]) for line in sums) == 3


def test_a_worker_object_is_run_as_it_is(folder: Path, url: str) -> None:
    run(folder, url, "enqueue", "plain", "7", "--id", "seven")
    done = run(folder, url, "worker", "tasks:worker", "--burst")
    assert done.out.startswith("1 completed")
    assert "queue plain · 2 at once" in done.err


def test_metrics_are_served_while_a_worker_runs(folder: Path, url: str) -> None:
    from urllib.request import urlopen

    process = start(folder, url, "tasks", "--queue", "sums", "--metrics-port", "0")
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("metrics at http://127.0.0.1:")
        run(folder, url, "call", "tasks", "twice", "2")
        with urlopen(line.split()[-1]) as answer:
            text = answer.read().decode()
        assert 'bullmq_jobs_processed_total{queue="sums",status="completed"}' in text
        assert 'toril_jobs_finished_total{name="twice",outcome="completed",queue="sums"}' in text
        assert 'toril_jobs_enqueued_total{name="add",queue="sums"} 1.0' in text
    finally:
        code, _, _ = end(process, signal.SIGTERM)
    assert code == 0


def test_each_of_several_processes_serves_metrics_on_a_port_of_its_own(
    folder: Path, url: str
) -> None:
    process = start(folder, url, "tasks", "-p2", "--queue", "sums", "--metrics-port=0")
    try:
        assert process.stderr is not None
        places: set[str] = set()
        while len(places) < 2:
            line = process.stderr.readline()
            assert line, "the processes ended"
            if line.startswith("metrics at "):
                places.add(line.split()[-1])
    finally:
        code, _, _ = end(process, signal.SIGTERM)
    assert code == 0
    far = run(folder, url, "worker", "tasks", "-p", "2", "--metrics-port", "65535", code=2)
    assert "2 processes need as many ports from there on, and the last is 65535" in far.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ["worker", "taskss"],
            [
                "toril[E02] no module named 'taskss' (looked in the current directory",
                "files here that define a toril app: local.py (app), tasks.py (app), two.py (mail)",
                "fix: toril worker local:app",
            ],
        ),
        (
            ["worker", "tasks:ap"],
            ["toril[E03] 'tasks' has no attribute 'ap'. Did you mean 'app'?"],
        ),
        (["worker", "tasks:number"], ["toril[E03] 'tasks:number' is a int"]),
        (
            ["worker", "broken"],
            [
                "toril[E02] 'broken' cannot be imported: ZeroDivisionError: division by zero",
                "at broken.py:3 in div: return 1 / 0",
            ],
        ),
        (
            ["worker", "two"],
            ["toril[E03] 'two' defines 2 apps: mail, video", "fix: toril worker two:mail"],
        ),
        (["worker", "empty"], ["toril[E03] 'empty' defines nothing a worker could run"]),
        (["worker", "local"], ["toril[E15] MemoryStorage lives in this process"]),
        (["worker", "tasks", "--queue", "sumz"], ["no task goes to queue 'sumz'. Did you mean"]),
        (["call", "tasks", "ad", "1"], ["toril[E05] there is no task 'ad'. Did you mean 'add'?"]),
        (["call", "tasks", "add", "x"], ["toril[E08] add(): a must be int, not 'x'"]),
        (["call", "tasks", "add", "1", "2", "3"], ["takes 2 arguments, '3' is more"]),
        (["call", "tasks", "add"], ["missing a required argument: 'a'"]),
    ],
)
def test_a_mistake_is_answered_in_a_few_lines(
    folder: Path, url: str, args: list[str], said: list[str]
) -> None:
    (folder / "broken.py").write_text("# first\ndef div():\n    return 1 / 0\ndiv()\n")
    (folder / "two.py").write_text("from toril import Toril\nmail = Toril()\nvideo = Toril()\n")
    (folder / "empty.py").write_text("x = 1\n")
    (folder / "local.py").write_text(
        "from toril import Toril\napp = Toril(storage='memory:')\n@app.task\ndef f(): ...\n"
    )
    done = run(folder, url, *args, code=2)
    for line in said:
        assert line in done.err
    done.check_brief()


def test_an_import_that_fails_while_a_worker_runs_does_not_start_it_anew(
    folder: Path, url: str
) -> None:
    (folder / "lacking.py").write_text(
        "from toril import MemoryStorage, Toril\n"
        "class Lacking(MemoryStorage):\n"
        "    url = 'lacking:'\n"
        "    async def open(self):\n"
        "        import codec_of_its_own\n"
        "app = Toril(storage=Lacking())\n"
        "@app.task\n"
        "def f(): ...\n"
    )
    done = run(folder, url, "worker", "lacking", code=1)
    assert done.err.count(" · queue default · ") == 1
    assert "No module named 'codec_of_its_own'" in done.err
    done.check_brief()


def test_a_call_nobody_works_says_so(folder: Path, url: str) -> None:
    done = run(folder, url, "call", "tasks", "add", "1", "2", "--timeout", "300ms", code=1)
    assert "no worker serves queue 'sums'" in done.err
    done.check_brief()
