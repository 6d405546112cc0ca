"""Clusters: the right node for a key, moves, migrations and failovers."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator

import pytest

from tests.resp.conftest import Connect
from tests.resp.nodes import ask, cluster, name_of
from tests.servers import Server
from toril.errors import StorageClosed, StorageError, StorageUnavailable
from toril.resp.client import Client, Settings
from toril.resp.cluster import SlotMap, read_slots, slot_of
from toril.resp.replies import Lost
from toril.resp.script import Script
from toril.resp.sync import SyncClient
from toril.resp.url import parse_url
from toril.resp.wire import Endpoint

ECHO = Script.of("echo", "return {KEYS[1], ARGV[1]}")


@pytest.mark.parametrize(
    ("key", "slot"),
    [
        ("myqueue", 9917),
        ("123456789", 12739),
        ("foo", 12182),
        ("", 0),
        ("{user1000}.following", slot_of("user1000")),
        ("foo{}{bar}", slot_of(b"foo{}{bar}")),
        ("foo{{bar}}zap", slot_of("{bar")),
        ("foo{bar}{zap}", slot_of("bar")),
        ("}a{", slot_of(b"}a{")),
    ],
)
def test_a_key_has_its_slot(key: str, slot: int) -> None:
    assert slot_of(key) == slot


def test_an_empty_tag_is_no_tag() -> None:
    assert slot_of("foo{}{bar}") != slot_of("bar")
    assert slot_of("{}x") != slot_of("")


def test_a_map_of_slots_is_read() -> None:
    here = Endpoint("here", 1)
    reply = [
        [0, 99, [b"a", 7, b"id", []], [b"replica", 8, b"id"]],
        [200, 299, [None, 9, b"id"]],
        [300, 300, [b"?", 10, b"id"]],
    ]
    slots = read_slots(reply, here)
    assert slots.find(50) == Endpoint("a", 7)
    assert slots.find(250) == Endpoint("here", 9)
    assert slots.find(300) == Endpoint("here", 10)
    assert slots.find(150) is None
    assert slots.find(16000) is None
    slots.move(150, Endpoint("b", 1))
    assert slots.find(150) == Endpoint("b", 1)
    assert len(slots.masters) == 4
    assert SlotMap().find(0) is None
    for wrong in ([], None, [[1, 2]], b"x"):
        with pytest.raises(Lost):
            read_slots(wrong, here)


@pytest.fixture(scope="module")
def three() -> Iterator[list[Server]]:
    """A cluster of three masters."""
    with cluster(3) as servers:
        yield servers


def url_of(servers: list[Server]) -> str:
    return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)


async def test_keys_go_to_their_nodes(three: list[Server], connect: Connect) -> None:
    client = await connect(url_of(three[:1]))
    keys = [f"key-{number}" for number in range(300)]
    assert await asyncio.gather(*(client.call(k, "SET", k, k) for k in keys)) == [b"OK"] * 300
    assert await asyncio.gather(*(client.call(k, "GET", k) for k in keys)) == [
        k.encode() for k in keys
    ]
    assert await client.run(ECHO, "{a}x", 1) == [b"{a}x", b"1"]
    assert await client.run(ECHO, "{b}x", 1) == [b"{b}x", b"1"]
    names = await client.pick_nodes()
    assert sorted(names) == sorted(f"127.0.0.1:{server.port}" for server in three)
    sizes = [await client.call_at(name, "DBSIZE") for name in names]
    assert sum(int(str(size)) for size in sizes) >= 300
    assert all(sizes)


async def test_asking_nodes_again_and_again_does_not_read_the_map_each_time(
    three: list[Server], connect: Connect
) -> None:
    client = await connect(url_of(three))
    names = await client.pick_nodes()
    before = maps_read(three)
    for _ in range(20):
        for name in names:
            assert await client.call_at(name, "PING") == b"PONG"
    assert maps_read(three) == before


def maps_read(servers: list[Server]) -> int:
    """How often the servers were asked who serves what."""
    total = 0
    for server in servers:
        stats = ask(server, "INFO", "commandstats")
        assert isinstance(stats, bytes)
        total += sum(map(int, re.findall(rb"cmdstat_cluster\|slots:calls=(\d+)", stats)))
    return total


async def test_pipelines_and_waits_work(three: list[Server], connect: Connect) -> None:
    client = await connect(url_of(three))
    for tag in "abcdef":
        key = f"{{{tag}}}l"
        waiting = asyncio.create_task(client.block(key, "BLPOP", key, 5, timeout_s=5))
        assert await client.pipeline(key, [["SET", f"{{{tag}}}s", 1], ["RPUSH", key, "x"]]) == [
            b"OK",
            1,
        ]
        assert await waiting == [key.encode(), b"x"]


async def test_the_blocking_twin_finds_its_way(three: list[Server]) -> None:
    twin = SyncClient(parse_url(url_of(three[:1])))
    for number in range(50):
        key = f"sync-{number}"
        assert await asyncio.to_thread(twin.call, key, "SET", key, number) == b"OK"
        assert await asyncio.to_thread(twin.run, ECHO, key, number) == [
            key.encode(),
            b"%d" % number,
        ]
    twin.close()


async def test_a_cluster_url_is_asked_for(three: list[Server], connect: Connect) -> None:
    client = await connect(three[0].url)
    with pytest.raises(StorageError, match=r"redis\+cluster://"):
        await asyncio.gather(*(client.call(k, "SET", k, 1) for k in map(str, range(20))))


def migrate(servers: list[Server], slot: int, source: Server, target: Server) -> None:
    """Begin to move a slot."""
    ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", name_of(source))
    ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", name_of(target))


def owner(servers: list[Server], slot: int) -> Server:
    ranges = ask(servers[0], "CLUSTER", "SLOTS")
    assert isinstance(ranges, list)
    for entry in ranges:
        match entry:
            case [int(start), int(end), [_, int(port), *_], *_] if start <= slot <= end:
                return next(server for server in servers if server.port == port)
    raise AssertionError("nobody owns the slot")


async def test_a_slot_that_moves_is_followed(three: list[Server], connect: Connect) -> None:
    """ASK while it is under way, MOVED when it is done; nothing is noticed."""
    client = await connect(url_of(three))
    twin = SyncClient(parse_url(url_of(three)))
    slot = slot_of("{mover}")
    old, new = "{mover}old", "{mover}new"
    await client.call(old, "SET", old, "o")
    source = owner(three, slot)
    target = next(server for server in three if server is not source)
    waiting = asyncio.create_task(client.block("{mover}l", "BLPOP", "{mover}l", 9, timeout_s=9))
    await asyncio.to_thread(migrate, three, slot, source, target)
    # A key that is not there yet is asked for at the new place.
    assert await client.call(new, "SET", new, "n") == b"OK"
    assert await client.call(old, "GET", old) == b"o"
    assert await client.run(ECHO, new, 1) == [new.encode(), b"1"]
    assert await client.pipeline(new, [["GET", new], ["GET", new]]) == [b"n", b"n"]
    assert await asyncio.to_thread(twin.call, new, "GET", new) == b"n"
    ask(source, "MIGRATE", "127.0.0.1", target.port, old, 0, 1000)
    for server in (target, source, *three):
        ask(server, "CLUSTER", "SETSLOT", slot, "NODE", name_of(target))
    assert await client.call(old, "GET", old) == b"o"
    assert await asyncio.to_thread(twin.call, old, "GET", old) == b"o"
    await client.call("{mover}l", "RPUSH", "{mover}l", "x")
    assert await waiting == [b"{mover}l", b"x"]
    assert owner(three, slot) is target
    twin.close()


async def test_a_cluster_that_does_not_answer_is_an_error() -> None:
    client = Client(parse_url("redis+cluster://127.0.0.1:1,127.0.0.1:2"), Settings(patience=0.5))
    start = time.monotonic()
    with pytest.raises(StorageUnavailable, match="cluster"):
        await client.open()
    assert time.monotonic() - start < 3
    twin = client.sync()
    with pytest.raises(StorageUnavailable, match="refused"):
        await asyncio.to_thread(twin.call, "k", "PING")
    twin.close()


@pytest.mark.slow
@pytest.mark.faults
async def test_a_failover_is_lived_through(connect: Connect) -> None:
    with cluster(3, 1) as servers:
        url = url_of(servers[:3])
        client = await connect(url, Settings(patience=10, command_timeout=1))
        twin = SyncClient(parse_url(url), Settings(patience=10, command_timeout=1))
        keys = [f"key-{number}" for number in range(100)]
        await asyncio.gather(*(client.call(k, "SET", k, "old") for k in keys))
        await client.call("", "WAIT", 1, 1000)
        servers[1].kill()
        start = time.monotonic()
        answers = await asyncio.gather(*(client.call(k, "SET", k, "new") for k in keys))
        assert answers == [b"OK"] * 100
        assert time.monotonic() - start < 8
        for key in keys[:20]:
            assert await asyncio.to_thread(twin.call, key, "GET", key) == b"new"
        names = await client.pick_nodes()
        assert f"127.0.0.1:{servers[4].port}" in names
        twin.close()


async def test_close_under_calls_ends_them(three: list[Server]) -> None:
    client = Client(parse_url(url_of(three)), Settings(patience=30))
    await client.open()
    blocked = asyncio.create_task(client.block("l", "BLPOP", "l", 30, timeout_s=30))
    await client.call("l", "PING")
    await client.close()
    with pytest.raises(StorageClosed):
        await blocked
    with pytest.raises(StorageClosed):
        await client.pick_nodes()
