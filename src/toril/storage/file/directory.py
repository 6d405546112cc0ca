"""Check, and if need be make, the directory a file storage lives in.

Nothing is written before every check has passed. The database is never opened here except by
SQLite: closing a file drops all POSIX locks this process holds on it.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from toril.errors import StorageDenied, StorageError
from toril.storage.file.trouble import translate

DATABASE: Final = "toril.db"
NOTIFY: Final = "notify"
LOCK: Final = "lock"


def prepare(directory: Path, url: str) -> None:
    """Make the directory if it is missing; refuse one that is not safe to use."""
    try:
        if not directory.exists():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_directory(directory)
        for name in (DATABASE, LOCK):
            _check_file(directory / name)
        notify = directory / NOTIFY
        if notify.exists() or notify.is_symlink():
            _check_directory(notify)
    except OSError as error:
        raise translate(error, url) from error


def _check_directory(path: Path) -> None:
    found = path.stat() if path.name != NOTIFY else path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise StorageError(f"file storage {path}: is not a directory; name another one")
    _check_owner(path, found.st_uid)
    if found.st_mode & stat.S_IWOTH:
        raise StorageDenied(
            f"file storage {path}: everybody may write to it (mode "
            f"{stat.S_IMODE(found.st_mode):04o}); run chmod 700 on it, or name another one"
        )
    # The mode as well: root may write, and should not where the owner asked not to.
    if not found.st_mode & stat.S_IWUSR or not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise StorageDenied(f"file storage {path}: is read-only; make it writable, or move it")


def _check_file(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        raise StorageDenied(
            f"file storage {path}: is a link or no plain file; move it away and look who made it"
        )
    _check_owner(path, found.st_uid)
    if found.st_mode & 0o077:
        raise StorageDenied(
            f"file storage {path}: others may use it (mode {stat.S_IMODE(found.st_mode):04o}); "
            "run chmod 600 on it"
        )
    if not found.st_mode & stat.S_IWUSR or not os.access(path, os.R_OK | os.W_OK):
        raise StorageDenied(f"file storage {path}: is read-only; make it writable, or move it")


def _check_owner(path: Path, owner: int) -> None:
    me = os.geteuid()
    if owner != me:
        raise StorageDenied(
            f"file storage {path}: belongs to user {owner}, this process runs as {me}; "
            "name a directory of your own"
        )


@contextmanager
def setting_up(directory: Path) -> Iterator[None]:
    """Keep other processes from making or changing the tables meanwhile."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(directory / LOCK, flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def make_database_file(directory: Path) -> bool:
    """Make an empty file for the database; tell whether there was none."""
    try:
        new = os.open(
            directory / DATABASE,
            os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW,
            0o600,
        )
    except FileExistsError:
        return False
    os.close(new)
    return True
