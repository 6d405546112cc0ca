"""Each message a newcomer meets, E02 to E14, from the command line as it is run.

A message has its code, at most six lines, no traceback, and an exit code that tells what kind of
trouble it is: 1 jobs failed, 2 usage or import, 3 the storage.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cli.program import check, toril
from tests.servers import Server, valkey_binary
from toril import NewJob, SyncQueue
from toril.ids import ulid

TASKS: Final = """
import asyncio, time
from pathlib import Path
from toril import Reject, Toril

app = Toril()
blocking = Toril("blocking")

@app.task
def add(a: int, b: int) -> int:
    return a + b

@app.task
async def send_email(to: str) -> None: ...

@app.task
async def hold() -> None:
    while not Path("go").exists():
        await asyncio.sleep(0.02)

@app.task(attempts=1)
async def pay() -> None:
    raise Reject("no money")

@app.task
def strange():
    return {1, 2}

@blocking.task
async def resize() -> None:
    await asyncio.sleep(0.1)
    time.sleep(1.5)

@blocking.task
async def rest() -> None:
    await asyncio.sleep(1)

hasty = blocking.worker(lease=0.9, concurrency=3)
"""

PROGRAMS: Final = {
    "payload": """
import asyncio
from datetime import datetime, UTC
from toril import Queue

async def signup():
    async with Queue("mail", "memory:") as queue:
        await queue.enqueue("order-1", {"user": {"created_at": datetime.now(UTC)}})

asyncio.run(signup())
""",
    "habit": "from tasks import add\nadd.delay(1, 2)\n",
    "wrong": "from tasks import add\nadd.enqueue(1, 2, c=2)\n",
    "expired": """
import asyncio
from toril import Queue

async def main():
    async with Queue("mail", "memory:") as queue:
        await queue.wait_until_finished("order-17")

asyncio.run(main())
""",
    "naive": "from datetime import datetime\nfrom toril import Postpone\n"
    "raise Postpone(datetime(2026, 1, 31))\n",
    "parent/__init__": "import nothing_of_the_kind\n",
    "parent/child": "",
    "two": "from toril import Toril\nmail = Toril()\nvideo = Toril()\n",
    "local": "from toril import Toril\napp = Toril(storage='memory:')\n@app.task\ndef f(): ...\n",
    "unsent": """
import asyncio
from tasks import add

async def main():
    add.enqueue(1, 2)

