"""The locks of jobs that are handed out together, with every right and without some."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from redis import Redis

from tests.servers import Server, valkey_binary
from toril import NewJob, Queue
from toril.acl import hashed, make_user
from toril.resp.url import parse_url
from toril.storage.protocol import Claim

LEASE_MS = 30_000


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(valkey_binary()) as one:
        yield one


async def commands_of_a_claim(server: Server, url: str) -> set[str]:
    """Hand out ten jobs, see that each has its lock; name what the server ran for it."""
    async with Queue("locks", storage=f"bullmq+{server.url}") as queue:
        await queue.obliterate(force=True)
        await queue.add_bulk([NewJob(name="job", data=number) for number in range(10)])
    claim = Claim(token="token", worker_id="worker", count=10, lease_ms=LEASE_MS)
    with Redis(port=server.port) as look:
        async with Queue("locks", storage=url) as queue:
            look.config_resetstat()
            batch = await queue.storage.claim("locks", claim)
        stats = cast("dict[str, Any]", look.info("commandstats"))
        leases = [job.lease for job in batch.jobs]
        assert len({lease.token for lease in leases}) == 10
        for lease in leases:
            lock = f"bull:{{locks}}:{lease.job_id}:lock"
            assert look.get(lock) == lease.token.encode()
            assert 0 < cast("int", look.pttl(lock)) <= LEASE_MS
    return {name.removeprefix("cmdstat_") for name in stats}


async def test_the_locks_of_many_jobs_are_set_at_once(server: Server) -> None:
    sent = await commands_of_a_claim(server, f"bullmq+{server.url}")
    assert "msetex" in sent
    assert "set" not in sent


async def test_a_worker_without_that_right_sets_them_one_by_one(server: Server) -> None:
    user = make_user(
        parse_url(f"bullmq+{server.url}"), ["worker"], name="worker", secret=hashed("secret")
    )
    with Redis(port=server.port) as look:
        look.execute_command(*user.write("setuser").split(" "))
    url = f"bullmq+redis://worker:secret@127.0.0.1:{server.port}"
    sent = await commands_of_a_claim(server, url)
    assert "set" in sent
    assert "msetex" not in sent
