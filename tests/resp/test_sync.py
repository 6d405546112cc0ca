"""The blocking twin: the same promises from a thread without an event loop."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Iterator

import pytest

from tests.resp.proxy import Proxy
from tests.servers import Server, valkey_binary
from toril.errors import (
    StorageClosed,
    StorageDenied,
    StorageError,
    StorageFull,
    StorageUnavailable,
)
from toril.resp.client import Client, Settings
from toril.resp.script import Script
from toril.resp.sync import SyncClient
from toril.resp.url import parse_url

ECHO = Script.of("echo", "return {KEYS[1], ARGV[1]}")
QUICK = Settings(command_timeout=0.3, connect_timeout=0.5, patience=0.6)


@pytest.fixture
def sync(server: Server) -> Iterator[SyncClient]:
    client = SyncClient(parse_url(server.url))
    yield client
    client.close()


def test_commands_scripts_and_pipelines(sync: SyncClient) -> None:
    assert sync.call("k", "SET", "k", "v") == b"OK"
    assert sync.call("k", "GET", "k") == b"v"
    assert sync.run(ECHO, "k", 1) == [b"k", b"1"]
    sync.call("", "SCRIPT", "FLUSH")
    assert sync.run(ECHO, "k", 2) == [b"k", b"2"]
    ping, wrong = sync.pipeline("k", [["PING"], ["LPUSH", "k", 1]])
    assert ping == b"PONG"
    assert isinstance(wrong, StorageError)
    assert sync.pipeline("k", []) == []
    with pytest.raises(StorageError, match="WRONGTYPE"):
        sync.call("k", "LPUSH", "k", 1)


def test_a_unix_socket_works_like_a_port() -> None:
    # Short enough for a socket's path, which pytest's own are not everywhere.
    with tempfile.TemporaryDirectory(prefix="toril-") as home:
        path = f"{home}/s"
        with Server(valkey_binary(), "--unixsocket", path):
            client = SyncClient(parse_url(f"unix://{path}?db=1"))
            assert client.call("k", "SET", "k", "v") == b"OK"
            client.close()
        gone = SyncClient(parse_url(f"unix://{path}"), QUICK)
        with pytest.raises(StorageUnavailable, match="no such socket"):
            gone.call("k", "PING")


def test_a_transaction_loads_its_scripts(sync: SyncClient) -> None:
    sync.call("", "SCRIPT", "FLUSH")
    sync.learn(ECHO)
    *_, done = sync.pipeline("k", [["MULTI"], ["EVALSHA", ECHO.sha, 1, "k", "x"], ["EXEC"]])
    assert done == [[b"k", b"x"]]


def test_large_values_pass(sync: SyncClient) -> None:
    value = os.urandom(3_000_000)
    sync.call("big", "SET", "big", value)
    assert sync.call("big", "GET", "big") == value
    sync.call("big", "DEL", "big")


def test_killed_connections_are_not_noticed(sync: SyncClient, server: Server) -> None:
    admin = SyncClient(parse_url(server.url))
    for number in range(10):
        admin.call("", "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert sync.call("k", "SET", "k", number) == b"OK"
    admin.close()


def test_several_threads_take_turns(sync: SyncClient) -> None:
    wrong: list[object] = []

    def work(name: int) -> None:
        for number in range(200):
            answer = sync.run(ECHO, "k", f"{name}-{number}")
            if answer != [b"k", f"{name}-{number}".encode()]:
                wrong.append(answer)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


async def test_the_twin_works_while_the_loop_is_blocked(client: Client) -> None:
    twin = client.sync()
    answers: list[object] = []

    def beat() -> None:
        answers.extend(twin.call("k", "PING") for _ in range(5))

    thread = threading.Thread(target=beat)
    thread.start()
    thread.join()
    twin.close()
    assert answers == [b"PONG"] * 5


def test_after_close_calls_are_refused(server: Server) -> None:
    client = SyncClient(parse_url(server.url))
    client.call("k", "PING")
    client.close()
    client.close()
    with pytest.raises(StorageClosed):
        client.call("k", "PING")


def test_close_ends_a_call_of_another_thread(own_server: Server) -> None:
    own_server.kill()
    client = SyncClient(parse_url(own_server.url), Settings(patience=30))
    caught: list[BaseException] = []

    def call() -> None:
        try:
            client.call("k", "PING")
        except StorageError as error:
            caught.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    client.close()
    thread.join(5)
    assert isinstance(caught[0], StorageClosed)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_makes_its_own_connection(server: Server) -> None:
    client = SyncClient(parse_url(server.url))
    parent = client.call("", "CLIENT", "ID")
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, b"%d" % int(str(client.call("", "CLIENT", "ID"))))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 20) != b"%d" % int(str(parent))
    assert client.call("", "CLIENT", "ID") == parent
    client.close()
    os.close(read)
    os.close(write)


def test_server_errors_are_typed(own_server: Server) -> None:
    client = SyncClient(parse_url(own_server.url), QUICK)
    client.call("", "CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(StorageFull):
        client.call("k", "SET", "k", "v")
    client.call("", "CONFIG", "SET", "maxmemory", "0")
    client.call("", "REPLICAOF", "127.0.0.1", 1)
    with pytest.raises(StorageUnavailable, match="replica"):
        client.call("k", "SET", "k", "v")
    client.call("", "REPLICAOF", "NO", "ONE")
    client.call("", "CONFIG", "SET", "requirepass", "pw")
    client.close()
    other = SyncClient(parse_url(f"redis://:no@127.0.0.1:{own_server.port}"), QUICK)
    with pytest.raises(StorageDenied):
        other.call("k", "PING")
    other.close()


@pytest.mark.faults
async def test_a_silent_server_is_an_error_in_time_and_the_old_connection_dies(
    own_server: Server,
) -> None:
    async with Proxy(own_server.port) as proxy:
        client = SyncClient(parse_url(f"redis://127.0.0.1:{proxy.port}"), QUICK)
        old = await asyncio.to_thread(client.call, "", "CLIENT", "ID")
        assert isinstance(old, int)
        proxy.switch("blackhole")
        start = time.monotonic()
        with pytest.raises(StorageUnavailable, match="repeating is safe"):
            await asyncio.to_thread(client.call, "k", "SET", "k", "v")
        assert time.monotonic() - start < 3
        proxy.switch("dead_old")
        assert await asyncio.to_thread(client.call, "k", "SET", "k", "v") == b"OK"
        listed = await asyncio.to_thread(client.call, "", "CLIENT", "LIST")
        assert isinstance(listed, bytes)
        assert b"id=%d " % old not in listed
        client.close()


@pytest.mark.faults
def test_a_missing_server_is_an_error_in_time(own_server: Server) -> None:
    client = SyncClient(parse_url(own_server.url), QUICK)
    client.call("k", "PING")
    own_server.kill()
    with pytest.raises(StorageUnavailable, match="connection refused"):
        client.call("k", "PING")
    bounded = SyncClient(
        parse_url(own_server.url),
        Settings(max_reconnect_attempts=2, patience=30, first_delay=0.01),
    )
    with pytest.raises(StorageUnavailable, match="gave up after 2"):
        bounded.call("k", "PING")
    own_server.start()
    assert client.call("k", "PING") == b"PONG"
    client.close()
    bounded.close()
