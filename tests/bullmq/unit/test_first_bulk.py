"""The first bulk of a process goes the quick way, also where the server knows no script yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
import redis
import uvloop

from tests.servers import Server, valkey_binary
from toril import NewJob, Queue

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_no_job_of_the_first_bulk_is_added_by_itself(loop: str) -> None:
    run = asyncio.run if loop == "asyncio" else uvloop.run

    async def add(url: str) -> None:
        async with Queue("first", storage=f"bullmq+{url}") as queue:
            jobs = [NewJob(name="job", data={"n": number}) for number in range(1000)]
            await queue.add_bulk(jobs)
            assert (await queue.get_job_counts()).waiting == 1000

    with Server(valkey_binary()) as server:
        cast("Run", run)(add(server.url))
        with redis.Redis(port=server.port) as look:
            stats = cast("dict[str, Any]", look.info("commandstats"))
    assert "cmdstat_exec" not in stats
