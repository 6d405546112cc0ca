"""Say what SQLite or the system refused, in the words of `toril.errors`."""

from __future__ import annotations

import errno
import sqlite3
from typing import Final

from toril.errors import StorageDenied, StorageError, StorageFull, StorageUnavailable

# The low byte of an extended result code is the code it extends.
_FULL: Final = {sqlite3.SQLITE_FULL}
_BUSY: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_DENIED: Final = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_BROKEN: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_DISK: Final = {sqlite3.SQLITE_IOERR}


class DiskFailed(StorageError):
    """The disk or the file can no longer be trusted; nothing more is written by this process."""


def code_of(error: BaseException) -> int:
    """The primary result code of an SQLite error, 0 where there is none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def is_busy(error: BaseException) -> bool:
    """Whether another process holds the lock that was asked for."""
    return code_of(error) in _BUSY


def translate(error: Exception, url: str) -> StorageError:
    """Make the error of SQLite, or of the system, one of ours."""
    code = code_of(error)
    number = error.errno if isinstance(error, OSError) else None
    if code in _FULL or number in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"{url}: the disk is full, nothing was written; free some space")
    if code in _BUSY:
        return StorageUnavailable(f"{url}: another process holds its lock; try again")
    if code in _DENIED or number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageDenied(f"{url}: not allowed to write ({error}); check owner and mode")
    if code in _BROKEN:
        return DiskFailed(
            f"{url}: the database is broken ({error}); restore it from a copy, "
            "or move its directory away"
        )
    if code in _DISK or number == errno.EIO:
        return DiskFailed(
            f"{url}: the disk failed ({error}); check it, then start this process anew"
        )
    return StorageError(f"{url}: {type(error).__name__}: {error}")
