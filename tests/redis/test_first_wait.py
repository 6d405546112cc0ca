"""A claim that waits on a server which has just started is granted as quickly as any later one."""

from __future__ import annotations

import asyncio

from redis import Redis

from tests.resp.conftest import until
from tests.servers import Server, valkey_binary
from toril.job import JobSpec
from toril.storage.protocol import Claim
from toril.storage.redis import RedisStorage


async def test_a_new_server_knows_the_script_of_a_claim_before_it_waits() -> None:
    claim = Claim(token="token", worker_id="worker", count=1, lease_ms=30_000)
    with Server(valkey_binary()) as server, Redis(port=server.port) as look:
        worker, producer = RedisStorage(server.url), RedisStorage(server.url)
        await worker.open()
        await producer.open()
        cut = asyncio.get_running_loop().create_future()
        waiting = asyncio.create_task(worker.await_claim("q", claim, 5_000, cut))
        await until(lambda: bool(look.info("clients")["blocked_clients"]))
        look.config_resetstat()
        await producer.enqueue("q", [JobSpec(id="job", payload=b"1")])
        batch = await waiting
        loads = look.info("commandstats").get("cmdstat_script|load", {"calls": 0})["calls"]
        await worker.close()
        await producer.close()
    assert [job.spec.id for job in batch.jobs] == ["job"]
    assert loads == 1  # that of the producer's own script
