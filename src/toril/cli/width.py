"""Fit what is said to the terminal it is said on; files and pipes get long lines as they are."""

from __future__ import annotations

import os
import textwrap
from typing import Final, TextIO

_NARROWEST: Final = 20


def width_of(stream: TextIO) -> int | None:
    """The columns of a terminal, None where the stream is none."""
    try:
        if not stream.isatty():
            return None
        return max(_NARROWEST, os.get_terminal_size(stream.fileno()).columns or 80)
    except (OSError, ValueError):  # a stream without a file, or closed
        return None


def fit(text: str, width: int | None, indent: int = 2) -> str:
    """Break lines between words so that none is wider; what follows is set in by `indent`."""
    if width is None:
        return text
    lines = []
    for line in text.split("\n"):
        lines += [line] if len(line) <= width else _broken(line, width, " " * indent)
    return "\n".join(lines)


def cut(text: str, width: int | None) -> str:
    """Keep one line one line."""
    return text if width is None or len(text) <= width else f"{text[: width - 1]}…"


def _broken(line: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False)
