"""Name the user's own line: behind a call into here, or in a thread that stands still."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final

from toril.text import printable

_COROUTINE: Final = 0x80  # inspect.CO_COROUTINE, without its import
_OWN: Final = str(Path(__file__).parent) + os.sep
_STANDARD: Final = str(Path(os.__file__).parent) + os.sep
_INSTALLED: Final = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_COMMANDS: Final = f"{os.sep}click{os.sep}"
"""What stands between us and our own command line."""


def caller() -> str:
    """Name the line that called into here, as `app.py:12`; empty where it is not the user's."""
    frame = _caller()
    return "" if frame is None else _place(frame)


def caller_and_function() -> str:
    """Name the line and its function, as `app.py:31 in signup()`; empty as above."""
    frame = _caller()
    if frame is None:
        return ""
    name = frame.f_code.co_name
    return _place(frame) if name.startswith("<") else f"{_place(frame)} in {name}()"


def caller_depth() -> int:
    """The `stacklevel` with which a function that calls this one blames the user's line."""
    frames = list(_outwards(sys._getframe(1)))
    return next((at for at, one in enumerate(frames, 1) if not _foreign(one)), len(frames))


def running_line(innermost: FrameType) -> str:
    """Name the line of the user's handler that a thread is in, and what it says.

    Where the handler called a library, its own line counts and not the library's.
    """
    inside: list[FrameType] = []
    for frame in _outwards(innermost):
        if frame.f_code.co_filename.startswith(_OWN):
            break
        if not _foreign(frame):
            inside.append(frame)
    if not inside:
        return ""
    own = (one for one in inside if not _installed(one.f_code.co_filename))
    frame = next(own, inside[-1])
    source = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    source = source.partition("  #")[0].strip()
    said = f": {printable(source, 60)}" if source else ""
    return f"{printable(frame.f_code.co_name, 60)} at {_place(frame)}{said}"


def _caller() -> FrameType | None:
    awaited = False
    for frame in _outwards(sys._getframe(2)):
        is_coroutine = bool(frame.f_code.co_flags & _COROUTINE)
        if not _foreign(frame):
            # A coroutine of ours that no other one awaits was called by an event loop.
            return frame if is_coroutine or not awaited else None
        awaited = awaited or is_coroutine
    return None


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _foreign(frame: FrameType) -> bool:
    path = frame.f_code.co_filename
    # What dataclasses write has no file, but the module it was written for.
    module: str = frame.f_globals.get("__name__", "")
    if path.startswith((_OWN, "<frozen ")) or module.startswith("toril.") or _COMMANDS in path:
        return True
    return path.startswith(_STANDARD) and not _installed(path)


def _installed(path: str) -> bool:
    return any(part in path for part in _INSTALLED)


def _place(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
