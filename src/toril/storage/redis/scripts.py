"""Load the layout's Lua: a prelude, sometimes the part that claims, then the script itself."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from toril.resp.script import Script

_CLAIMING: Final = frozenset({"claim", "settle"})
# What ends or renews work must go on when memory is short; only new jobs are refused then.
_GROWING: Final = frozenset({"enqueue"})


@cache
def script(name: str) -> Script:
    """Assemble one script; the text never changes while the process lives."""
    folder = files(__package__) / "lua"
    parts = ["prelude", *(["claiming"] if name in _CLAIMING else []), name]
    text = "\n".join((folder / f"{part}.lua").read_text("utf-8") for part in parts)
    if name not in _GROWING:
        text = f"#!lua flags=allow-oom\n{text}"
    return Script.of(name, text)
