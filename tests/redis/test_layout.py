"""A queue that a newer toril has laid out is left alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from toril.errors import StorageError
from toril.job import JobSpec
from toril.storage import open_bulk
from toril.storage.protocol import Claim
from toril.storage.redis import RedisStorage

WISH: Final = Claim(token="t", worker_id="w", count=1, lease_ms=30_000)


async def await_claim(storage: RedisStorage) -> object:
    return await storage.await_claim("q", WISH, 1_000, asyncio.get_running_loop().create_future())


BEGINNINGS: Final[dict[str, Callable[[RedisStorage], Awaitable[object]]]] = {
    "enqueue": lambda storage: storage.enqueue("q", [JobSpec(id="a")]),
    "pause": lambda storage: storage.pause("q", True),
    "claim": lambda storage: storage.claim("q", WISH),
    "await_claim": await_claim,
}
"""What a program does first to a queue."""


async def keys_of(storage: RedisStorage) -> object:
    base = storage._base("q")
    return await storage._call(base, "KEYS", "*")


@pytest.mark.parametrize("verb", BEGINNINGS)
async def test_a_queue_of_a_newer_layout_is_refused_and_left_alone(
    storage: RedisStorage, verb: str
) -> None:
    meta = f"{storage._base('q')}meta"
    await storage._call(meta, "HSET", meta, "layout", 9)
    begin = BEGINNINGS[verb]
    with pytest.raises(StorageError, match=r"'q'.*has layout 9, this toril knows 1; upgrade toril"):
        await begin(storage)
    assert await keys_of(storage) == [meta.encode()]
    await storage._call(meta, "HSET", meta, "layout", 1)
    await begin(storage)


async def test_columns_of_a_newer_layout_are_refused(storage: RedisStorage) -> None:
    meta = f"{storage._base('q')}meta"
    await storage._call(meta, "HSET", meta, "layout", 9)
    bulk = open_bulk(storage.url)
    with pytest.raises(StorageError, match="has layout 9, this toril knows 1; upgrade toril"):
        await asyncio.to_thread(bulk.write_jobs, "q", ["a"], [b"1"])
    bulk.close()
    assert await keys_of(storage) == [meta.encode()]
