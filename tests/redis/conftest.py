"""A storage in toril's own layout on a server of its own, where time stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.servers import Server, valkey_binary
from toril.storage.redis import RedisStorage

NOW_MS = 1_800_000_000_000


@pytest.fixture
async def storage() -> AsyncIterator[RedisStorage]:
    with Server(valkey_binary()) as server:
        storage = RedisStorage(server.url)
        storage.now_ms = NOW_MS
        await storage.open()
        yield storage
        await storage.close()
