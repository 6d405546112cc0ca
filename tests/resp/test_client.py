"""Commands, scripts and pipelines on a server that behaves."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.resp.conftest import Connect, until
from tests.servers import Server
from toril.errors import (
    InvalidOption,
    StorageClosed,
    StorageDenied,
    StorageError,
    StorageFull,
    StorageUnavailable,
)
from toril.resp.client import Client, Reply, Settings
from toril.resp.replies import Argument
from toril.resp.script import Script
from toril.resp.url import parse_url

ECHO = Script.of("echo", "return {KEYS[1], ARGV[1]}")
SLOW = Settings(patience=0.3)


async def test_a_command_gets_its_reply(client: Client) -> None:
    assert await client.call("k", "SET", "k", "värde") == b"OK"
    assert await client.call("k", "GET", "k") == "värde".encode()
    assert await client.call("k", "GET", "missing") is None
    assert await client.call("n", "INCRBY", b"n", 7) == 7
    assert await client.call("l", "RPUSH", "l", b"\x00\xff", "") == 2
    assert await client.call("l", "LRANGE", "l", 0, -1) == [b"\x00\xff", b""]


async def test_the_connection_has_a_name(server: Server, connect: Connect) -> None:
    named = await connect(f"{server.url}?client_name=orders-1")
    assert await named.call("", "CLIENT", "GETNAME") == b"orders-1"


async def test_the_database_is_selected_again_after_a_break(
    server: Server, connect: Connect
) -> None:
    two = await connect(f"{server.url}/2")
    zero = await connect(server.url)
    await two.call("where", "SET", "where", "two")
    await zero.call("", "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert await two.call("where", "GET", "where") == b"two"
    assert await zero.call("where", "GET", "where") is None


async def test_a_database_that_does_not_exist_is_refused(server: Server, connect: Connect) -> None:
    with pytest.raises(StorageError, match="out of range"):
        await connect(f"{server.url}/9999", SLOW)


async def test_a_script_is_loaded_when_the_server_does_not_know_it(client: Client) -> None:
    script = Script.of("new", f"return 'new {id(client)}'")
    assert await client.run(script, "k") == f"new {id(client)}".encode()
    assert await client.run(ECHO, "key", "arg") == [b"key", b"arg"]


async def test_a_script_flush_is_not_noticed(client: Client) -> None:
    async def flush() -> None:
        for _ in range(20):
            await client.call("", "SCRIPT", "FLUSH")
            await asyncio.sleep(0.002)

    flushing = asyncio.create_task(flush())
    while not flushing.done():
        calls = (client.run(ECHO, "k", number) for number in range(100))
        answers = await asyncio.gather(*calls)
        assert answers == [[b"k", b"%d" % number] for number in range(100)]
    await flushing


async def test_many_calls_that_miss_a_script_load_it_once(client: Client) -> None:
    await client.call("", "SCRIPT", "FLUSH")
    await client.call("", "CONFIG", "RESETSTAT")
    await asyncio.gather(*(client.run(ECHO, "k", number) for number in range(500)))
    stats = await client.call("", "INFO", "commandstats")
    assert isinstance(stats, bytes)
    assert b"cmdstat_script|load:calls=1," in stats


async def test_ten_thousand_calls_at_once_get_their_own_replies(client: Client) -> None:
    wire = client._lane.wire if client._lane else None
    assert wire is not None
    writes = wire.writes
    answers = await asyncio.gather(*(client.call("k", "ECHO", number) for number in range(10_000)))
    assert answers == [b"%d" % number for number in range(10_000)]
    assert wire.writes == writes + 2  # the first at once, all others together


async def test_a_cancelled_call_leaves_the_connection_in_step(client: Client) -> None:
    for round_ in range(50):
        calls = [
            asyncio.create_task(client.call("k", "ECHO", f"{round_}-{number}"))
            for number in range(20)
        ]
        for _ in range(round_ % 4):
            await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for number in range(1, 20, 2):
            assert answers[number] == f"{round_}-{number}".encode()
    assert await client.call("k", "ECHO", "end") == b"end"


async def test_a_cancelled_pipeline_leaves_the_connection_in_step(client: Client) -> None:
    for turns in range(6):
        pipeline = asyncio.create_task(client.pipeline("k", [["ECHO", n] for n in range(50)]))
        for _ in range(turns):
            await asyncio.sleep(0)
        pipeline.cancel()
        assert await client.call("k", "ECHO", turns) == b"%d" % turns


async def test_a_pipeline_gives_replies_and_errors_in_order(client: Client) -> None:
    await client.call("t", "SET", "t", "text")
    first, second, third, fourth = await client.pipeline(
        "t", [["GET", "t"], ["LPUSH", "t", 1], ["EVALSHA", "0" * 40, 1, "t"], ["PING"]]
    )
    assert first == b"text"
    assert isinstance(second, StorageError)
    assert "WRONGTYPE" in str(second)
    assert isinstance(third, StorageError)
    assert "NOSCRIPT" in str(third)
    assert fourth == b"PONG"
    assert await client.pipeline("t", []) == []


async def test_a_pipeline_loads_the_scripts_it_was_told_of(client: Client) -> None:
    await client.call("", "SCRIPT", "FLUSH")
    client.learn(ECHO)
    eval_: list[Argument] = ["EVALSHA", ECHO.sha, 1, "k", "x"]
    assert await client.pipeline("k", [["PING"], eval_, eval_]) == [
        b"PONG",
        [b"k", b"x"],
        [b"k", b"x"],
    ]


async def test_a_transaction_is_repeated_as_a_whole(client: Client) -> None:
    await client.call("", "SCRIPT", "FLUSH")
    client.learn(ECHO)
    commands: list[list[Argument]] = [
        ["MULTI"],
        ["SET", "tx", 1],
        ["EVALSHA", ECHO.sha, 1, "tx", "x"],
        ["EXEC"],
    ]
    *queued, done = await client.pipeline("tx", commands)
    assert queued == [b"OK", b"QUEUED", b"QUEUED"]
    assert done == [b"OK", [b"tx", b"x"]]


async def test_an_error_inside_a_transaction_is_shown_inside(client: Client) -> None:
    commands: list[list[Argument]] = [["MULTI"], ["SET", "tx", 1], ["LPUSH", "tx", 1], ["EXEC"]]
    *_, done = await client.pipeline("tx", commands)
    assert isinstance(done, list)
    assert done[0] == b"OK"
    assert isinstance(done[1], StorageError)


async def test_calls_before_open_and_after_close_are_refused(server: Server) -> None:
    client = Client(parse_url(server.url))
    with pytest.raises(StorageClosed):
        await client.call("k", "PING")
    await client.open()
    await client.open()
    await client.close()
    await client.close()
    for call in (client.call("k", "PING"), client.run(ECHO, "k"), client.pipeline("k", [["PING"]])):
        with pytest.raises(StorageClosed):
            await call
    await client.open()
    assert await client.call("k", "PING") == b"PONG"
    await client.close()


async def test_an_embedded_address_needs_its_server_first() -> None:
    with pytest.raises(InvalidOption, match="embedded"):
        Client(parse_url("embedded:somewhere"))


async def test_the_server_says_who_it_is(client: Client) -> None:
    info = await client.server_version()
    assert info is not None
    assert info.name in ("valkey", "redis")
    assert info.version >= (7, 0)
    assert (info.maxmemory_policy, info.role) == ("noeviction", "master")
    assert not info.aof
    assert not info.cluster


async def test_every_node_can_be_asked(client: Client, server: Server) -> None:
    (name,) = await client.pick_nodes()
    assert name == f"127.0.0.1:{server.port}"
    assert await client.call_at(name, "PING") == b"PONG"
    with pytest.raises(StorageUnavailable, match="not a master"):
        await client.call_at("elsewhere:1", "PING")


async def test_a_unix_socket_works_like_a_port(own_server: Server, connect: Connect) -> None:
    admin = await connect(own_server.url)
    path = f"{own_server.directory}/s"
    own_server.kill()
    own_server._options = (*own_server._options, "--unixsocket", path)
    own_server.start()
    client = await connect(f"unix://{path}?db=3")
    await client.call("k", "SET", "k", "v")
    assert await client.call("k", "GET", "k") == b"v"
    assert await client.block("l", "BLPOP", "l", "0.01", timeout_s=0.01) is None
    assert await client.pick_nodes() == [path]
    assert await admin.call("k", "GET", "k") is None


async def test_a_full_server_is_storage_full(own_server: Server, connect: Connect) -> None:
    client = await connect(own_server.url)
    await client.call("", "CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(StorageFull, match="OOM"):
        await client.call("k", "SET", "k", "v")
    with pytest.raises(StorageFull, match="OOM"):
        await client.run(Script.of("set", "return redis.call('SET', KEYS[1], 'v')"), "k")
    await client.call("", "CONFIG", "SET", "maxmemory", "0")
    assert await client.call("k", "SET", "k", "v") == b"OK"


async def test_a_replica_is_reported_and_left(own_server: Server, connect: Connect) -> None:
    client = await connect(own_server.url, SLOW)
    admin = await connect(own_server.url)
    await admin.call("", "REPLICAOF", "127.0.0.1", 1)
    with pytest.raises(StorageUnavailable, match="replica"):
        await client.call("k", "SET", "k", "v")
    await admin.call("", "REPLICAOF", "NO", "ONE")
    assert await client.call("k", "SET", "k", "v") == b"OK"


async def test_too_few_replicas_is_unavailable(own_server: Server, connect: Connect) -> None:
    client = await connect(own_server.url)
    await client.call("", "CONFIG", "SET", "min-replicas-to-write", "1")
    with pytest.raises(StorageUnavailable, match="NOREPLICAS"):
        await client.call("k", "SET", "k", "v")


async def test_a_busy_script_is_waited_for(own_server: Server, connect: Connect) -> None:
    client = await connect(own_server.url)
    admin = await connect(own_server.url)
    await admin.call("", "CONFIG", "SET", "busy-reply-threshold", "20")
    endless = asyncio.create_task(
        connect_and_spin(connect, own_server.url), name="runs until it is killed"
    )
    other = await connect(own_server.url, Settings(patience=0.2))

    async def busy() -> bool:
        try:
            await other.call("k", "GET", "k")
        except StorageUnavailable as error:
            return "BUSY" in str(error)
        return False

    await until(busy)
    waiting = asyncio.create_task(client.call("k", "SET", "k", "v"))
    assert await admin.call("", "SCRIPT", "KILL") == b"OK"
    assert await waiting == b"OK"
    with pytest.raises(StorageError, match="killed"):
        await endless


async def connect_and_spin(connect: Connect, url: str) -> object:
    spinner = await connect(url, Settings(command_timeout=30))
    return await spinner.run(Script.of("spin", "while true do end"), "k")


async def test_a_wrong_password_is_denied_at_once(own_server: Server, connect: Connect) -> None:
    admin = await connect(own_server.url)
    await admin.call("", "CONFIG", "SET", "requirepass", "s3cret")
    place = own_server.url.removeprefix("redis://")
    for login in ("", ":wr0ng@", "nobody:wr0ng@"):
        with pytest.raises(StorageDenied) as caught:
            await connect(f"redis://{login}{place}", Settings(patience=30))
        assert "wr0ng" not in str(caught.value)
        assert place in str(caught.value)
    client = await connect(f"redis://:s3cret@{place}")
    assert await client.call("k", "PING") == b"PONG"


async def test_an_acl_user_gets_what_it_may(own_server: Server, connect: Connect) -> None:
    admin = await connect(own_server.url)
    await admin.call(
        "", "ACL", "SETUSER", "bob", "on", ">pw", "~ok:*", "-@all", "+set", "+ping", "+hello"
    )
    place = own_server.url.removeprefix("redis://")
    # Neither CLIENT nor INFO: the handshake lives without them.
    bob = await connect(f"redis://bob:pw@{place}")
    assert await bob.call("k", "SET", "ok:1", "v") == b"OK"
    with pytest.raises(StorageDenied, match="NOPERM"):
        await bob.call("k", "SET", "other", "v")
    with pytest.raises(StorageDenied, match="NOPERM"):
        await bob.call("k", "GET", "ok:1")


async def test_a_user_without_a_password_is_logged_in(own_server: Server, connect: Connect) -> None:
    admin = await connect(own_server.url)
    await admin.call("", "ACL", "SETUSER", "guest", "on", "nopass", "+@all")
    guest = await connect(f"redis://guest@127.0.0.1:{own_server.port}")
    assert await guest.call("", "ACL", "WHOAMI") == b"guest"


async def test_a_connection_sends_at_once_and_is_kept_alive(client: Client) -> None:
    wire = client._lane.wire if client._lane else None
    assert wire is not None
    assert wire._transport is not None
    sock = wire._transport.get_extra_info("socket")
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


async def test_arguments_that_cannot_be_sent_are_refused(client: Client) -> None:
    with pytest.raises(TypeError):
        await client.call("k", "SET", "k", None)  # type: ignore[arg-type]
    with pytest.raises(UnicodeEncodeError):
        await client.call("k", "SET", "k", "\ud800")
    assert await client.call("k", "PING") == b"PONG"


async def test_a_reply_is_shown_before_the_caller_goes_on(client: Client) -> None:
    seen: list[object] = []

    async def call(word: str) -> None:
        reply = await client.run(ECHO, "k", word, see=lambda reply: seen.append(reply))
        seen.append(("returned", reply))

    await client.call("", "SCRIPT", "FLUSH")
    for word in ("first, which the server does not know", "then one that it knows"):
        seen.clear()
        await call(word)
        assert seen == [[b"k", word.encode()], ("returned", [b"k", word.encode()])]


async def test_an_error_is_shown_to_the_caller_only(client: Client) -> None:
    seen: list[object] = []
    broken = Script.of("broken", "return redis.error_reply('ERR no')")
    with pytest.raises(StorageError, match="no"):
        await client.run(broken, "k", see=seen.append)
    assert seen == []


async def test_a_fault_of_who_was_shown_a_reply_does_not_keep_it_from_the_caller(
    client: Client,
) -> None:
    def fail(_reply: Reply) -> None:
        raise RuntimeError("not meant to happen")

    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    await client.run(ECHO, "k", "known from here on")
    assert await client.run(ECHO, "k", "word", see=fail) == [b"k", b"word"]
    assert await client.run(ECHO, "k", "next") == [b"k", b"next"], "on a connection made anew"
