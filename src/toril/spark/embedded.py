"""Reach the embedded server of this machine from programs without an event loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from toril.resp.url import parse_url
from toril.storage import open_bulk

if TYPE_CHECKING:
    from toril.resp.embedded import EmbeddedServer
    from toril.storage.columns import Bulk


def is_embedded(url: str) -> bool:
    """Tell whether a URL means the server that toril starts itself."""
    return url.partition(":")[0].lower().removeprefix("bullmq+") == "embedded"


def open_embedded(url: str) -> Bulk:
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


def _server(url: str) -> EmbeddedServer:
    from toril.resp.embedded import EmbeddedServer

    return EmbeddedServer(parse_url(url).path or None)


def _socket_url(url: str, server: EmbeddedServer) -> str:
    scheme, _, rest = url.partition(":")
    layout = "bullmq+" if scheme.lower().startswith("bullmq+") else ""
    query = rest.partition("?")[2]
    return f"{layout}unix://{server.socket}{'?' if query else ''}{query}"


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
