"""Real servers for the connection layer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Protocol

import pytest

from tests.servers import Server, redis_binary, valkey_binary
from toril.resp.client import Client, Settings
from toril.resp.url import parse_url


@pytest.fixture(scope="module", params=["valkey", "redis"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server shared by the tests of a file; keys are told apart by name."""
    binary = valkey_binary() if request.param == "valkey" else redis_binary()
    with Server(binary, "--enable-debug-command", "local") as running:
        yield running


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server of the test's own, to be mistreated."""
    with Server(valkey_binary(), "--enable-debug-command", "local") as running:
        yield running


class Connect(Protocol):
    """Opens clients that are closed after the test."""

    def __call__(
        self, url: str, settings: Settings | None = None
    ) -> Coroutine[object, object, Client]: ...


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Open clients by URL, and close them after the test."""
    clients: list[Client] = []

    async def open_client(url: str, settings: Settings | None = None) -> Client:
        client = Client(parse_url(url), settings)
        clients.append(client)
        await client.open()
        return client

    yield open_client
    for client in clients:
        await client.close()


@pytest.fixture
async def client(server: Server, connect: Connect) -> Client:
    """A client of the shared server."""
    return await connect(server.url)


async def until(condition: Callable[[], Awaitable[bool] | bool], seconds: float = 10) -> None:
    """Wait for a condition, not for a time."""
    deadline = time.monotonic() + seconds
    while True:
        met = condition()
        if not isinstance(met, bool):
            met = await met
        if met:
            return
        assert time.monotonic() < deadline, f"not so within {seconds} s"
        await asyncio.sleep(0.005)


async def blocked(client: Client, count: int = 1) -> None:
    """Wait until so many connections block on the server."""

    async def enough() -> bool:
        info = await client.call("", "INFO", "clients")
        assert isinstance(info, bytes)
        return b"blocked_clients:%d\r" % count in info

    await until(enough)
