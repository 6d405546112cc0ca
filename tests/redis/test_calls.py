"""How many calls a job costs the server."""

from __future__ import annotations

import re

import pytest

from tests.servers import Server, valkey_binary
from toril import Queue, Worker
from toril.context import JobContext
from toril.resp.client import Client
from toril.resp.url import parse_url

JOBS = 40


async def double(job: JobContext[int]) -> int:
    return 2 * job.data


async def script_calls(client: Client) -> int:
    stats = await client.call("", "INFO", "commandstats")
    assert isinstance(stats, bytes)
    found = re.search(rb"cmdstat_evalsha:calls=(\d+)", stats)
    return int(found[1]) if found else 0


@pytest.mark.parametrize("concurrency", [1, 10])
async def test_a_job_that_comes_alone_is_handed_in_claimed_and_settled_by_one_call_each(
    concurrency: int,
) -> None:
    with Server(valkey_binary()) as server:
        client = Client(parse_url(server.url))
        await client.open()
        queue = Queue[int, int]("q", storage=server.url)
        async with queue, Worker(queue, double, concurrency=concurrency, reap_interval=3600):
            assert await queue.enqueue_and_wait("first", 1) == 2
            before = await script_calls(client)
            for number in range(JOBS):
                assert await queue.enqueue_and_wait(f"job-{number}", number) == 2 * number
            spent = await script_calls(client) - before
        await client.close()
    # A look before each wait would be one more per job; a few come from what goes on beside.
    assert 3 * JOBS - 1 <= spent <= 3 * JOBS + JOBS // 4
