"""Blocking commands: wake, time out, break, and give back what a cancelled one took."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.resp.conftest import Connect, blocked, until
from tests.resp.proxy import Proxy
from tests.servers import Server
from toril.clock import ManualClock
from toril.errors import StorageClosed, StorageError, StorageUnavailable
from toril.resp.client import Client, Reply, Settings
from toril.resp.node import IDLE_S
from toril.resp.url import parse_url


def node_of(client: Client) -> object:
    assert client._router is not None
    return client._router.node("")


async def test_a_push_wakes_the_waiter(client: Client) -> None:
    waiting = asyncio.create_task(client.block("a", "BLPOP", "a", 5, timeout_s=5))
    await blocked(client)
    start = time.monotonic()
    await client.call("a", "RPUSH", "a", "x")
    assert await waiting == [b"a", b"x"]
    assert time.monotonic() - start < 1


async def test_time_runs_out_without_an_error(client: Client) -> None:
    assert await client.block("b", "BLPOP", "b", "0.05", timeout_s=0.05) is None


async def test_commands_pass_a_blocked_connection(client: Client) -> None:
    waiting = asyncio.create_task(client.block("c", "BLPOP", "c", 5, timeout_s=5))
    await blocked(client)
    assert await client.call("c", "PING") == b"PONG"
    await client.call("c", "RPUSH", "c", "x")
    await waiting


async def test_a_connection_is_used_again(server: Server, connect: Connect) -> None:
    client = await connect(server.url)
    for _ in range(5):
        await client.block("d", "BLPOP", "d", "0.01", timeout_s=0.01)
        await client.block("e", "BLPOP", "e", "0.01", timeout_s=0.01)
    assert node_of(client).blocking == 1  # type: ignore[attr-defined]
    calls = (client.block(k, "BLPOP", k, "0.05", timeout_s=0.05) for k in ("f", "f", "g"))
    assert await asyncio.gather(*calls) == [None] * 3
    assert node_of(client).blocking == 3  # type: ignore[attr-defined]


async def test_an_idle_connection_is_closed(server: Server) -> None:
    clock = ManualClock()
    client = Client(parse_url(server.url), clock=clock)
    await client.open()
    await client.block("i", "BLPOP", "i", "0.01", timeout_s=0.01)
    await clock.advance(IDLE_S - 1)
    assert node_of(client).blocking == 1  # type: ignore[attr-defined]
    await clock.advance(2)
    assert node_of(client).blocking == 0  # type: ignore[attr-defined]
    await client.close()


async def test_cancelling_unblocks_the_server(client: Client) -> None:
    waiting = asyncio.create_task(client.block("j", "BLPOP", "j", 60, timeout_s=60))
    await blocked(client)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await blocked(client, 0)
    await client.call("j", "RPUSH", "j", "x")
    assert await client.call("j", "LLEN", "j") == 1


async def test_what_a_cancelled_command_took_goes_to_the_orphan(client: Client) -> None:
    """Cancel at every possible moment; each item is read or handed back, none is lost."""
    orphans: list[Reply] = []

    async def orphan(reply: Reply) -> None:
        orphans.append(reply)

    got: list[Reply] = []

    async def take_and_cancel(item: int, turns: int) -> None:
        waiting = asyncio.create_task(
            client.block("o", "BLPOP", "o", 5, timeout_s=5, orphan=orphan)
        )
        pushed = asyncio.create_task(client.call("o", "RPUSH", "o", item))
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting.cancel()
        (answer,) = await asyncio.gather(waiting, return_exceptions=True)
        if not isinstance(answer, BaseException):
            got.append(answer)
        await pushed

    items = 0
    # How many turns a reply takes depends on the machine, so it goes on until one was caught.
    while items < 40 or not orphans:
        await take_and_cancel(items, items % 200)
        items += 1

    async def all_there() -> bool:
        left = await client.call("o", "LLEN", "o")
        assert isinstance(left, int)
        return len(got) + len(orphans) + left == items

    await until(all_there)


async def test_cancelled_commands_are_tidied_up_before_close_returns(server: Server) -> None:
    client = Client(parse_url(server.url))
    await client.open()
    orphans: list[Reply] = []

    async def orphan(reply: Reply) -> None:
        orphans.append(reply)

    waiting = asyncio.create_task(client.block("p", "BLPOP", "p", 5, timeout_s=5, orphan=orphan))
    await blocked(client)
    await client.call("p", "RPUSH", "p", "x")
    waiting.cancel()
    (answer,) = await asyncio.gather(waiting, return_exceptions=True)
    await client.close()
    assert orphans == [[b"p", b"x"]] or answer == [b"p", b"x"]


async def test_an_orphan_that_hangs_does_not_hold_up_close(server: Server) -> None:
    client = Client(parse_url(server.url))
    await client.open()
    started = asyncio.Event()

    async def orphan(_reply: Reply) -> None:
        started.set()
        await asyncio.Event().wait()

    waiting = asyncio.create_task(client.block("w", "BLPOP", "w", 5, timeout_s=5, orphan=orphan))
    await blocked(client)
    pushed = asyncio.create_task(client.call("w", "RPUSH", "w", "x"))
    waiting.cancel()
    await asyncio.gather(waiting, pushed, return_exceptions=True)
    start = time.monotonic()
    await client.close()
    assert time.monotonic() - start < 3


async def test_a_broken_connection_counts_as_a_timeout(
    server: Server, client: Client, connect: Connect
) -> None:
    admin = await connect(server.url)
    waiting = asyncio.create_task(client.block("q", "BLPOP", "q", 60, timeout_s=60))
    await blocked(admin)
    await admin.call("", "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert await waiting is None
    assert await client.block("q", "BLPOP", "q", "0.01", timeout_s=0.01) is None


@pytest.mark.faults
async def test_a_half_open_wait_takes_nothing_from_others(
    own_server: Server, connect: Connect
) -> None:
    async with Proxy(own_server.port) as proxy:
        client = await connect(f"redis://127.0.0.1:{proxy.port}", Settings(command_timeout=0.3))
        admin = await connect(own_server.url)
        waiting = asyncio.create_task(client.block("r", "BLPOP", "r", "60", timeout_s=0.1))
        await blocked(admin)
        proxy.switch("dead_old")
        assert await waiting is None
        await client.call("r", "PING")
        # The old wait is gone from the server although it never heard of the break.
        await blocked(admin, 0)
        await admin.call("r", "RPUSH", "r", "x")
        assert await client.block("r", "BLPOP", "r", 1, timeout_s=1) == [b"r", b"x"]


async def test_a_server_that_is_down_is_an_error(own_server: Server, connect: Connect) -> None:
    client = await connect(own_server.url, Settings(patience=0.3))
    own_server.kill()
    with pytest.raises(StorageUnavailable, match="refused"):
        await client.block("s", "BLPOP", "s", 1, timeout_s=1)


async def test_an_error_of_the_command_is_told(client: Client) -> None:
    await client.call("t", "SET", "t", "text")
    with pytest.raises(StorageError, match="WRONGTYPE"):
        await client.block("t", "BLPOP", "t", 1, timeout_s=1)
    assert await client.block("u", "BLPOP", "u", "0.01", timeout_s=0.01) is None


async def test_close_ends_a_wait(server: Server) -> None:
    client = Client(parse_url(server.url))
    await client.open()
    waiting = asyncio.create_task(client.block("v", "BLPOP", "v", 60, timeout_s=60))
    await blocked(client)
    start = time.monotonic()
    await client.close()
    with pytest.raises(StorageClosed):
        await waiting
    assert time.monotonic() - start < 2


async def test_a_blocking_command_can_be_sent_before_it_is_waited_for(client: Client) -> None:
    await client.block("k", "BLPOP", "k", "0.01", timeout_s=0.01)  # makes the connection
    seen: list[Reply] = []
    wait = client.block_soon("k", "BLPOP", "k", 5, timeout_s=5, see=seen.append)
    await blocked(client)
    await client.call("k", "RPUSH", "k", "v")
    assert await wait() == [b"k", b"v"]
    assert seen == [[b"k", b"v"]]


async def test_a_blocking_command_without_a_connection_yet_is_sent_when_it_is_waited_for(
    client: Client,
) -> None:
    seen: list[Reply] = []
    wait = client.block_soon("l", "BLPOP", "l", 5, timeout_s=5, see=seen.append)
    await client.call("l", "RPUSH", "l", "v")
    assert await wait() == [b"l", b"v"]
    assert seen == [[b"l", b"v"]]


async def test_a_closed_client_says_so_when_the_command_is_waited_for(client: Client) -> None:
    await client.close()
    wait = client.block_soon("l", "BLPOP", "l", 5, timeout_s=5, see=lambda _reply: None)
    with pytest.raises(StorageClosed):
        await wait()


async def test_what_a_cancelled_command_brings_is_shown_to_nobody(client: Client) -> None:
    seen: list[Reply] = []
    orphans: list[Reply] = []

    async def keep(reply: Reply) -> None:
        orphans.append(reply)

    waiting = asyncio.create_task(
        client.block("m", "BLPOP", "m", 5, timeout_s=5, orphan=keep, see=seen.append)
    )
    await blocked(client)
    waiting.cancel()
    await client.call("m", "RPUSH", "m", "v")
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await until(lambda: bool(orphans) or not node_of(client)._lent)  # type: ignore[attr-defined]
    assert seen == []
