"""Open the database of a file storage, and run transactions on it."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote

from toril.errors import StorageError, StorageUnavailable
from toril.storage.file import schema
from toril.storage.file.address import Durability, FileAddress
from toril.storage.file.directory import DATABASE, NOTIFY, make_database_file, prepare, setting_up
from toril.storage.file.trouble import DiskFailed, is_busy, translate

_SQLITE: Final = (3, 37)
_CACHE_KIB: Final = 16_384
_STATEMENTS: Final = 256
_CHECKPOINT_PAGES: Final = 4_000
_CHECKED_BYTES: Final = 32 * 1024 * 1024
"""Up to this size the whole file is checked when it is opened; that takes a tenth of a second."""

_TRY_AGAIN_S: Final = 0.001
_SYNCHRONOUS: Final[dict[Durability, str]] = {"local": "FULL", "memory": "NORMAL"}


def set_up(address: FileAddress) -> None:
    """Check the directory, then make the tables or lead older ones up to today's."""
    directory, url = address.directory, address.url
    if sqlite3.sqlite_version_info < _SQLITE:
        needed = ".".join(map(str, _SQLITE))
        raise StorageError(
            f"{url}: this Python has SQLite {sqlite3.sqlite_version}, a file storage needs {needed}"
        )
    prepare(directory, url)
    path = directory / DATABASE
    # Before the first write: a foreign or broken file is refused untouched.
    if path.exists() and path.stat().st_size:
        _check_header(path, url)
    try:
        with setting_up(directory):
            (directory / NOTIFY).mkdir(mode=0o700, exist_ok=True)
            made = make_database_file(directory)
            try:
                _make_tables(path, address)
            except BaseException:
                if made:
                    path.unlink()  # nobody else has seen it: we hold the lock
                raise
    except (OSError, sqlite3.Error) as error:
        raise translate(error, url) from error


def _make_tables(path: Path, address: FileAddress) -> None:
    db = _open(path, "rw", address.timeout)
    try:
        if not db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            schema.create(db)
        # Last, so that the file's own header says whose it is before there is a WAL.
        db.execute("PRAGMA journal_mode = WAL")
        _check_version(db, address.url)
        schema.upgrade(db)
        _check_tables(db, path, address.url)
    finally:
        db.close()


def _check_header(path: Path, url: str) -> None:
    # Immutable: SQLite takes no lock, makes no WAL and touches nothing.
    try:
        db = _open(path, "ro", 0, immutable=True)
        try:
            # In the middle of a checkpoint, or after a death there, the first page tells of pages
            # that are still in the log; only so does SQLite not take that for damage.
            db.execute("PRAGMA writable_schema = ON")
            found = db.execute("PRAGMA application_id").fetchone()[0]
            if found != schema.APPLICATION_ID:
                raise StorageError(
                    f"{url}: {path.name} is the database of another program "
                    f"(application id {found:#x}); name another directory"
                )
            _check_version(db, url)
        finally:
            db.close()
    except sqlite3.Error as error:
        raise translate(error, url) from error


def _check_version(db: sqlite3.Connection, url: str) -> None:
    found = schema.version_of(db)
    if found > schema.VERSION:
        raise StorageError(
            f"{url}: its tables have version {found}, this toril knows {schema.VERSION}; "
            "upgrade toril"
        )


def _check_tables(db: sqlite3.Connection, path: Path, url: str) -> None:
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    missing = schema.TABLES - tables
    problem = f"no table {', '.join(sorted(missing))}" if missing else "ok"
    if not missing and path.stat().st_size <= _CHECKED_BYTES:
        problem = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if problem != "ok":
        raise DiskFailed(
            f"{url}: the database is broken ({problem}); restore it from a copy, "
            "or move its directory away"
        )


def _open(path: Path, mode: str, timeout: float, *, immutable: bool = False) -> sqlite3.Connection:
    uri = f"file:{quote(str(path))}?mode={mode}{'&immutable=1' if immutable else ''}"
    return sqlite3.connect(
        uri,
        uri=True,
        timeout=timeout,
        isolation_level=None,
        # One thread uses it; another may close it when that one has ended.
        check_same_thread=False,
        cached_statements=_STATEMENTS,
    )


def connect(
    address: FileAddress, *, durability: Durability | None = None, writes: bool = True
) -> sqlite3.Connection:
    """Connect to a database that was set up."""
    try:
        db = _open(address.directory / DATABASE, "rw", address.timeout)
        level = _SYNCHRONOUS[durability or address.durability]
        for setting in (
            f"synchronous = {level}",
            f"cache_size = -{_CACHE_KIB}",
            f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
            "temp_store = MEMORY",
            "trusted_schema = OFF",
            *(("busy_timeout = 0",) if writes else ("query_only = ON",)),
        ):
            db.execute(f"PRAGMA {setting}")
    except sqlite3.Error as error:
        raise translate(error, address.url) from error
    return db


def begin(
    db: sqlite3.Connection, address: FileAddress, stopped: Callable[[], bool] = lambda: False
) -> None:
    """Take the write lock; wait for another process as long as the address allows.

    Not by SQLite's own waiting: its steps grow to a tenth of a second, too long while many
    processes take turns of a millisecond.
    """
    until = time.monotonic() + address.timeout
    while True:
        try:
            db.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            if stopped() or time.monotonic() >= until:
                raise StorageUnavailable(
                    f"{address.url}: another process holds the write lock for more than "
                    f"{address.timeout:g} s; look what it does, or raise timeout="
                ) from error
        time.sleep(_TRY_AGAIN_S * random.uniform(0.5, 1.5))


def roll_back(db: sqlite3.Connection) -> None:
    """Undo the transaction, unless SQLite did so itself."""
    if db.in_transaction:
        db.execute("ROLLBACK")
