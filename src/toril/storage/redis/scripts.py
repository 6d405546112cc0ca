"""Put the layout's scripts together: what a script uses of the shared Lua, then the script.

A server runs a script from its first line at every call, and each function that a line declares
is made anew. So a script gets only the paragraphs of `prelude.lua` and `claiming.lua` that it
needs, and numbers with a name are written in place of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from toril.resp.script import Script

_LIBRARY: Final = ("prelude", "claiming")
# What ends or renews work must go on when memory is short; only new jobs are refused then.
_GROWING: Final = frozenset({"enqueue"})

_TOKEN: Final = re.compile(r"--[^\n]*|'(?:\\.|[^'\\])*'|(?<![\w.])[A-Za-z_]\w*")
_DECLARATION: Final = re.compile(r"^local (?:function )?(\w+(?:, \w+)*)", re.MULTILINE)
_NUMBERS: Final = re.compile(r"^local ([A-Z_]+(?:, [A-Z_]+)*) = (\d+(?:, \d+)*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Paragraph:
    """Shared code between two blank lines: what it declares and what it mentions."""

    names: frozenset[str]
    words: frozenset[str]
    code: str


@cache
def script(name: str) -> Script:
    """Assemble one script; the text never changes while the process lives."""
    constants, library = _library()
    main = _plain(_read(name), constants)
    text = "\n".join([*_needed(library, main), main])
    if name not in _GROWING:
        text = f"#!lua flags=allow-oom\n{text}"
    return Script.of(name, text)


def _read(name: str) -> str:
    return (files(__package__) / "lua" / f"{name}.lua").read_text("utf-8")


@cache
def _library() -> tuple[Mapping[str, str], Sequence[_Paragraph]]:
    source = "\n\n".join(_read(part) for part in _LIBRARY)
    constants: dict[str, str] = {}
    for names, numbers in _NUMBERS.findall(source):
        constants.update(zip(names.split(", "), numbers.split(", "), strict=True))
    rest = _plain(_NUMBERS.sub("", source), constants)
    return constants, [_paragraph(code) for code in rest.split("\n\n") if code.strip()]


def _paragraph(code: str) -> _Paragraph:
    if not code.startswith("local "):
        raise ValueError(f"shared Lua must be paragraphs that declare something, not {code!r}")
    names = (name for found in _DECLARATION.findall(code) for name in found.split(", "))
    return _Paragraph(names=frozenset(names), words=frozenset(_TOKEN.findall(code)), code=code)


def _plain(source: str, constants: Mapping[str, str]) -> str:
    """Write numbers for their names; drop comments and what they leave empty."""

    def replace(found: re.Match[str]) -> str:
        word = found[0]
        return "" if word.startswith("--") else constants.get(word, word)

    text = re.sub(r"^[ \t]*--[^\n]*\n", "", source, flags=re.MULTILINE)
    text = re.sub(r"[ \t]+$", "", _TOKEN.sub(replace, text), flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _needed(library: Sequence[_Paragraph], main: str) -> Iterator[str]:
    """Pick what the script needs, directly or not, in the order of the sources."""
    wanted = set(_TOKEN.findall(main))
    chosen: list[str] = []
    for paragraph in reversed(library):  # each uses only what stands above it
        if paragraph.names & wanted:
            wanted |= paragraph.words
            chosen.append(paragraph.code)
    return reversed(chosen)
