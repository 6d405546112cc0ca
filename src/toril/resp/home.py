"""Find and prepare the directory of the embedded server, and the place of its socket.

<home>/                 0700, ours, not writable by everybody
  .gitignore            the directory ignores itself
  start.lock            exclusive: somebody starts, adopts or stops the server
  users.lock            shared: one per user, so the last one out knows it is the last
  version.json          the version that last opened the data
  server.log            written by the server, moved to server.log.1 when large
  data/server.lock      exclusive, held by the server process itself; names its socket
  data/appendonlydir/   the jobs
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toril.errors import StorageError
from toril.text import printable

LOG_LIMIT: Final = 5 * 1024 * 1024

_MARKS: Final = ("pyproject.toml", ".git")
# The system's limit is 104 bytes on macOS and 108 on Linux.
_SOCKET_LIMIT: Final = 100


def default_home(start: Path | None = None, environ: Mapping[str, str] | None = None) -> Path:
    """Find the directory to use: `TORIL_HOME`, the project's `.toril`, or the user's own.

    The project is the nearest ancestor of `start` with `.toril/`, `pyproject.toml` or `.git`.
    """
    environ = os.environ if environ is None else environ
    if chosen := environ.get("TORIL_HOME"):
        return _absolute(Path(chosen).expanduser(), start)
    with suppress(FileNotFoundError):  # the current directory may be gone
        here = (start or Path.cwd()).resolve()
        for folder in (here, *here.parents):
            if (folder / ".toril").is_dir() or any((folder / mark).exists() for mark in _MARKS):
                return folder / ".toril"
    return _user_data(environ) / "toril"


@dataclass(frozen=True, slots=True)
class Home:
    """The files of one embedded server; `root` is resolved, so every spelling means the same."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def data_lock(self) -> Path:
        return self.data / "server.lock"

    @property
    def start_lock(self) -> Path:
        return self.root / "start.lock"

    @property
    def users_lock(self) -> Path:
        return self.root / "users.lock"

    @property
    def log(self) -> Path:
        return self.root / "server.log"

    def prepare(self) -> None:
        """Make the directories, private; refuse a home that others could change."""
        fix = "set TORIL_HOME to a directory you can write"
        try:
            fresh = not self.root.exists() or not any(self.root.iterdir())
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._refuse_foreign()
            if fresh:
                # Only in a directory of our own: in a project it would hide everything.
                (self.root / ".gitignore").write_text("*\n", encoding="utf-8")
            self.data.mkdir(mode=0o700, exist_ok=True)
            self.data.chmod(0o700)
        except OSError as error:
            reason = printable(error.strerror or error)
            raise StorageError(f"directory {self}: {reason}; fix: {fix}") from error

    def rotate_log(self) -> None:
        """Put a log over 5 MB aside, replacing the one before; no server may be running."""
        with suppress(FileNotFoundError):
            if self.log.stat().st_size > LOG_LIMIT:
                self.log.replace(self.log.with_name("server.log.1"))

    def read_version(self) -> str | None:
        """Give the version that last opened the data, or None where there is no record."""
        try:
            record = json.loads((self.root / "version.json").read_bytes())
        except (OSError, ValueError):
            return None
        version = record.get("version") if isinstance(record, dict) else None
        return version if isinstance(version, str) else None

    def write_version(self, version: str) -> None:
        """Record the version that opened the data, in one step."""
        if self.read_version() == version:
            return
        draft = self.root / f"version.json.{os.getpid()}"
        draft.write_text(json.dumps({"version": version}) + "\n", encoding="utf-8")
        draft.replace(self.root / "version.json")

    def _refuse_foreign(self) -> None:
        found = self.root.stat()
        if found.st_uid != os.geteuid():
            fact = f"belongs to user {found.st_uid}, and this process runs as {os.geteuid()}"
        elif found.st_mode & stat.S_IWOTH:
            fact = f"is writable by everybody (mode {stat.S_IMODE(found.st_mode):o})"
        else:
            return
        fix = "fix: chmod 700 it, or set TORIL_HOME to a directory of your own"
        raise StorageError(f"directory {self}: {fact}; {fix}")

    def __str__(self) -> str:
        return printable(self.root, 500)


def open_home(path: Path | str | None = None) -> Home:
    """Give the home at `path`, or the default one; nothing is created yet."""
    chosen = default_home() if path is None else Path(path).expanduser()
    return Home(chosen.resolve())


def place_socket(home: Home, environ: Mapping[str, str] | None = None) -> Path:
    """Choose the socket's path: short, private to the user, the same for every process.

    In `XDG_RUNTIME_DIR`, else in a directory of our own under the temporary one.
    """
    environ = os.environ if environ is None else environ
    name = hashlib.sha256(os.fsencode(home.root)).hexdigest()[:16] + ".sock"
    own = f"toril-{os.geteuid()}"
    folders = [Path(tempfile.gettempdir()) / own, Path("/tmp") / own]
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    # After su or sudo -E it is somebody else's.
    if runtime.startswith("/") and _is_private(Path(runtime)):
        folders.insert(0, Path(runtime) / "toril")
    # The last one is short enough for any user number.
    short = (folder for folder in folders if len(os.fsencode(folder / name)) < _SOCKET_LIMIT)
    return _private(next(short, folders[-1])) / name


def _private(folder: Path) -> Path:
    """Make the directory, or make sure that the one there is ours alone."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        reason = printable(error.strerror or error)
        raise StorageError(
            f"directory {printable(folder)}: {reason}; fix: set XDG_RUNTIME_DIR to a directory"
            " only you can read"
        ) from error
    if not _is_private(folder):
        raise StorageError(
            f"directory {printable(folder)}: others own it or may enter it; fix: remove it, or set"
            " XDG_RUNTIME_DIR to a directory only you can read"
        )
    return folder


def _is_private(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    ours = found.st_uid == os.geteuid()
    return ours and stat.S_ISDIR(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o077


def _user_data(environ: Mapping[str, str]) -> Path:
    home = Path(environ.get("HOME") or Path.home())
    if sys.platform == "darwin":
        return home / "Library" / "Application Support"
    chosen = environ.get("XDG_DATA_HOME", "")
    # The specification says to ignore a relative one.
    return Path(chosen) if chosen.startswith("/") else home / ".local" / "share"


def _absolute(path: Path, start: Path | None) -> Path:
    return path if path.is_absolute() else (start or Path.cwd()).resolve() / path
