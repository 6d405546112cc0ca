"""What a person sees who tries it: on terminals of 80 and 140 columns, with the server inside."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Final

import pytest

from tests.cli.terminal import Terminal
from tests.servers import Server, valkey_binary
from toril import __version__

TASKS: Final = """
import asyncio
from pathlib import Path
from toril import Reject, Toril

app = Toril()

@app.task
def add(a: int, b: int) -> int:
    return a + b

@app.task(attempts=1)
async def pay(amount: int) -> None:
    raise Reject(f"no money for {amount}")

@app.task
async def build() -> str:
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return "built"
"""

BANNER: Final = "toril VERSION · embedded: · queue default · 1 at once · tasks: add, build, pay"
EMBEDDED: Final = "TIME · embedded Valkey N at SOCKET, this machine only"

DRAINED: Final = f"""{BANNER}
{EMBEDDED}
TIME → add ID waited N ms
TIME ✓ add ID N ms
TIME → pay ID waited N ms
TIME ✗ pay ID failed: Reject: no money for 7
TIME → build b-1 waited N ms
^Cstopping; 1 running job may finish, Ctrl-C again: at once
TIME ✓ build b-1 N ms
2 completed, 1 failed in N s
"""

HURRIED: Final = f"""{BANNER}
{EMBEDDED}
TIME → build b-2 waited N ms
^Cstopping; 1 running job may finish, Ctrl-C again: at once
^Cstopping now; running jobs go back in line
TIME · build b-2 released
0 completed, 0 failed in N s
"""

TOP: Final = """toril top · TIME · embedded:HOME
queue    waiting  prio  delayed  active  done  failed  done/s  workers
default        0     0        0       1     0       0       0        1
"""

FAILED: Final = """toril[E09] job 'ID' failed: Reject: no money for 7
fix: toril job show default ID
"""

AGAIN: Final = """toril[E11] job 'b-1' already exists (active, added N s ago): not queued again
fix: take another --id, or first: toril job remove default b-1
duplicate b-1, it is active
"""


def golden(terminal: Terminal) -> str:
    """The screen without what differs each time, and with broken lines joined."""
    text = re.sub(r"\n {2,}(?=\S)", " ", terminal.text)
    for pattern, name in (
        (r"\d\d:\d\d:\d\d", "TIME"),
        (r"\b[0-9a-z]{26}\b", "ID"),
        (r"/\S+\.sock", "SOCKET"),
        (r"(?<=embedded:)/\S+", "HOME"),
        (re.escape(__version__), "VERSION"),
        (r"\b\d[\d.,]*(?= (?:ms|s|at)\b)(?! at once)", "N"),
    ):
        text = re.sub(pattern, name, text)
    return text


class Person:
    """Somebody with terminals of one width, in a folder of their own."""

    def __init__(self, columns: int, folder: Path) -> None:
        self.columns = columns
        self.folder = folder
        self.home = folder / "home"
        (folder / "tasks.py").write_text(TASKS)

    def open(self, *args: str) -> Terminal:
        """Type a command into a new terminal."""
        return Terminal(self.columns, *args, cwd=self.folder, TORIL_HOME=str(self.home))

    def see(self, *args: str, code: int = 0) -> str:
        """Type a command, wait until it ends, and look at what it printed."""
        with self.open(*args) as terminal:
            assert terminal.end() == code, terminal.text
            self.measure(terminal)
            return golden(terminal)

    def measure(self, terminal: Terminal) -> None:
        """No line may be wider than the terminal."""
        assert max(map(len, terminal.lines)) <= self.columns, terminal.text


@pytest.fixture(params=[80, 140])
def person(request: pytest.FixtureRequest, tmp_path: Path) -> Person:
    return Person(int(request.param), tmp_path)


def test_a_worker_its_jobs_and_ctrl_c_read_well_at_any_width(person: Person) -> None:
    with person.open("worker", "tasks") as worker:
        worker.until("this")
        assert person.see("call", "tasks", "add", "2", "3") == "5\n"
        assert person.see("call", "tasks", "pay", "7", code=1) == FAILED
        job = ("enqueue", "default", "{}", "--name", "build", "--id", "b-1")
        assert person.see(*job) == "queued b-1\n"
        worker.until("build b-1")
        assert person.see(*job) == AGAIN
        worker.ctrl_c()
        worker.until("stopping")
        (person.folder / "go").touch()
        assert worker.end() == 0
        person.measure(worker)
        assert golden(worker) == DRAINED


def test_ctrl_c_twice_hands_jobs_back_and_the_live_table_ends_with_one(person: Person) -> None:
    with person.open("worker", "tasks") as worker:
        worker.until("this")
        assert person.see("enqueue", "default", "{}", "--name", "build", "--id", "b-2")
        worker.until("build b-2")
        with person.open("top", "--interval", "0.2") as top:
            top.until(lambda text: text.count("\ndefault ") >= 2)
            top.ctrl_c()
            assert top.end() == 130
            person.measure(top)
            assert golden(top).startswith(TOP)
        checked = person.see("doctor")
        assert re.search(r"^0 problems, \d+ warnings?, \d+ ok at embedded:HOME$", checked, re.M)
        worker.ctrl_c()
        worker.until("stopping")
        worker.ctrl_c()
        assert worker.end() == 130
        person.measure(worker)
        assert golden(worker) == HURRIED


def test_a_long_message_is_broken_between_words(person: Person) -> None:
    (person.folder / "second.py").write_text(TASKS)
    shown = person.see("worker", "taskss", code=2)
    assert shown.startswith("toril[E02] no module named 'taskss' (looked in the current directory")
    assert "\nfiles here that define a toril app: second.py (app), tasks.py (app)\n" in shown


def test_eight_seconds_without_a_server_are_told_in_four_lines(tmp_path: Path) -> None:
    person = Person(80, tmp_path)
    with Server(valkey_binary()) as server:
        url = ("--url", server.url)
        with person.open("worker", "tasks", "-c", "2", *url) as worker:
            person.see("enqueue", "default", '{"a": 1, "b": 2}', "--name", "add", *url)
            worker.until("✓")
            before = worker.text
            server.kill()
            time.sleep(8)  # how long the fault lasts
            server.start()
            worker.until("storage is back")
            worker.ctrl_c()
            assert worker.end() == 0
            person.measure(worker)
            told = worker.text.removeprefix(before).partition("^C")[0]
    assert 2 <= len(told.splitlines()) <= 4, told
    first, *_, last = re.sub(r"\n {2,}", " ", told).splitlines()
    assert re.fullmatch(
        rf"[\d:]+ ! toril\[E01\] (?:cannot reach|server at) 127.0.0.1:{server.port} \(connection"
        r" refused, \d+ failed attempts in 4 s\); trying again",
        first,
    )
    assert re.fullmatch(r"[\d:]+ · storage is back after \S+ s and \d+ tries", last)
