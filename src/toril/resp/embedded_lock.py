"""Hold files by kernel locks: they end with the process, however it ends.

The lock belongs to the open file, so a child that inherits the descriptor holds it too.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from toril.errors import StorageError, StorageUnavailable
from toril.text import printable


class Patience:
    """A time limit with short pauses; `give_up` ends it at once."""

    def __init__(self, seconds: float, give_up: threading.Event | None = None) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds
        self._give_up = give_up or threading.Event()
        self._step = 0.002

    @property
    def left(self) -> float:
        """Seconds left, never below a millisecond, so that it can limit one more call."""
        return max(self._end - time.monotonic(), 0.001)

    def pause(self) -> bool:
        """Sleep a little; tell whether there is time for another try."""
        self._step = min(self._step * 1.5, 0.05)
        return not self._give_up.wait(min(self._step, self.left)) and time.monotonic() < self._end


def try_lock(path: Path, *, shared: bool = False) -> int | None:
    """Open and lock a file without waiting; None if somebody else holds it."""
    file = None
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        locked = _flock(file, shared=shared)
    except OSError as error:
        if file is not None:
            os.close(file)
        raise StorageError(
            f"file {printable(path, 500)}: cannot be locked ({printable(error.strerror)}); "
            "fix: set TORIL_HOME to a directory on a local disk"
        ) from error
    if locked:
        return file
    os.close(file)
    return None


def is_locked(path: Path) -> bool:
    """Tell whether somebody holds the file. Looks by locking: only under the start lock."""
    file = try_lock(path)
    if file is None:
        return True
    os.close(file)
    return False


def only_holder(file: int) -> bool:
    """Turn a shared lock into an exclusive one; False if others share it, and it may be lost."""
    return _flock(file, shared=False)


def release(file: int) -> None:
    """Give up the lock, also in forked children that inherited the open file."""
    import fcntl

    fcntl.flock(file, fcntl.LOCK_UN)
    os.close(file)


@contextmanager
def held(path: Path, patience: Patience) -> Iterator[None]:
    """Hold the file exclusively, after waiting for whoever holds it."""
    while (file := try_lock(path)) is None:
        if not patience.pause():
            raise StorageUnavailable(
                f"file {printable(path, 500)}: held for {patience.seconds:g} s by a process that "
                f"starts or stops the embedded server{_named(path)}; fix: try again, or end it"
            )
    try:
        yield
    finally:
        release(file)


def holders(path: Path) -> list[int]:
    """Name the other processes that have the file open; only Linux tells."""
    if sys.platform != "linux":
        return []
    found: set[int] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            links = [entry.readlink() for entry in (process / "fd").iterdir()]
            if path in links:
                found.add(int(process.name))
    return sorted(found - {os.getpid()})


def _named(path: Path) -> str:
    pids = holders(path)
    return f" (process {', '.join(map(str, pids))})" if pids else ""


def _flock(file: int, *, shared: bool) -> bool:
    # Windows has no fcntl; there the missing binary is reported before this is reached.
    import fcntl

    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
