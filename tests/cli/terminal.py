"""Run the command line on a terminal of a given width."""

from __future__ import annotations

import os
import pty
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a run left on the terminal."""

    code: int
    text: str

    @property
    def lines(self) -> list[str]:
        """Its lines."""
        return self.text.splitlines()


def on_terminal(
    columns: int, *args: str, typed: str = "", cwd: Path | None = None, **environment: str
) -> Shown:
    """Run `toril` with all its streams on a terminal; `typed` is what its user types."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("TORIL_URL", "COLUMNS", "LINES")}
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "toril.cli", *args],
        cwd=cwd,
        env={**inherited, "TERM": "xterm", **environment},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    shown = b""
    with suppress(OSError):  # so a terminal tells that its last user is gone
        while some := os.read(ours, 65536):
            shown += some
    os.close(ours)
    return Shown(code=process.wait(60), text=shown.decode().replace("\r\n", "\n"))
