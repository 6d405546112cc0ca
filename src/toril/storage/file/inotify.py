"""Hear of touched files from the kernel, through the C library; Linux only."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from pathlib import Path
from typing import Final

_CLOEXEC: Final = 0o2000000
_NONBLOCK: Final = 0o4000
_ATTRIB: Final = 0x00000004
_OVERFLOW: Final = 0x00004000
_HEAD: Final = struct.Struct("iIII")
_READ: Final = 65536


class Inotify:
    """Watches one directory while it is armed."""

    def __init__(self, directory: Path) -> None:
        """Raise OSError where the kernel or the C library has no inotify, or no more of it."""
        if not sys.platform.startswith("linux"):
            raise OSError("inotify is of Linux")
        self._c = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._c, "inotify_init1"):
            raise OSError("the C library has no inotify")
        self._path = os.fsencode(directory)
        self.fd = self._checked(self._c.inotify_init1(_CLOEXEC | _NONBLOCK))
        self._watch: int | None = None

    @staticmethod
    def _checked(answer: int) -> int:
        if answer < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return answer

    def arm(self) -> None:
        """Begin to watch; raises OSError if the system allows no more watches."""
        if self._watch is None:
            self._watch = self._checked(
                self._c.inotify_add_watch(self.fd, ctypes.c_char_p(self._path), _ATTRIB)
            )

    def disarm(self) -> None:
        """Stop watching."""
        if self._watch is not None:
            self._c.inotify_rm_watch(self.fd, self._watch)
            self._watch = None

    def read(self) -> set[str] | None:
        """Name the files touched since the last read; None if some touches were dropped."""
        try:
            data = os.read(self.fd, _READ)
        except BlockingIOError:
            return set()
        names: set[str] = set()
        at = 0
        while at < len(data):
            _, mask, _, size = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            if mask & _OVERFLOW:
                return None
            names.add(os.fsdecode(data[at : at + size].rstrip(b"\0")))
            at += size
        return names

    def close(self) -> None:
        """Let the descriptor go."""
        os.close(self.fd)
