"""What a command says: lines for people, one JSON document for programs.

Results go to the standard output, everything else to the standard error. All of it is plain
text; colour is added only on a terminal and never where `NO_COLOR` is set.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, TextIO

from toril.cli.errors import Trouble
from toril.cli.progress import Progress
from toril.cli.width import fit, width_of

QUIET: Final = -1
NORMAL: Final = 0

_RED: Final = "31"


class Output:
    """The voice of one run of a command."""

    def __init__(
        self,
        *,
        out: TextIO | None = None,
        err: TextIO | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.out = out or sys.stdout
        self.err = err or sys.stderr
        self.json = False
        self.level = NORMAL
        self.traceback = environment.get("TORIL_DEBUG", "") not in ("", "0")
        self._colour = not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"

    def say(self, text: str) -> None:
        """Tell something on the way; silent with -q."""
        if self.level > QUIET:
            self._tell(text)

    def detail(self, text: str) -> None:
        """Tell what only -v asks for."""
        if self.level > NORMAL:
            self._tell(text)

    def result(self, summary: str, values: Mapping[str, object]) -> None:
        """Give the result: one line, or with --json one document; never silent."""
        if self.json:
            self._write(self.out, json.dumps(values, ensure_ascii=False, default=_plain))
        else:
            self._write(self.out, summary)

    def line(self, text: str) -> None:
        """Give one line of a result that has many."""
        self._write(self.out, text)

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Show rows under their heads; programs find them in the document of `result`."""
        if self.json or self.level == QUIET:
            return
        cells = [[_cell(value) for value in row] for row in (heads, *rows)]
        widths = [max(len(row[at]) for row in cells) for at in range(len(heads))]
        for row in cells:
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            self._write(self.out, line.rstrip())

    def progress(self, label: str, unit: str) -> Progress:
        """Start to show how far the work is: a bar on a terminal, else a line now and then."""
        return Progress(label, unit, None if self.level == QUIET else self.err)

    def trouble(self, trouble: Trouble) -> None:
        """Tell an error; with --json also as the document."""
        if self.json:
            error = {"code": trouble.code, "kind": trouble.kind, "lines": trouble.lines}
            self.result("", {"error": error, "exit": trouble.exit})
        text = fit(trouble.text, width_of(self.err))
        if self._colour and self.err.isatty():
            mark, space, fact = text.partition(" ")
            text = f"\x1b[{_RED}m{mark}\x1b[0m{space}{fact}"
        self._write(self.err, text)

    def _tell(self, text: str) -> None:
        self._write(self.err, fit(text, width_of(self.err)))

    @staticmethod
    def _write(stream: TextIO, text: str) -> None:
        stream.write(f"{text}\n")
        stream.flush()


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _cell(value: object) -> str:
    from toril.text import printable

    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return printable(value, 60)
