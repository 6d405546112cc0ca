"""BullMQ queues behind TLS, behind sentinels and in one slot of a cluster work like others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bullmq.pair import Recorder
from tests.contract.bullmq_rig import BullmqRig
from tests.resp.nodes import cluster
from tests.resp.secure import SecureServer, make_certificates, secure_server
from tests.resp.watch import Watched, watched_master
from toril import NewJob, Queue, StorageUnavailable, Worker
from toril.ids import ulid
from toril.outcome import Lease
from toril.resp.client import Settings
from toril.storage import open_bulk
from toril.storage.bullmq import BullmqStorage
from toril.testing import CHECKS, ContractCheck, Rig, run_check

GROUPS = ("produce", "work", "wait", "recover")
CORE = [one for one in CHECKS if one.run.__module__.rpartition("_")[2] in GROUPS]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, a certificate for localhost only, and one for a client."""
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secure(certificates: Path) -> Iterator[SecureServer]:
    """A server that speaks TLS."""
    with secure_server(certificates) as running:
        yield running


@pytest.fixture(scope="module")
def nodes() -> Iterator[str]:
    """The address of a cluster of three."""
    with cluster(3) as servers:
        yield "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """A master, its replica and one sentinel."""
    with watched_master(tmp_path_factory.mktemp("sentinel")) as running:
        yield running


def tls_url(secure: SecureServer, certificates: Path) -> str:
    """Where the server is, with a certificate of our own to show."""
    own = f"cert={certificates}/client.pem&key={certificates}/client.key"
    return f"rediss://localhost:{secure.port}?ca={certificates}/ca.pem&{own}"


def sentinel_url(watched: Watched) -> str:
    """Where the sentinels are; the first one does not exist."""
    return f"redis+sentinel://127.0.0.1:1,127.0.0.1:{watched.port}/main"


@pytest.fixture(params=["tls", "sentinel"])
def link(request: pytest.FixtureRequest) -> tuple[str, int]:
    """A URL, and the port of the server itself."""
    if request.param == "tls":
        secure = request.getfixturevalue("secure")
        return tls_url(secure, request.getfixturevalue("certificates")), secure.plain_port
    watched = request.getfixturevalue("watched")
    return sentinel_url(watched), watched.master.port


@pytest.fixture
async def rig(link: tuple[str, int]) -> AsyncIterator[Rig]:
    """A rig whose storage is open and holds nothing."""
    url, port = link
    rig = BullmqRig.on(url, hosts=[("127.0.0.1", port)])
    await rig.storage.open()
    yield rig
    await rig.storage.close()
    rig.close()


@pytest.mark.parametrize("check", CORE, ids=lambda check: check.name)
async def test_the_storage_keeps_the_contract(check: ContractCheck, rig: Rig) -> None:
    reason = check.why_not(rig.storage)
    if reason is not None:
        pytest.skip(reason)
    await run_check(check, rig)


async def test_a_worker_its_heart_and_columns_use_the_same_link(link: tuple[str, int]) -> None:
    url = f"bullmq+{link[0]}"
    async with Queue[Any, Any](f"q{ulid()}", url) as queue:
        handler = Recorder()
        async with Worker(queue, handler, concurrency=3, lease=1):
            bulk = open_bulk(url)
            ids = [f"job-{number}" for number in range(30)]
            await asyncio.to_thread(bulk.write_jobs, queue.name, ids, [b"1"] * len(ids))
            for job_id in ids:
                assert await queue.wait_until_finished(job_id) == 1
            bulk.close()
        assert isinstance(queue.storage, BullmqStorage)
        heart = queue.storage.heartbeat()
        gone = Lease(job_id=ids[0], token="t:1", attempt=1)
        assert (await asyncio.to_thread(heart.renew, queue.name, [gone], 1000)).lost == [gone]
        heart.close()


async def test_a_server_without_the_right_name_is_refused(
    secure: SecureServer, certificates: Path
) -> None:
    url = f"bullmq+rediss://127.0.0.1:{secure.port}?ca={certificates}/ca.pem"
    storage = BullmqStorage(url, settings=Settings(patience=0.5, connect_timeout=2))
    with pytest.raises(StorageUnavailable, match="mismatch"):
        await storage.open()


@pytest.mark.parametrize("tagging", ["", "&hash_tag=off", "&hash_tag=on"])
async def test_a_prefix_with_a_tag_serves_queues_on_a_cluster(nodes: str, tagging: str) -> None:
    url = f"bullmq+{nodes}?prefix={{bull}}{tagging}"
    async with Queue[Any, Any](f"q{ulid()}", url) as queue:
        async with Worker(queue, Recorder(), concurrency=3):
            jobs = await queue.add_bulk([NewJob(name="job", data=at) for at in range(30)])
            for at, job in enumerate(jobs):
                assert await queue.wait_until_finished(job.id) == at
        await queue.pause()
        await queue.add("job", 1, priority=3)
        assert queue.name in await queue.storage.queues()
        await queue.obliterate(force=True)


@pytest.mark.slow
@pytest.mark.faults
async def test_a_worker_goes_on_after_a_failover(tmp_path: Path) -> None:
    with watched_master(tmp_path) as watched:
        settings = Settings(patience=20, command_timeout=1, longest_delay=0.5)
        storage = BullmqStorage(f"bullmq+{sentinel_url(watched)}", settings=settings)
        async with Queue[Any, Any]("q", storage) as queue:
            handler = Recorder()
            async with Worker(queue, handler, lease=2):
                await queue.add("job", 1, id="before")
                assert await queue.wait_until_finished("before") == 1
                watched.master.kill()
                await queue.add("job", 2, id="after")
                assert await queue.wait_until_finished("after", timeout=30) == 2
