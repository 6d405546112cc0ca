"""The embedded server, the live table and the explanations from the command line."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path

import pytest

from tests.cli.program import toril
from tests.servers import Server, free_port, valkey_binary
from toril import SyncQueue
from toril.cli.explain import CODES
from toril.cli.top import lines
from toril.ids import ulid


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_a_server_stays_until_it_is_told_to_stop(home: Path) -> None:
    assert toril("server", "status", "--home", str(home), "--json").json() == {"running": False}
    port = free_port()
    keeper = subprocess.Popen(
        [
            *(sys.executable, "-m", "toril.cli", "server", "start", "--json"),
            *("--home", str(home), "--port", str(port)),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert keeper.stdout is not None
        told = json.loads(keeper.stdout.readline())
        assert told["port"] == port
        status = toril("server", "status", "--home", str(home), "--json").json()
        assert (status["running"], status["pid"], status["users"]) == (
            True,
            told["pid"],
            [keeper.pid],
        )
        with SyncQueue[int, int]("over-tcp", f"redis://127.0.0.1:{port}") as queue:
            queue.add("x", 1)
        refused = toril("server", "stop", "--home", str(home))
        assert refused.code == 2
        assert "1 programs use the server" in refused.err
    finally:
        keeper.send_signal(signal.SIGINT)
        keeper.communicate(timeout=30)
    assert keeper.returncode == 0
    assert toril("server", "status", "--home", str(home)).code == 1


def test_a_server_in_use_is_stopped_on_demand(home: Path) -> None:
    keeper = subprocess.Popen(
        [sys.executable, "-m", "toril.cli", "server", "start", "--home", str(home)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert keeper.stdout is not None
        assert keeper.stdout.readline().startswith("started Valkey ")
        done = toril("server", "stop", "--home", str(home), "--yes")
        assert done.out.startswith("stopped the server (pid ")
    finally:
        keeper.send_signal(signal.SIGINT)
        keeper.communicate(timeout=30)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(valkey_binary()) as running:
        yield running


@pytest.mark.parametrize("columns", [80, 140])
def test_the_live_table_fits_its_terminal(server: Server, columns: int) -> None:
    url = f"{server.url}?prefix=t{ulid()}"
    for name in ("mail", "a-queue-with-a-name-that-is-" + "very-" * 20 + "long"):
        with SyncQueue[int, int](name, url) as queue:
            queue.add("x", 1)
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "toril.cli", "top", "--interval", "0.2", "--url", url],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")},
    )
    os.close(theirs)
    text = ""
    while text.count("toril top") < 3:
        text += os.read(ours, 65536).decode()
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    os.close(ours)
    rows = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text).replace("\r", "").split("\n")
    assert max(map(len, rows)) <= columns
    assert any(row.startswith("mail ") and " 1 " in row for row in rows)
    assert any(row.startswith("a-queue-with") for row in rows)


def test_the_table_is_printed_once_where_nobody_looks(server: Server) -> None:
    url = f"{server.url}?prefix=t{ulid()}"
    with SyncQueue[int, int]("mail", url) as queue:
        queue.add("x", 1)
    done = toril("top", "--url", url)
    assert done.code == 0
    assert done.out.splitlines()[2].split() == ["mail", "1", *["0"] * 7]
    (row,) = toril("top", "--url", url, "--json").json()["queues"]
    assert row["waiting"] == 1


def test_a_table_without_queues_has_its_heads() -> None:
    assert lines([], 80)[0].split()[0] == "queue"


def test_every_code_is_explained() -> None:
    assert list(CODES) == [f"E{number:02}" for number in range(1, 16)]
    done = toril("explain", "e04")
    assert done.out.splitlines()[0] == "A value cannot be stored"
    assert "fix: " in done.out
    wrong = toril("explain", "E99")
    assert wrong.code == 2
    assert "no code 'E99'. Known: E01" in wrong.err
    wrong.check_brief()


def test_every_code_in_the_sources_is_explained() -> None:
    sources = Path(__file__).resolve().parents[2] / "src" / "toril"
    used = {
        code
        for path in sources.rglob("*.py")
        for code in re.findall(r"toril\[(E\d\d)\]", path.read_text(encoding="utf-8"))
    }
    assert used
    assert used <= set(CODES)
