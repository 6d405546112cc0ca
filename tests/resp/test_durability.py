"""Durable runs return when the copies are there, and say so when they are not."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest

from tests.resp.conftest import Connect, until
from tests.servers import Server, valkey_binary
from toril.errors import StorageUnavailable, UnsupportedFeature
from toril.resp.client import Client, Settings
from toril.resp.node import Durability, Node
from toril.resp.script import Script

ONCE = Script.of("once", "return redis.call('SET', KEYS[1], ARGV[1], 'NX') and 1 or 0")


@pytest.fixture
def pair(own_server: Server) -> Iterator[tuple[Server, Server]]:
    """A master and its replica."""
    options = ("--replicaof", "127.0.0.1", str(own_server.port))
    with Server(valkey_binary(), *options) as replica:
        yield own_server, replica


async def in_step(connect: Connect, master: Server) -> None:
    """Wait until the replica has the master's data."""
    admin = await connect(master.url)
    await admin.call("", "CONFIG", "SET", "repl-diskless-sync-delay", 0)
    await admin.call("x", "SET", "x", 1)

    async def synced() -> bool:
        info = await admin.call("", "INFO", "replication")
        assert isinstance(info, bytes)
        return b"state=online" in info

    await until(synced, 20)


def fence_of(client: Client) -> int:
    assert client._router is not None
    node: Node = client._router.node("")
    assert node.fence is not None
    return node.fence.waits


async def waits(client: Client, name: str) -> int:
    stats = await client.call("", "INFO", "commandstats")
    assert isinstance(stats, bytes)
    lines = [line for line in stats.split(b"\r\n") if line.startswith(f"cmdstat_{name}:".encode())]
    return int(lines[0].split(b"calls=")[1].split(b",")[0]) if lines else 0


async def test_local_waits_for_the_disk(connect: Connect) -> None:
    with Server(valkey_binary(), "--appendonly", "yes", "--appendfsync", "always") as server:
        client = await connect(f"{server.url}?durability=local")
        assert await client.run(ONCE, "k", 1, durable=True) == 1
        before = fence_of(client)
        assert await client.run(ONCE, "i", 1, durable=True) == 1
        assert fence_of(client) == before + 1
        assert await client.run(ONCE, "j", 1) == 1
        assert fence_of(client) == before + 1


async def test_local_is_refused_without_an_append_only_file(
    own_server: Server, connect: Connect
) -> None:
    with pytest.raises(UnsupportedFeature, match="appendonly yes"):
        await connect(f"{own_server.url}?durability=local")


async def test_memory_waits_for_nothing(own_server: Server, connect: Connect) -> None:
    client = await connect(own_server.url)
    assert await client.run(ONCE, "k", 1, durable=True) == 1
    assert await waits(client, "wait") == 0


async def test_replicated_is_refused_without_replicas(own_server: Server, connect: Connect) -> None:
    with pytest.raises(StorageUnavailable, match="has 0 replicas"):
        await connect(
            f"{own_server.url}?durability=replicated:1",
            Settings(patience=0.2, durability="replicated:1"),
        )


@pytest.mark.faults
async def test_replicated_waits_for_the_replica(
    pair: tuple[Server, Server], connect: Connect
) -> None:
    master, replica = pair
    await in_step(connect, master)
    settings = Settings(durability="replicated:1", command_timeout=0.5)
    client = await connect(master.url, settings)
    assert await client.run(ONCE, "k", 1, durable=True) == 1
    replica.signal(signal.SIGSTOP)
    with pytest.raises(StorageUnavailable, match=r"replicated 0 of 1.*effect is unknown"):
        await client.run(ONCE, "j", 1, durable=True)
    # The repeat finds its work done and writes nothing; that must not pass for replicated.
    other = await connect(master.url, settings)
    for again in (client, other):
        with pytest.raises(StorageUnavailable, match="effect is unknown"):
            await again.run(ONCE, "j", 1, durable=True)
    replica.signal(signal.SIGCONT)
    assert await client.run(ONCE, "j", 1, durable=True) == 0


@pytest.mark.faults
async def test_durable_runs_share_their_waits(
    pair: tuple[Server, Server], connect: Connect
) -> None:
    master, _ = pair
    await in_step(connect, master)
    client = await connect(f"{master.url}?durability=replicated:1")
    runs = (client.run(ONCE, f"k{number}", 1, durable=True) for number in range(500))
    assert await asyncio.gather(*runs) == [1] * 500
    assert fence_of(client) < 10


@pytest.mark.faults
async def test_durable_runs_live_through_killed_connections(
    pair: tuple[Server, Server], connect: Connect
) -> None:
    master, _ = pair
    await in_step(connect, master)
    client = await connect(f"{master.url}?durability=replicated:1")
    admin = await connect(master.url)
    runs = [
        asyncio.create_task(client.run(ONCE, f"k{number}", 1, durable=True))
        for number in range(200)
    ]
    runs[0].cancel()
    while not all(run.done() for run in runs):
        await admin.call("", "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await asyncio.sleep(0.02)
    answers = await asyncio.gather(*runs, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert {type(answer) for answer in answers[1:]} == {int}


def test_levels_are_read() -> None:
    assert not Durability("memory", 1).wanted
    assert Durability("local", 1).local
    assert Durability("replicated:3", 1).replicas == 3
    with pytest.raises(StorageUnavailable, match="not on disk"):
        Durability("local", 1).check([0, 0], "h")
    Durability("local", 1).check([1, 0], "h")
