"""Look around a server that does not answer: whoever mistypes a port has one beside it."""

from __future__ import annotations

import re
import socket
from dataclasses import replace
from typing import Final

from toril.cli.errors import LINES, Trouble

_USUAL: Final = 6379
_PATIENCE_S: Final = 0.3
_WHERE: Final = re.compile(r"cannot reach (\[[^\]]+\]|[^\s:(]+):(\d+) \(connection refused")


def look_around(trouble: Trouble) -> Trouble:
    """Add what answers at the usual port of the same host, where the asked one is closed."""
    found = _WHERE.search(trouble.lines[0]) if trouble.code == "E01" else None
    if found is None:
        return trouble
    host, port = found.groups()
    fact = "nothing listens there"
    *lines, fix = trouble.lines
    if int(port) != _USUAL and _answers(host.strip("[]")):
        fact += f"; something answers PING on {host}:{_USUAL}"
        fix += f", as TORIL_URL=redis://{host}:{_USUAL}"
    return replace(trouble, lines=(*lines[: LINES - 2], fact, fix))


def _answers(host: str) -> bool:
    try:
        with socket.create_connection((host, _USUAL), timeout=_PATIENCE_S) as link:
            link.settimeout(_PATIENCE_S)
            link.sendall(b"PING\r\n")
            return link.recv(7).startswith((b"+PONG", b"-NOAUTH"))
    except OSError:
        return False
