"""Look at the embedded server of a directory without becoming one of its users."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toril.resp.embedded_lock import holders, is_locked
from toril.resp.embedded_talk import Refused, ask_info
from toril.resp.home import open_home

_LIMIT: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A server that answers; `users` are the programs that hold it, where the system tells."""

    pid: int
    version: str
    socket: Path
    log: Path
    users: tuple[int, ...]


def look(home: Path | str | None = None) -> Seen | None:
    """Ask the server of a directory who it is; None where none runs."""
    found = open_home(home)
    if not found.data_lock.exists() or not is_locked(found.data_lock):
        return None
    try:
        socket = Path(os.fsdecode(found.data_lock.read_bytes()) or os.devnull)
        info = ask_info(socket, _LIMIT)
    except (OSError, Refused):
        return None
    return Seen(
        pid=info.pid,
        version=info.version,
        socket=socket,
        log=found.log,
        users=tuple(pid for pid in holders(found.users_lock) if pid != info.pid),
    )
