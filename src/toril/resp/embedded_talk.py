"""Ask the embedded server the few things needed to start and stop it.

One connection per question, blocking, with a time limit: this must work before and after
there is a client, and from threads.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

_REPLY_LIMIT: Final = 1024 * 1024


class Refused(Exception):
    """The server answered with an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """What a server says about itself; `loading` is how far it has read its data, or None."""

    pid: int
    version: str
    loading: str | None


def ask(path: Path, *words: str, limit: float) -> list[str]:
    """Send one command and give the strings of its answer, none if the server hung up.

    Raises `OSError` if nobody listens, `TimeoutError` if nobody answers, `Refused` on an error.
    The limit holds for connecting and for each part of the answer.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(limit)
        line.connect(str(path))
        line.sendall(_encode(words))
        with line.makefile("rb") as answer:
            return _read(answer)


def ask_info(path: Path, limit: float) -> ServerInfo:
    """Ask a server who it is. Allowed while it loads, or while its disk is full."""
    (text,) = ask(path, "INFO", "server", "persistence", limit=limit) or [""]
    pairs = (line.partition(":") for line in text.splitlines())
    fields = {name: value for name, _, value in pairs}
    try:
        loading = fields.get("loading_loaded_perc", "0") if fields["loading"] != "0" else None
        version = fields.get("valkey_version") or fields["redis_version"]
        return ServerInfo(pid=int(fields["process_id"]), version=version, loading=loading)
    except (KeyError, ValueError) as error:
        raise ConnectionResetError("the server hung up") from error


def _encode(words: tuple[str, ...]) -> bytes:
    data = [word.encode() for word in words]
    parts = (b"$%d\r\n%b\r\n" % (len(word), word) for word in data)
    return b"*%d\r\n%b" % (len(data), b"".join(parts))


def _read(answer: BinaryIO) -> list[str]:
    line = answer.readline(_REPLY_LIMIT).rstrip(b"\r\n")
    kind, rest = line[:1], line[1:].decode(errors="replace")
    match kind:
        case b"":
            return []
        case b"-":
            raise Refused(rest)
        case b"$":
            size = min(int(rest), _REPLY_LIMIT)
            return [answer.read(size + 2)[:-2].decode(errors="replace")] if size >= 0 else []
        case b"*":
            return [word for _ in range(int(rest)) for word in _read(answer)]
        case _:
            return [rest]
