"""A master behind sentinels: found, lost, and found elsewhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.resp.conftest import Connect
from tests.resp.fake import OK, Fake, greet
from tests.resp.watch import Watched, watched_master
from toril.errors import StorageUnavailable
from toril.resp.client import Client, Settings
from toril.resp.sync import SyncClient
from toril.resp.url import parse_url

QUICK = Settings(patience=2, first_delay=0.01, longest_delay=0.05)


def bulk(*parts: bytes) -> bytes:
    """Write an array of texts as RESP."""
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)


class Pretender:
    """A server that is a master, a replica, or a master that was just demoted."""

    def __init__(self) -> None:
        self.role = b"master"
        self.readonly = False

    def __call__(self, command: list[bytes]) -> bytes | None:
        if command[0] == b"ROLE":
            return bulk(self.role)
        if command[0] == b"SET":
            return b"-READONLY You can't write\r\n" if self.readonly else OK
        return greet(command)


class Watcher:
    """A sentinel that names whom it is told to name, maybe only after a login."""

    def __init__(self, password: bytes | None = None) -> None:
        self.port = 0
        self.password = password
        self.admitted = password is None

    def __call__(self, command: list[bytes]) -> bytes | None:
        match command:
            case [b"HELLO", *rest]:
                self.admitted = self.password is None or self.password in rest
                return greet(command) if self.admitted else b"-NOAUTH HELLO must be\r\n"
            case [b"SENTINEL", *_]:
                return bulk(b"127.0.0.1", b"%d" % self.port)
            case _:
                return greet(command)


async def test_a_demoted_master_is_left_for_the_new_one(connect: Connect) -> None:
    old, new, watcher = Pretender(), Pretender(), Watcher()
    async with Fake(old) as first, Fake(new) as second, Fake(watcher) as sentinel:
        watcher.port = first.port
        url = f"redis+sentinel://127.0.0.1:{sentinel.port}/main"
        client = await connect(url, QUICK)
        twin = SyncClient(parse_url(url), QUICK)
        assert await client.call("k", "SET", "k", 1) == b"OK"
        assert await asyncio.to_thread(twin.call, "k", "SET", "k", 1) == b"OK"
        old.readonly, watcher.port = True, second.port
        assert await client.call("k", "SET", "k", 2) == b"OK"
        assert await asyncio.to_thread(twin.call, "k", "SET", "k", 2) == b"OK"
        assert second.commands.count([b"SET", b"k", b"2"]) == 2
        twin.close()


async def test_a_replica_is_not_taken_for_the_master(connect: Connect) -> None:
    """A sentinel may still name the old master after it came back as a replica."""
    old, new, watcher = Pretender(), Pretender(), Watcher()
    old.role = b"slave"
    async with Fake(old) as first, Fake(new) as second, Fake(watcher) as sentinel:
        watcher.port = first.port
        url = f"redis+sentinel://127.0.0.1:{sentinel.port}/main"
        with pytest.raises(StorageUnavailable, match="it is a slave, not the master"):
            await connect(url, Settings(patience=0.1))
        opening = asyncio.create_task(connect(url, QUICK))
        watcher.port = second.port
        client = await opening
        assert await client.call("k", "SET", "k", 2) == b"OK"


async def test_a_sentinel_with_a_password_gets_the_master_s(connect: Connect) -> None:
    watcher = Watcher(password=b"pw")
    async with Fake(Pretender()) as master, Fake(watcher) as sentinel:
        watcher.port = master.port
        url = f"redis+sentinel://:pw@127.0.0.1:{sentinel.port}/main"
        client = await connect(url, QUICK)
        assert await client.call("k", "SET", "k", 1) == b"OK"
        with pytest.raises(StorageUnavailable, match="NOAUTH"):
            await connect(url.replace(":pw@", ""), Settings(patience=0.1))


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    """A master, its replica and one sentinel."""
    with watched_master(tmp_path) as running:
        yield running


@pytest.mark.slow
@pytest.mark.faults
async def test_the_new_master_is_found(watched: Watched, connect: Connect) -> None:
    master, replica, port = watched
    # The first sentinel does not exist; the next one is asked.
    url = f"redis+sentinel://127.0.0.1:1,127.0.0.1:{port}/main"
    settings = Settings(patience=20, command_timeout=1, longest_delay=0.5)
    client = await connect(url, settings)
    twin = SyncClient(parse_url(url), settings)
    assert await client.call("k", "SET", "k", "old") == b"OK"
    assert await asyncio.to_thread(twin.call, "k", "GET", "k") == b"old"
    assert await client.pick_nodes() == [f"127.0.0.1:{master.port}"]
    master.kill()
    start = time.monotonic()
    assert await client.call("k", "SET", "k", "new") == b"OK"
    assert time.monotonic() - start < 15
    assert await client.pick_nodes() == [f"127.0.0.1:{replica.port}"]
    assert await asyncio.to_thread(twin.call, "k", "GET", "k") == b"new"
    twin.close()


async def test_an_unknown_master_is_named(watched: Watched) -> None:
    *_, port = watched
    url = f"redis+sentinel://127.0.0.1:{port}/other"
    client = Client(parse_url(url), Settings(patience=0.5))
    with pytest.raises(StorageUnavailable, match="knows no master 'other'"):
        await client.open()


async def test_missing_sentinels_are_named() -> None:
    client = Client(parse_url("redis+sentinel://127.0.0.1:1/main"), Settings(patience=0.3))
    with pytest.raises(StorageUnavailable, match=r"127\.0\.0\.1:1: connection refused"):
        await client.open()
