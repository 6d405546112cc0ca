"""What only a storage on a server can get wrong: two of its answers, and something between."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from tests.queue.conftest import ServerClock, ServerStorage
from tests.servers import Server
from toril import Cursor, ManualClock, Queue
from toril.resp.client import Client
from toril.storage.redis.waits import wake_ups


class FakeClient:
    """Hands out words when told to, and takes them back when allowed."""

    def __init__(self) -> None:
        self.words: asyncio.Queue[bytes] = asyncio.Queue()
        self.may_return = asyncio.Event()
        self.returned = 0

    async def block(self, *_args: object, **_options: object) -> bytes:
        return await self.words.get()

    async def run(self, *_args: object) -> None:
        self.returned += 1
        await self.may_return.wait()
        self.words.put_nowait(b"1")


async def test_who_comes_while_a_word_is_put_back_is_told_of_it() -> None:
    client, clock = FakeClient(), ManualClock()
    wakes = wake_ups(cast("Client", client), "{q}:")
    first = asyncio.create_task(wakes.wait(clock, 5))
    await clock.advance(5)
    assert first.done()
    client.words.put_nowait(b"1")  # for nobody
    await clock.settle()
    assert client.returned == 1
    second = asyncio.create_task(wakes.wait(clock, 5))
    await clock.settle()
    client.may_return.set()
    await clock.settle()
    assert second.done()
    await wakes.close()


async def test_a_word_for_one_who_is_cancelled_is_put_back() -> None:
    client, clock = FakeClient(), ManualClock()
    client.may_return.set()
    wakes = wake_ups(cast("Client", client), "{q}:")
    waiting = asyncio.create_task(wakes.wait(clock, 5))
    await clock.settle()
    wakes.poke()
    waiting.cancel()
    await asyncio.wait([waiting])
    await clock.settle()
    assert client.returned
    assert client.words.qsize() == 1  # for whoever waits elsewhere
    await wakes.close()


async def test_an_event_added_while_events_are_read_does_not_count_as_trimmed(
    valkey: Server,
) -> None:
    storage = ServerStorage(valkey.url, ServerClock())
    queue: Queue[int, int] = Queue("emails", storage)
    async with queue:
        link = storage._client
        call, added = link.call, False

        async def call_and_add(*args: Any) -> Any:
            nonlocal added
            answer = await call(*args)
            if not added:
                added = True
                await queue.enqueue("job-1", 1)
            return answer

        link.call = call_and_add  # type: ignore[assignment,method-assign]
        assert list(await storage.events("emails", Cursor.START)) == []
        assert len(await storage.events("emails", Cursor.START)) == 2
