"""Ask a server what it is and how it is set up; what it does not tell stays unknown."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from toril.errors import StorageError, StorageUnavailable
from toril.resp.client import Client
from toril.resp.greet import read_info

_ASKED: Final = (
    *("appendfsync", "save", "min-replicas-to-write", "protected-mode", "bind", "port"),
    *("tls-port", "timeout", "tcp-keepalive", "maxclients"),
)
_TRIES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One server in its own words."""

    node: str
    info: Mapping[str, str]
    config: Mapping[str, str]
    """What CONFIG GET tells; empty where the user may not ask."""
    open_to_all: bool | None
    """Whether the user we are needs no password; None where it may not ask."""
    ahead_ms: float
    """How far its clock is before ours."""
    trip_ms: float
    """How long a question takes there and back."""

    @property
    def name(self) -> str:
        """Whose server it is."""
        return "valkey" if "valkey_version" in self.info else "redis"

    @property
    def version(self) -> tuple[int, ...]:
        """Its version, as numbers."""
        text = self.info.get(f"{self.name}_version", "")
        return tuple(int(part) for part in text.split(".") if part.isdecimal())

    def number(self, name: str) -> int:
        """A number it tells; 0 where it does not."""
        text = self.info.get(name, self.config.get(name, ""))
        return int(text) if text.lstrip("-").isdecimal() else 0


async def gather(client: Client, node: str) -> Facts:
    """Ask one node."""
    info = read_info(await client.call_at(node, "INFO"))
    ahead_ms, trip_ms = await _clock(client, node)
    return Facts(
        node=node,
        info=info,
        config=await _config(client, node),
        open_to_all=await _open_to_all(client, node),
        ahead_ms=ahead_ms,
        trip_ms=trip_ms,
    )


async def _config(client: Client, node: str) -> Mapping[str, str]:
    try:
        flat = cast("list[bytes]", await client.call_at(node, "CONFIG", "GET", *_ASKED))
    except StorageUnavailable:
        raise
    except StorageError:  # an ACL may forbid it
        return {}
    words = [one.decode(errors="replace") for one in flat]
    return dict(zip(words[::2], words[1::2], strict=True))


async def _open_to_all(client: Client, node: str) -> bool | None:
    try:
        me = cast("bytes", await client.call_at(node, "ACL", "WHOAMI"))
        flat = cast("list[Any]", await client.call_at(node, "ACL", "GETUSER", me))
    except StorageUnavailable:
        raise
    except StorageError:
        return None
    told = dict(zip(flat[::2], flat[1::2], strict=True))
    return b"nopass" in told.get(b"flags", ())


async def _clock(client: Client, node: str) -> tuple[float, float]:
    """Compare clocks by the quickest of a few questions: half its way is the error at most."""
    found: list[tuple[float, float]] = []
    for _ in range(_TRIES):
        before, start = time.time(), time.monotonic()
        seconds, micros = cast("list[bytes]", await client.call_at(node, "TIME"))
        trip = time.monotonic() - start
        server = int(seconds) + int(micros) / 1e6
        found.append((trip * 1000, (server - before - trip / 2) * 1000))
    trip_ms, ahead_ms = min(found)
    return ahead_ms, trip_ms
