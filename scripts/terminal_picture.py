"""Run a command on a terminal of its own and draw what it shows as an SVG.

python scripts/terminal_picture.py docs/pictures/demo.svg toril demo --no-spark
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

COLUMNS: Final = 80
_CHARACTER: Final = 8.4
_LINE: Final = 20
_EDGE: Final = 16
_SVG: Final = "http://www.w3.org/2000/svg"
_FONT: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
_BAR: Final = 36
_COLOURS: Final = {"1": "#ffffff", "31": "#ff7b72", "32": "#7ee787", "33": "#f2cc60"}
_ESCAPE: Final = re.compile(r"\x1b\[([\d;]*)([A-Za-z])")

Run = tuple[str, str | None]
"""Text and its colour."""


def record(command: Sequence[str]) -> str:
    """Run a command on a pseudo-terminal of 80 columns; give all it wrote."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(command[0], list(command))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # Linux says so when the other end is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        raise SystemExit(f"{' '.join(command)} ended with {code}")
    return b"".join(parts).decode()


def screen(written: str) -> list[list[Run]]:
    """Give the lines that are left on the screen: what was overwritten is gone."""
    lines = [_line(line.rstrip("\r").rpartition("\r")[2]) for line in written.split("\n")]
    while lines and not any(text.strip() for text, _ in lines[-1]):
        lines.pop()
    return [line for line in lines if any(text for text, _ in line)]


def _line(text: str) -> list[Run]:
    runs: list[Run] = []
    colour: str | None = None
    at = 0
    for found in _ESCAPE.finditer(text):
        runs.append((text[at : found.start()], colour))
        at = found.end()
        if found[2] == "m":
            codes = found[1].split(";")
            colour = next((_COLOURS[code] for code in codes if code in _COLOURS), None)
    return [*runs, (text[at:], colour)]


def draw(title: str, lines: Sequence[Sequence[Run]]) -> str:
    """Draw a window with a prompt and lines of text."""
    width = round(COLUMNS * _CHARACTER + 2 * _EDGE)
    height = _BAR + (len(lines) + 1) * _LINE + _EDGE
    rows = [[("$ ", "#8b949e"), (title, "#ffffff")], *lines]
    texts = [
        f'<text x="{_EDGE}" y="{_BAR + number * _LINE + 14}">{_spans(row)}</text>'
        for number, row in enumerate(rows)
    ]
    dots = [
        f'<circle cx="{20 + 18 * number}" cy="18" r="6" fill="{colour}"/>'
        for number, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    ]
    return "\n".join(
        (
            f'<svg xmlns="{_SVG}" viewBox="0 0 {width} {height}" width="{width}" role="img">',
            f"<title>{escape(title)}, in a terminal</title>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>',
            *dots,
            f'<g font-family="{_FONT}" font-size="14" fill="#c9d1d9">',
            *texts,
            "</g>",
            "</svg>",
            "",
        )
    )


def _spans(row: Sequence[Run]) -> str:
    return "".join(
        _text(text) if colour is None else f'<tspan fill="{colour}">{_text(text)}</tspan>'
        for text, colour in row
        if text
    )


def _text(text: str) -> str:
    return escape(text).replace("  ", "\N{NO-BREAK SPACE}" * 2)  # viewers draw one space of many


def main(arguments: list[str]) -> None:
    """Record, draw, write."""
    path, *command = arguments
    lines = screen(record(command))
    Path(path).write_text(draw(" ".join(command), lines), encoding="utf-8")
    print(f"written: {path}, {len(lines)} lines")


if __name__ == "__main__":
    main(sys.argv[1:])
