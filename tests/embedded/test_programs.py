"""Run programs as their users do: no server installed, no set-up, one directory of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.resp.nodes import cluster
from tests.servers import Server, valkey_binary
from toril.resp.embedded_lock import Patience, holders, is_locked
from toril.resp.embedded_talk import Refused, ask_info

HERE: Final = Path(__file__).parent

HELLO: Final = """
import asyncio
from toril import Queue

async def main():
    queue = Queue("hello")                                # embedded Valkey unless TORIL_URL or storage= says otherwise
    queue.execute(lambda job: job.data["a"] + job.data["b"])
    async with queue:
        print(await queue.enqueue_and_wait("job-1", {"a": 2, "b": 3}))   # 5

asyncio.run(main())
"""  # noqa: E501 - as in the design


class Yard:
    """A private home and the programs that use it; what is left at the end is ended by number."""

    def __init__(self, root: Path, runtime: str) -> None:
        self.root = root
        self.home = root / "home"
        self._environ = {
            **{name: text for name, text in os.environ.items() if not name.startswith("TORIL_")},
            "PATH": "/nonexistent",  # no server is installed
            "TORIL_HOME": str(self.home),
            "XDG_RUNTIME_DIR": runtime,
        }
        self._programs: list[subprocess.Popen[str]] = []

    @property
    def data_lock(self) -> Path:
        return self.home / "data" / "server.lock"

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Start a program in a process group of its own."""
        program = subprocess.Popen(
            [sys.executable, "-X", "dev", "-W", "error", *args],
            cwd=self.root,
            env=self._environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._programs.append(program)
        return program

    def run(self, *args: str) -> list[str]:
        """Run a program to its end; return what it printed."""
        return finish(self.start(*args))

    def server_pid(self) -> int:
        """The number of the server, as it says itself."""
        return ask_info(Path(self.data_lock.read_text(encoding="utf-8")), 5).pid

    def clear(self) -> None:
        for program in self._programs:
            program.kill()
            program.communicate()
        pids = set(holders(self.data_lock)) if self.data_lock.exists() else set()
        with suppress(OSError, Refused):  # macOS does not tell who holds a file
            pids.add(self.server_pid())
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


def finish(program: subprocess.Popen[str]) -> list[str]:
    """Let a program end, and see that it ends well; return the lines it printed."""
    out, err = program.communicate(timeout=60)
    assert program.returncode == 0, out + err
    assert "Traceback" not in err, err
    return out.splitlines()


def read(program: subprocess.Popen[str], count: int) -> list[str]:
    """Read the next lines of a program that goes on."""
    assert program.stdout is not None
    return [program.stdout.readline().strip() for _ in range(count)]


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    """Programs that share one private home."""
    with tempfile.TemporaryDirectory(prefix="toril-run-") as runtime:
        yard = Yard(tmp_path, runtime)
        yield yard
        yard.clear()


TEN: Final = str(HERE / "ten.py")
BEGAN: Final = {f"began job-{n}" for n in range(10)}
DONE: Final = [str(n * 10) for n in range(10)]


def test_the_first_program_of_the_design_prints_five(yard: Yard) -> None:
    assert yard.run("-c", HELLO) == ["5"]
    assert not is_locked(yard.data_lock)  # the last one out stopped the server


def test_the_first_program_answers_from_the_cache_when_run_again(yard: Yard) -> None:
    assert [yard.run("-c", HELLO) for _ in range(2)] == [["5"], ["5"]]


def test_two_terminals_share_one_server(yard: Yard) -> None:
    worker = yard.start(TEN, "hold")
    assert set(read(worker, 10)) == BEGAN
    pid = yard.server_pid()
    asker = yard.start(TEN, "ask")
    assert read(asker, 1) == ["queued"]
    os.killpg(worker.pid, signal.SIGINT)
    assert finish(worker) == ["stopped"]
    assert yard.server_pid() == pid  # somebody still uses it
    assert yard.run(TEN, "finish", "asked") == [*DONE, "50"]
    assert finish(asker) == ["50"]
    assert not is_locked(yard.data_lock)


def test_ctrl_c_during_ten_running_jobs_loses_none(yard: Yard) -> None:
    program = yard.start(TEN, "hold")
    assert set(read(program, 10)) == BEGAN
    os.killpg(program.pid, signal.SIGINT)
    assert finish(program) == ["stopped"]
    assert not is_locked(yard.data_lock)
    assert yard.run(TEN, "finish") == DONE


def test_after_kill_9_a_new_start_adopts_the_server_and_the_jobs_go_on(yard: Yard) -> None:
    program = yard.start(TEN, "hold")
    assert set(read(program, 10)) == BEGAN
    pid = yard.server_pid()
    program.kill()
    program.wait(10)
    assert yard.server_pid() == pid
    heir = yard.start(TEN, "finish")
    assert read(heir, 10) == DONE
    assert yard.server_pid() == pid
    assert finish(heir) == []
    assert not is_locked(yard.data_lock)


def test_after_kill_9_of_everything_the_jobs_are_still_there(yard: Yard) -> None:
    program = yard.start(TEN, "hold")
    assert set(read(program, 10)) == BEGAN
    pid = yard.server_pid()
    patience = Patience(10)
    while not durable(yard):
        assert patience.pause()
    program.kill()
    os.kill(pid, signal.SIGKILL)
    program.wait(10)
    while is_locked(yard.data_lock):
        assert patience.pause()
    assert yard.run(TEN, "finish") == DONE


def durable(yard: Yard) -> bool:
    """Whether everything the server was told is in its file: kill -9 keeps what is written."""
    files = list((yard.home / "data").rglob("*.incr.aof"))
    return any(b"job-9" in file.read_bytes() for file in files)


def test_one_program_moves_between_storages_by_one_string(yard: Yard) -> None:
    program = str(HERE / "program.py")
    with Server(valkey_binary()) as server, cluster(3) as nodes:
        urls = [
            "memory:",
            "embedded:",
            f"embedded:{yard.root / 'other'}",
            server.url,
            "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes),
        ]
        said = [json.loads(yard.run(program, url)[-1]) for url in urls]
    assert said[0]["answers"][6:8] == [36, "job 'n-7' failed: Reject: seven is refused"]
    assert said[0]["counts"] == [20, 1, 21]
    assert [one for one in said if one != said[0]] == []
