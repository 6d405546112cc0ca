"""Refuse a server that jobs cannot be trusted to, before anything is written."""

from __future__ import annotations

from typing import Final

from toril.errors import StorageUnfit
from toril.resp.client import ServerInfo

OLDEST: Final = {"redis": (7, 0), "valkey": (7, 2)}


def check_fit(url: str, server: ServerInfo | None, *, allow_eviction: bool) -> None:
    """Raise `StorageUnfit` for a server that is too old, or that may delete jobs.

    None is one whose users may not ask what it is.
    """
    if server is None:
        return
    least = OLDEST[server.name]
    if server.version < least:
        found, needed = (".".join(map(str, one)) for one in (server.version, least))
        raise StorageUnfit(
            f"toril[E15] {url}: {server.name} {found} is too old; toril needs {needed} or newer."
            " fix: upgrade it, or leave the URL out to use the embedded server"
        )
    if server.maxmemory_policy not in ("noeviction", "") and not allow_eviction:
        raise StorageUnfit(
            f"toril[E15] {url}: maxmemory-policy is {server.maxmemory_policy}: the server may"
            " delete jobs; it needs noeviction."
            " fix: CONFIG SET maxmemory-policy noeviction, or pass allow_eviction=True"
        )
