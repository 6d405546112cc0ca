"""The first bulk of a process goes the quick way, also where the server knows no script yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
import redis

from tests.servers import Server
from toril import NewJob, Queue
from toril.ids import ulid

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_no_job_of_the_first_bulk_is_added_by_itself(server: Server, loop: str) -> None:
    run = asyncio.run if loop == "asyncio" else pytest.importorskip("uvloop").run
    look = redis.Redis(port=server.port)
    look.script_flush()
    look.config_resetstat()

    async def add() -> None:
        async with Queue(f"q{ulid()}", storage=f"bullmq+{server.url}") as queue:
            jobs = [NewJob(name="job", data={"n": number}) for number in range(1000)]
            await queue.add_bulk(jobs)
            assert (await queue.get_job_counts()).waiting == 1000

    cast("Run", run)(add())
    stats = cast("dict[str, Any]", look.info("commandstats"))
    look.close()
    assert "cmdstat_exec" not in stats
