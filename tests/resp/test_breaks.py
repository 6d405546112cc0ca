"""Broken, silent and missing connections: calls are repeated, nothing hangs, nothing is doubled."""

from __future__ import annotations

import asyncio
import gc
import itertools
import signal
import time
from collections.abc import AsyncIterator

import pytest

from tests.resp.conftest import Connect, blocked, until
from tests.resp.proxy import Proxy
from tests.servers import Server, free_port
from toril.errors import StorageClosed, StorageUnavailable
from toril.resp.client import Client, Settings
from toril.resp.script import Script
from toril.resp.url import parse_url

BUMP = Script.of("bump", "return redis.call('INCR', KEYS[1])")
QUICK = Settings(command_timeout=0.3, connect_timeout=0.5, patience=0.6)

pytestmark = pytest.mark.faults


@pytest.fixture
async def proxy(own_server: Server) -> AsyncIterator[Proxy]:
    async with Proxy(own_server.port) as running:
        yield running


def through(proxy: Proxy) -> str:
    return f"redis://127.0.0.1:{proxy.port}"


async def test_killed_connections_are_not_noticed(own_server: Server, connect: Connect) -> None:
    client = await connect(own_server.url)
    admin = await connect(own_server.url)
    kills = 0

    async def kill() -> None:
        nonlocal kills
        while True:
            await admin.call("", "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            kills += 1
            await asyncio.sleep(0.01)

    killing = asyncio.create_task(kill())
    for start in range(0, 2000, 100):
        numbers = range(start, start + 100)
        answers = await asyncio.gather(*(client.call("k", "SET", f"k{n}", n) for n in numbers))
        assert answers == [b"OK"] * 100
    await until(lambda: kills > 10)
    killing.cancel()
    values = await client.call("k", "MGET", *(f"k{n}" for n in range(2000)))
    assert values == [b"%d" % n for n in range(2000)]


async def test_a_reply_that_is_cut_off_is_asked_for_again(proxy: Proxy, connect: Connect) -> None:
    client = await connect(through(proxy))
    await client.call("k", "GET", "k")
    for word, call in (
        (b"SET", client.call("k", "SET", "k", "v")),
        (b"EVALSHA", client.run(BUMP, "n")),
        (b"MGET", client.pipeline("k", [["PING"], ["MGET", "k", "n"]])),
    ):
        proxy.cut_reply_to(word)
        await call
    assert proxy.cuts == 3
    # The script ran twice: whoever uses a client must make that harmless.
    assert await client.call("n", "GET", "n") in (b"1", b"2")


async def test_the_old_connection_is_killed_before_anything_is_repeated(
    proxy: Proxy, own_server: Server, connect: Connect
) -> None:
    client = await connect(through(proxy), Settings(command_timeout=0.3))
    admin = await connect(own_server.url)
    old = await client.call("", "CLIENT", "ID")
    assert isinstance(old, int)
    proxy.switch("dead_old")
    assert await client.call("k", "SET", "k", "v") == b"OK"
    listed = await admin.call("", "CLIENT", "LIST")
    assert isinstance(listed, bytes)
    assert b"id=%d " % old not in listed


async def test_a_restarted_server_keeps_its_new_clients(own_server: Server) -> None:
    """Connection numbers start anew, so an old number may be somebody else's by now."""
    client = Client(parse_url(own_server.url), Settings(patience=20))
    await client.open()
    own_server.signal(signal.SIGSTOP)
    waiting = asyncio.create_task(client.call("k", "SET", "k", "v"))
    await asyncio.sleep(0)
    own_server.kill()
    own_server.start()
    others = [Client(parse_url(own_server.url)) for _ in range(20)]
    for other in others:
        await other.open()
    ids = [await other.call("", "CLIENT", "ID") for other in others]
    assert await waiting == b"OK"
    assert [await other.call("", "CLIENT", "ID") for other in others] == ids
    for one in (client, *others):
        await one.close()


async def test_a_silent_server_is_an_error_within_the_time_limits(
    proxy: Proxy, connect: Connect
) -> None:
    client = await connect(through(proxy), QUICK)
    proxy.switch("blackhole")
    start = time.monotonic()
    with pytest.raises(StorageUnavailable, match=r"repeating is safe"):
        await client.call("k", "SET", "k", "v")
    assert 0.5 < time.monotonic() - start < 3
    proxy.switch("pass_")
    await until(lambda: works(client))


async def works(client: Client) -> bool:
    try:
        return await client.call("k", "SET", "k", "v") == b"OK"
    except StorageUnavailable:
        return False


async def test_a_half_open_connection_is_replaced_in_time(proxy: Proxy, connect: Connect) -> None:
    client = await connect(through(proxy))
    waiting = asyncio.create_task(client.block("l", "BLPOP", "l", 5, timeout_s=5))
    await blocked(client)
    proxy.switch("dead_old")
    start = time.monotonic()
    assert await client.call("k", "SET", "k", "v") == b"OK"
    assert time.monotonic() - start < 5
    assert await waiting is None
    await client.call("l", "RPUSH", "l", "x")
    assert await client.block("l", "BLPOP", "l", 5, timeout_s=5) == [b"l", b"x"]
    assert time.monotonic() - start < 10


async def test_slow_but_steady_replies_are_no_silence(proxy: Proxy, connect: Connect) -> None:
    client = await connect(through(proxy), Settings(command_timeout=0.3))
    accepted = proxy.accepted
    proxy.switch("delay", delay_s=0.05)
    await asyncio.gather(*(client.call("k", "ECHO", "x" * 20_000) for _ in range(100)))
    assert proxy.accepted == accepted


async def test_a_blocked_event_loop_is_no_silent_server(
    own_server: Server, connect: Connect
) -> None:
    client = await connect(own_server.url, Settings(command_timeout=0.2))
    number = await client.call("", "CLIENT", "ID")
    call = asyncio.create_task(client.call("k", "SET", "k", "v"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    time.sleep(0.7)  # noqa: ASYNC251
    assert await call == b"OK"
    assert await client.call("", "CLIENT", "ID") == number


async def test_a_stopped_server_is_waited_for(own_server: Server, connect: Connect) -> None:
    client = await connect(own_server.url, Settings(command_timeout=0.3, connect_timeout=0.5))
    own_server.signal(signal.SIGSTOP)
    waiting = asyncio.create_task(client.run(BUMP, "n"))
    asyncio.get_running_loop().call_later(1.2, own_server.signal, signal.SIGCONT)
    assert await waiting in (1, 2)


async def test_work_goes_on_after_a_restart(own_server: Server, connect: Connect) -> None:
    client = await connect(own_server.url)
    own_server.kill()
    waiting = [asyncio.create_task(client.run(BUMP, "n")) for _ in range(50)]
    await asyncio.sleep(0)
    own_server.start()
    start = time.monotonic()
    assert sorted(await asyncio.gather(*waiting)) == list(range(1, 51))  # type: ignore[type-var]
    assert time.monotonic() - start < 5


async def test_a_missing_server_is_named_in_the_error() -> None:
    port = free_port()
    client = Client(parse_url(f"redis://127.0.0.1:{port}"), QUICK)
    with pytest.raises(StorageUnavailable) as caught:
        await client.open()
    assert f"cannot reach 127.0.0.1:{port} (connection refused, " in str(caught.value)
    assert "nothing was sent" in str(caught.value)
    with pytest.raises(StorageClosed):
        await client.call("k", "PING")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://no-such-host.invalid", "cannot resolve"),
        ("redis://localhost:1", "connection refused"),
        ("unix:///no/such.sock", "no such socket"),
    ],
)
async def test_a_place_that_does_not_exist_is_named(url: str, reason: str) -> None:
    client = Client(parse_url(url), QUICK)
    with pytest.raises(StorageUnavailable, match=reason):
        await client.open()


async def test_attempts_can_be_bounded(own_server: Server, connect: Connect) -> None:
    settings = Settings(max_reconnect_attempts=3, patience=30, first_delay=0.01)
    client = await connect(own_server.url, settings)
    own_server.kill()
    calls = (client.call("k", "PING") for _ in range(5))
    for answer in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(answer, StorageUnavailable)
        assert "gave up after 3 attempts" in str(answer)
    own_server.start()
    assert await client.call("k", "PING") == b"PONG"


def test_a_wait_for_a_server_is_at_most_a_tenth_of_the_time_it_was_away() -> None:
    settings = Settings()
    assert settings.delay(1) == 0.1
    assert settings.delay(100) == settings.delay(10**9) == 30
    away = 0.0
    for tries in range(1, 200):
        wait = settings.delay(tries)
        assert settings.delay(tries - 1) <= wait <= 30
        # With the spread of a fifth.
        assert 1.2 * wait <= 0.13 + away / 10
        away += wait


async def test_waits_between_attempts_grow_up_to_a_limit(own_server: Server) -> None:
    client = Client(
        parse_url(own_server.url), Settings(patience=2, first_delay=0.05, longest_delay=0.1)
    )
    await client.open()
    own_server.kill()
    lane = client._lane
    assert lane is not None
    with pytest.raises(StorageUnavailable, match="failed attempts"):
        await client.call("k", "PING")
    # From 50 ms to 100 ms within the first 0.7 s: about 22 in all, not 40.
    assert 12 <= lane.tries <= 30
    await client.close()


async def test_a_missing_server_costs_no_cpu(
    own_server: Server, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect(own_server.url, Settings(patience=2))
    own_server.kill()
    loop, turns = asyncio.get_running_loop(), itertools.count()
    run_once = loop._run_once  # type: ignore[attr-defined]
    monkeypatch.setattr(loop, "_run_once", lambda: (next(turns), run_once()))
    gc.disable()  # what this process collects, and its other threads, are not the client's
    try:
        before, start = time.thread_time(), time.monotonic()
        answers = await asyncio.gather(
            *(client.call("k", "PING") for _ in range(50)), return_exceptions=True
        )
        used, spent = time.thread_time() - before, time.monotonic() - start
    finally:
        gc.enable()
    assert all(isinstance(answer, StorageUnavailable) for answer in answers)
    assert used / spent < 0.05
    taken = next(turns)
    assert 5 < taken < 300  # a loop that spins takes tens of thousands in two seconds


async def test_close_returns_at_once_while_the_server_is_down(own_server: Server) -> None:
    client = Client(parse_url(own_server.url), Settings(patience=30))
    await client.open()
    own_server.kill()
    waiting = [asyncio.create_task(client.call("k", "PING")) for _ in range(10)]
    blocking = asyncio.create_task(client.block("l", "BLPOP", "l", 5, timeout_s=5))
    await until(lambda: bool(client._lane and client._lane.tries))
    start = time.monotonic()
    await client.close()
    assert time.monotonic() - start < 1
    for answer in await asyncio.gather(*waiting, blocking, return_exceptions=True):
        assert isinstance(answer, StorageClosed)


async def test_close_under_calls_leaves_nothing_behind(proxy: Proxy) -> None:
    client = Client(parse_url(through(proxy)), QUICK)
    await client.open()
    tasks_before = len(asyncio.all_tasks())
    proxy.switch("blackhole")
    calls = [asyncio.create_task(client.call("k", "PING")) for _ in range(10)]
    blocking = asyncio.create_task(client.block("l", "BLPOP", "l", 5, timeout_s=5))
    await asyncio.sleep(0)
    await client.close()
    for answer in await asyncio.gather(*calls, blocking, return_exceptions=True):
        assert isinstance(answer, StorageClosed)
    proxy.switch("pass_")
    # The proxy has a task for each connection; they end as it notices.
    await until(lambda: len(asyncio.all_tasks()) <= tasks_before)


async def test_connections_do_not_pile_up(own_server: Server, connect: Connect) -> None:
    client = await connect(own_server.url)
    admin = await connect(own_server.url)
    for _ in range(20):
        await admin.call("", "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert await client.call("k", "PING") == b"PONG"
    listed = await admin.call("", "CLIENT", "LIST")
    assert isinstance(listed, bytes)
    assert len(listed.splitlines()) == 2
