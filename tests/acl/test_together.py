"""A producer, a worker and a viewer of one queue, each with its own user, as programs are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from redis import Redis

from tests.acl.by_role import AnyStorage, admit
from tests.servers import Server, valkey_binary
from toril import Backoff, JobContext, Queue, Worker
from toril.acl import Role
from toril.errors import StorageDenied
from toril.event import Cursor, EventKind
from toril.exporter import Exporter
from toril.ids import ulid
from toril.prometheus import PrometheusMetrics
from toril.resp.url import Address, parse_url
from toril.storage.bullmq import BullmqStorage
from toril.storage.redis import RedisStorage


@pytest.fixture(scope="module")
def durable() -> Iterator[Server]:
    """A server that can say that something is on its disk."""
    with Server(valkey_binary(), "--appendonly", "yes") as server:
        yield server


def storage_of(address: Address) -> AnyStorage:
    return BullmqStorage(address) if address.layout == "bullmq" else RedisStorage(address)


async def work(job: JobContext[int]) -> int:
    await job.progress(50)
    await job.log("half way")
    if job.attempt == 1:
        raise ConnectionError("again")
    return job.data * 2


async def see(
    viewer: Queue[Any, Any], worker: Worker[Any, Any], metrics: PrometheusMetrics
) -> None:
    """Look at everything there is to see of a job that ran twice."""
    counts = await viewer.get_job_counts()
    assert (counts.completed, counts.active) == (1, 0)
    (job,) = await viewer.get_jobs("completed", 0, 10)
    assert (job.id, job.attempts_made, job.result) == ("one", 2, 42)
    assert await viewer.logs("one") == ["half way", "half way"]
    assert worker.id in [one.id for one in await viewer.get_workers()]
    kinds = []
    async for event in viewer.events(Cursor.START):
        kinds.append(event.kind)
        if event.kind is EventKind.COMPLETED:
            break
    assert {EventKind.ADDED, EventKind.ACTIVE, EventKind.RETRYING} <= set(kinds)
    async with Exporter(metrics, [worker], port=0) as exporter:
        await exporter._look()
    assert 'toril_queue_jobs{queue="sums",state="completed"} 1.0' in metrics.render().decode()


@pytest.mark.parametrize("layout", ["", "bullmq+"])
@pytest.mark.parametrize("more", ["?", "/3?", "?durability=local&"])
async def test_programs_with_users_of_their_own_work_together(
    layout: str, more: str, durable: Server
) -> None:
    address = parse_url(f"{layout}{durable.url}{more}prefix=p{ulid()}")
    roles: tuple[Role, ...] = ("producer", "worker", "viewer")
    metrics = PrometheusMetrics()
    async with AsyncExitStack() as stack:
        with Redis(port=durable.port) as default:
            queues = {
                role: Queue[int, int]("sums", storage_of(admit(default, address, role)))
                for role in roles
            }
        for queue in queues.values():
            await stack.enter_async_context(queue)
        options: dict[str, Any] = {"backoff": Backoff("fixed", 0.01), "metrics": metrics}
        worker = Worker(queues["worker"], work, **options)
        await stack.enter_async_context(worker)
        async with asyncio.timeout(20):
            assert await queues["producer"].enqueue_and_wait("one", 21) == 42
            await see(queues["viewer"], worker, metrics)
        with pytest.raises(StorageDenied):
            await queues["viewer"].enqueue("two", 1)
        with pytest.raises(StorageDenied):
            await queues["viewer"].pause()
