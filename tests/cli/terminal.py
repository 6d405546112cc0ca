"""Run the command line on a terminal of a given width, as a person does."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from types import TracebackType
from typing import Final, Self

LIMIT_S: Final = 60
_NOT_ASKED: Final = ("COLUMNS", "LINES", "TORIL_URL", "TORIL_DEBUG", "NO_COLOR")
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Terminal:
    """One command on a pseudo-terminal, which is also the one that Ctrl-C goes to."""

    def __init__(
        self, columns: int, *args: str, cwd: Path | None = None, **environment: str
    ) -> None:
        self._ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        inherited = {k: v for k, v in os.environ.items() if k not in _NOT_ASKED}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "toril.cli", *args],
            cwd=cwd,
            env={**inherited, "TERM": "xterm", **environment},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(theirs)
        self._raw = b""

    @property
    def text(self) -> str:
        """Everything on the screen until now, without colours."""
        plain = _ESCAPES.sub("", self._raw.decode(errors="replace"))
        return plain.replace("\r\n", "\n")

    @property
    def lines(self) -> list[str]:
        """The same by lines; what was drawn over itself counts as lines of its own."""
        return self.text.replace("\r", "\n").split("\n")

    def until(self, seen: str | Callable[[str], bool]) -> None:
        """Read on until something is there to see."""
        deadline = time.monotonic() + LIMIT_S
        shown = (lambda text: seen in text) if isinstance(seen, str) else seen
        while not shown(self.text):
            assert self._read(deadline - time.monotonic()), f"{seen!r} not in:\n{self.text}"

    def enter(self, text: str) -> None:
        """Type something."""
        os.write(self._ours, text.encode())

    def ctrl_c(self) -> None:
        """Press Ctrl-C."""
        self.enter("\x03")

    def end(self) -> int:
        """Read to the end and give the exit code."""
        deadline = time.monotonic() + LIMIT_S
        while self._read(deadline - time.monotonic()):
            pass
        return self.process.wait(LIMIT_S)

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], max(seconds, 0))
        try:
            piece = os.read(self._ours, 65536) if ready else b""
        except OSError:  # the other side is closed
            piece = b""
        self._raw += piece
        return bool(piece)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:  # a test failed; a worker leaves its server with the second
            for number in (signal.SIGINT, signal.SIGINT):
                self.process.send_signal(number)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        os.close(self._ours)


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
    """Run `toril` to its end; `typed` is what its user types."""
    with Terminal(columns, *args, cwd=cwd, **environment) as terminal:
        terminal.enter(typed)
        return Shown(code=terminal.end(), text=terminal.text)


def _take_terminal() -> None:
    ioctl(0, termios.TIOCSCTTY, 0)
