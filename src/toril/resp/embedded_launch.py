"""Run the server program in the background, in a session of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from toril.resp.home import Home
from toril.text import printable

# The server may outlive the shell it was started from; what else is in there stays there.
_PASSED_ON: Final = ("HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ")

_TUNED: Final = "GLIBC_TUNABLES"
_TUNING: Final = "glibc.malloc.tcache_count=1000"
"""Small pieces of freed memory of each size that are handed out again as they are. The C library's
own 7 send the server through all of its free memory: a script that makes a few hundred strings
then pays for a million jobs that wait, in which it has no part."""


def tuning() -> dict[str, str]:
    """What a server program that uses the C library's memory gets into its environment."""
    given = os.environ.get(_TUNED)
    return {_TUNED: f"{_TUNING}:{given}" if given else _TUNING}


def launch(program: Path, home: Home, socket: Path, lock: int, limit: float) -> int:
    """Start the server, which inherits the lock on its data; give the exit code, 0 if it runs.

    It puts itself into the background, so this process never has to reap it, and in a new
    session, so Ctrl-C in the terminal does not reach it. Raises `OSError` or `TimeoutExpired`.
    """
    home.rotate_log()
    # Those who come later may have another runtime directory: the lock's text leads them.
    os.ftruncate(lock, 0)
    os.pwrite(lock, os.fsencode(socket), 0)
    log = os.open(home.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        foreground = subprocess.Popen(
            _command(program, home, socket),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home.data,
            env={name: os.environ[name] for name in _PASSED_ON if name in os.environ} | tuning(),
            pass_fds=(lock,),
            start_new_session=True,
            umask=0o077,
        )
        return foreground.wait(limit)
    finally:
        os.close(log)


def last_words(log: Path) -> str:
    """Give the server's last complaint."""
    try:
        lines = log.read_bytes()[-8192:].decode(errors="replace").splitlines()
    except OSError:
        lines = []
    complaints = [line for line in lines if " # " in line] or lines
    return printable(complaints[-1].rpartition(" # ")[2], 300) if complaints else "it said nothing"


def _command(program: Path, home: Home, socket: Path) -> list[str | Path]:
    options: dict[str, str | Path] = {
        "unixsocket": socket,
        "unixsocketperm": "700",
        "port": "0",
        "bind": "127.0.0.1",  # for the port that may be opened later
        "protected-mode": "yes",
        "dir": home.data,
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
        "logfile": home.log,  # a pipe nobody reads would block the server
        "daemonize": "yes",
        "pidfile": home.data / "server.pid",  # nobody reads it; without, one is put into /var/run
    }
    return [program, *(word for name, value in options.items() for word in (f"--{name}", value))]
