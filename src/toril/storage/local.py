"""Storages of this machine: whole paths, and the embedded server for code that blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from toril.resp.embedded import EmbeddedServer, default_home
from toril.resp.url import parse_url
from toril.storage.file.address import parse_file_url

if TYPE_CHECKING:
    from toril.storage.columns import Bulk


def is_embedded(url: str) -> bool:
    """Tell whether a URL means the server that toril starts itself."""
    return url.partition(":")[0].lower().removeprefix("bullmq+") == "embedded"


def open_embedded(url: str, open_bulk: Callable[[str], Bulk]) -> Bulk:
    """Start or adopt the server and open its blocking side; closing lets both go."""
    server = _server(url)
    server.start_blocking()
    return cast("Bulk", _Held(open_bulk(_socket_url(url, server)), server))


@contextmanager
def hold_embedded(url: str) -> Iterator[None]:
    """Keep the server running meanwhile, so that short-lived processes only adopt it."""
    if not is_embedded(url):
        yield
        return
    server = _server(url)
    server.start_blocking()
    try:
        yield
    finally:
        server.stop_blocking()


def settle_path(url: str) -> str:
    """Make the path of a storage whole: other processes start in other directories."""
    if url.partition(":")[0].lower() == "file":
        return parse_file_url(url).url
    if not is_embedded(url):
        return url
    address = parse_url(url)
    home = Path(address.path).expanduser().absolute() if address.path else default_home()
    return replace(address, path=str(home)).safe


def _server(url: str) -> EmbeddedServer:
    return EmbeddedServer(parse_url(url).path or None)


def _socket_url(url: str, server: EmbeddedServer) -> str:
    return replace(parse_url(url), kind="unix", path=str(server.socket)).safe


class _Held:
    """A `Bulk` that leaves the embedded server when it is closed."""

    def __init__(self, bulk: Bulk, server: EmbeddedServer) -> None:
        self._bulk = bulk
        self._server = server

    def __getattr__(self, name: str) -> object:
        return getattr(self._bulk, name)

    def close(self) -> None:
        self._bulk.close()
        self._server.stop_blocking()
