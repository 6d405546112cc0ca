"""Put the layout's scripts together: what a script uses of the shared Lua, then the script.

A server runs a script from its first line at every call, and each function that a line declares
is made anew. So a script gets only the paragraphs of the shared files that it needs, what is in
`seldom.lua` is made when it is first called, and numbers are written in place of their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from toril.resp.script import Script

_EVERY: Final = "prelude"
_SELDOM: Final = "seldom"
_SHARED: Final = ("claiming", "once")
# What ends or renews work must go on when memory is short; only new jobs are refused then.
_GROWING: Final = frozenset({"enqueue"})
_PARTS: Final = {
    "enqueue": ("enqueue_alone", "enqueue"),
    "claim_alone": ("idle", "claim_alone", "claim"),
    "settle_alone": ("settle_alone", "settle"),
}
"""What a script tries, one after the other, before anything else of it is made."""

_TOKEN: Final = re.compile(r"'(?:\\.|[^'\\])*'|(?<![\w.])[A-Za-z_]\w*")
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
    text = "\n".join(_assemble(part) for part in _PARTS.get(name, (name,)))
    if name not in _GROWING:
        text = f"#!lua flags=allow-oom\n{text}"
    return Script.of(name, text)


def _assemble(name: str) -> str:
    library = _library()
    main = library.plain(_read(name))
    calling = "\n".join([*_needed(library.shared, main), main])
    seldom = _needed(library.seldom, calling)
    every = _needed(library.every, "\n".join([*seldom, calling]))
    return "\n".join([*every, *_on_demand(seldom), library.on_demand(calling)])


def _read(name: str) -> str:
    return (files(__package__) / "lua" / f"{name}.lua").read_text("utf-8")


class _Library:
    """The shared Lua, in paragraphs."""

    def __init__(self) -> None:
        self._constants: dict[str, str] = {}
        for names, numbers in _NUMBERS.findall(_read(_EVERY)):
            self._constants.update(zip(names.split(", "), numbers.split(", "), strict=True))
        self.every = self._paragraphs(_EVERY)
        self.seldom = self._paragraphs(_SELDOM)
        self.shared = [one for part in _SHARED for one in self._paragraphs(part)]
        self._seldom_names = frozenset(name for one in self.seldom for name in one.names)

    def _paragraphs(self, part: str) -> Sequence[_Paragraph]:
        source = self.plain(_NUMBERS.sub("", _read(part)))
        return [_paragraph(code) for code in source.split("\n\n")]

    def plain(self, source: str) -> str:
        """Write numbers for their names; drop comments and what they leave empty."""
        text = re.sub(r"^[ \t]*--[^\n]*\n", "", source, flags=re.MULTILINE)
        text = _TOKEN.sub(lambda found: self._constants.get(found[0], found[0]), text)
        return re.sub(r"\n{3,}", "\n\n", text).strip()

    def on_demand(self, source: str) -> str:
        """Write calls of what is made when it is first called."""
        names = self._seldom_names
        return _TOKEN.sub(
            lambda found: f"seldom().{found[0]}" if found[0] in names else found[0], source
        )


@cache
def _library() -> _Library:
    return _Library()


def _paragraph(code: str) -> _Paragraph:
    if not code.startswith("local "):
        raise ValueError(f"shared Lua must be paragraphs that declare something, not {code!r}")
    names = (name for found in _DECLARATION.findall(code) for name in found.split(", "))
    return _Paragraph(names=frozenset(names), words=frozenset(_TOKEN.findall(code)), code=code)


def _needed(library: Sequence[_Paragraph], users: str) -> Sequence[str]:
    """Pick what is needed, directly or not, in the order of the source."""
    wanted = set(_TOKEN.findall(users))
    chosen: list[str] = []
    for paragraph in reversed(library):  # each uses only what stands above it
        if paragraph.names & wanted:
            wanted |= paragraph.words
            chosen.append(paragraph.code)
    return chosen[::-1]


def _on_demand(seldom: Sequence[str]) -> Iterator[str]:
    """Wrap what is seldom called into one function that makes it."""
    if not seldom:
        return
    names = sorted(name for code in seldom for name in _paragraph(code).names)
    made = ", ".join(f"{name} = {name}" for name in names)
    yield "local made\nlocal function seldom()\nif made then return made end"
    yield from seldom
    yield f"made = {{ {made} }}\nreturn made\nend"