asyncio.run(main())
""",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("shop")
    (made / "tasks.py").write_text(TASKS)
    (made / "parent").mkdir()
    for name, text in PROGRAMS.items():
        (made / f"{name}.py").write_text(text)
    return made


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(valkey_binary()) as running:
        yield running


@pytest.fixture
def url(server: Server) -> str:
    return f"{server.url}?prefix=m{ulid()}"


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        (
            "tsaks",
            "E02",
            ["no module named 'tsaks' (looked in the", "define a toril app: ", "fix: toril worker"],
        ),
        (
            "parent.child",
            "E02",
            [
                "'parent.child' cannot be imported: ModuleNotFoundError: No module named 'nothing",
                "\nat __init__.py:1 in <module>: import nothing_of_the_kind\nfix: mend it",
            ],
        ),
        ("tasks:ap", "E03", ["'tasks' has no attribute 'ap'. Did you mean 'app'?", "fix: "]),
        ("two", "E03", ["'two' defines 2 apps: mail, video\nfix: toril worker two:mail"]),
        (
            "payload",
            "E04",
            [
                (
                    "cannot encode data.user.created_at: datetime.datetime is not JSON, called at"
                    " payload.py:8 in signup()\nat payload.py:8 in signup: await queue.enqueue"
                ),
                (
                    "\nfix: pass .isoformat(), annotate the task's parameter so that toril"
                    " converts it, or set serde="
                ),
            ],
        ),
        (
            "habit",
            "E07",
            [
                "Task has no .delay(); in toril it is await add.enqueue(…), for add(a: int,",
                "\nat habit.py:2 in <module>: add.delay(1, 2)\nfix: see 'toril explain E07'",
            ],
        ),
        (
            "wrong",
            "E08",
            [
                (
                    "add(): got an unexpected keyword argument 'c'"
                    " (signature: add(a: int, b: int) -> int), called at wrong.py:2"
                ),
            ],
        ),
        (
            "expired",
            "E09",
            ["job 'order-17' is not in queue 'mail'", "past its result_ttl"],
        ),
        ("naive", "E12", ["naive datetime; add a time zone", "at naive.py:3 in <module>"]),
        ("local", "E15", ["MemoryStorage lives in this process", "\nfix: leave storage= out"]),
    ],
)
def test_a_mistake_in_a_module_is_told_with_its_line(
    folder: Path, url: str, target: str, code: str, said: list[str]
) -> None:
    check(toril("worker", target, cwd=folder, TORIL_URL=url), code, 2, *said)


@pytest.mark.parametrize(
    ("args", "mark"),
    [(["tsaks"], "toril[E02] "), (["tasks:app", "--queue", "defalt"], "toril: no task goes to")],
)
def test_a_mistake_is_told_once_for_all_processes(
    folder: Path, url: str, args: list[str], mark: str
) -> None:
    done = toril("worker", *args, "--processes", "3", cwd=folder, TORIL_URL=url)
    assert (done.code, done.err.count(mark)) == (2, 1)
    done.check_brief()


def test_e06_a_call_that_nobody_awaits(folder: Path, url: str) -> None:
    program = subprocess.run(
        [sys.executable, "unsent.py"],
        cwd=folder,
        env={**os.environ, "TORIL_URL": url},
        capture_output=True,
        text=True,
        check=True,
    )
    said = (
        "toril[E06] add.enqueue(…) at unsent.py:6 was never awaited, so nothing was queued."
        " fix: await it, or use SyncQueue outside async code"
    )
    assert said in program.stderr
    assert "Traceback" not in program.stderr
    assert len(program.stderr.splitlines()) <= 6
    told = toril("worker", "unsent", cwd=folder, TORIL_URL=url)  # the module has no app
    assert said.replace(". fix", "\nfix") in told.err


@pytest.fixture
def worker(folder: Path, url: str) -> Iterator[subprocess.Popen[str]]:
    """A worker of the app, one job at a time."""
    (folder / "go").unlink(missing_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "toril.cli", "worker", "tasks:app"],
        cwd=folder,
        env={**os.environ, "TORIL_URL": url},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("toril ")
        yield process
    finally:
        process.kill()
        process.communicate()


def test_e04_e05_e09_what_a_caller_hears_of_a_job_that_fails(
    folder: Path, url: str, worker: subprocess.Popen[str]
) -> None:
    unknown = toril(
        *("enqueue", "default", '{"to": "ada"}', "--name", "send_emial", "--id", "mail-17"),
        *("--wait", "--timeout", "100s"),
        TORIL_URL=url,
    )
    said = (
        "job 'mail-17' asks for task 'send_emial'; this worker knows: add, hold, pay, send_email,"
        " strange. Did you mean 'send_email'? It is kept in failed"
    )
    retry = "fix: deploy the task, then: toril job retry default mail-17"
    check(unknown, "E05", 1, f"{said}\n{retry}")
    result = toril("call", "tasks:app", "strange", cwd=folder, TORIL_URL=url)
    check(result, "E04", 1, "result of job '", "of task 'strange': cannot encode $: set is not")
    failed = toril("call", "tasks:app", "pay", cwd=folder, TORIL_URL=url)
    check(failed, "E09", 1, "failed: Reject: no money\nfix: toril job show default ")
    worker.send_signal(signal.SIGINT)
    _, log = worker.communicate(timeout=30)
    assert f"send_emial mail-17 failed: toril[E05] {said}. {retry}" in log
    assert "Traceback" not in log


def test_e09_a_result_that_does_not_come_in_time(
    folder: Path, url: str, request: pytest.FixtureRequest
) -> None:
    ask = ("call", "tasks:app", "add", "1", "2", "--timeout", "200ms")
    alone = toril(*ask, cwd=folder, TORIL_URL=url)
    check(
        alone,
        "E09",
        1,
        "after 0.2 s: it is waiting at position 1, and no worker serves queue 'default'",
        "\nfix: start one, as: toril worker tasks; or raise timeout=",
    )
    with SyncQueue[object, object]("default", url) as queue:
        queue.drain()
        first = queue.add("hold", {})
        queue.add_bulk([NewJob(name="add", data={"a": 1, "b": 1}) for _ in range(3)])
        process = request.getfixturevalue("worker")
        while str(queue.get_status(first.id).state) != "active":  # type: ignore[union-attr]
            assert process.poll() is None
    busy = toril(*ask, cwd=folder, TORIL_URL=url)
    check(
        busy, "E09", 1, "it is waiting at position 4, 1 worker serves the queue\nfix: wait longer"
    )


def test_e10_a_handler_that_blocks_the_loop_is_named(folder: Path, url: str) -> None:
    with SyncQueue[object, object]("blocking", url) as queue:
        queue.add_bulk([NewJob(name=name, data={}) for name in ("rest", "rest", "resize")])
    done = toril("worker", "tasks:hasty", "--burst", cwd=folder, TORIL_URL=url)
    assert done.code == 0, done.err
    assert done.out.startswith("3 completed, 0 failed")
    said = next(line for line in done.err.splitlines() if "toril[E10] task 'resize'" in line)
    number = TASKS.splitlines().index("    time.sleep(1.5)") + 1
    assert " blocked the event loop for " in said
    assert f" s (resize at tasks.py:{number}: time.sleep(1.5)); 2 other jobs stood still" in said
    assert "fix: write it as plain def, which runs in a thread" in said
    assert "Traceback" not in done.err


def test_e11_an_id_that_is_there_already_is_no_error(url: str) -> None:
    first = toril("enqueue", "mail", "1", "--id", "order-7", TORIL_URL=url)
    assert (first.code, first.out, first.err) == (0, "queued order-7\n", "")
    check(
        toril("enqueue", "mail", "1", "--id", "order-7", TORIL_URL=url),
        "E11",
        0,
        "job 'order-7' already exists (waiting, added ",
        " s ago): not queued again\nfix: take another --id, or first: toril job remove mail order",
    )


def test_e12_options_that_are_not_meant_or_not_allowed(url: str) -> None:
    check(
        toril("enqueue", "mail", "1", "--delay", "5000", TORIL_URL=url),
        "E12",
        0,
        "delay=5000: toril takes seconds or timedelta; did you mean 5 s? 5000 s is 1 h 23 min",
    )
    wrong = toril("enqueue", "mail", "1", "--priority", "-1", TORIL_URL=url)
    check(wrong, "E12", 2, "priority=-1: allowed 0..2097151; 1 = most urgent, 0 = none")


def test_e14_an_extra_that_is_missing(folder: Path, url: str, tmp_path: Path) -> None:
    absent = "raise ModuleNotFoundError(name=__name__)"
    (tmp_path / "prometheus_client.py").write_text(absent)
    (tmp_path / "tasks.py").write_text(TASKS)
    args = ("worker", "tasks:app", "--metrics-port", "0")
    said = "metrics need the 'metrics' extra\nfix: "
    plain = toril(*args, cwd=tmp_path, TORIL_URL=url, UV="")
    check(plain, "E14", 2, f'{said}python -m pip install "toril[metrics]"')
    check(
        toril(*args, cwd=tmp_path, TORIL_URL=url, UV="/usr/bin/uv"),
        "E14",
        2,
        f'{said}uv add "toril[metrics]"',
    )
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.22\" 2024-01-16' >&2\n")
    java.chmod(0o755)
    old = toril("spark", "archive", "q", "p", JAVA_HOME=str(tmp_path), TORIL_URL=url)
    check(old, "E14", 2, "Spark needs Java 17 or newer, found 11\nfix: install a JRE 17")
