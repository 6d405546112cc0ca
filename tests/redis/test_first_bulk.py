"""The first bulk of a process keeps its order, also where the server knows no script yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
import uvloop

from tests.servers import Server, valkey_binary
from toril import NewJob, Queue, State

Run = Callable[[Coroutine[Any, Any, list[object]]], list[object]]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_the_first_bulk_lines_up_in_order(loop: str) -> None:
    run = asyncio.run if loop == "asyncio" else uvloop.run

    async def add(url: str) -> list[object]:
        async with Queue("first", storage=url) as queue:
            await queue.add_bulk([NewJob(name="job", data=number) for number in range(1000)])
            found = await queue.storage.peek("first", State.WAITING, 0, 1000)
            return [queue.serde.loads(record.spec.payload) for record in found]

    with Server(valkey_binary()) as server:
        assert cast("Run", run)(add(server.url)) == list(range(1000))
