"""The doctor on storages that are no single server: files, clusters, memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from redis import RedisCluster

from tests.doctor.conftest import bad, found
from tests.resp.nodes import cluster
from tests.servers import Server
from toril import Queue, Worker
from toril.clock import ManualClock
from toril.doctor.examine import examine, mend
from toril.doctor.finding import Finding, Level
from toril.ids import token
from toril.job import State
from toril.storage.file import FileStorage
from toril.storage.protocol import Claim


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Server]]:
    """A cluster of three."""
    with cluster() as servers:
        yield servers


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """What a system says of a disk."""

    free: int


def wish(lease_ms: int = 1000) -> Claim:
    return Claim(token=token(), worker_id="w", count=1, lease_ms=lease_ms)


def in_file(findings: tuple[Finding, ...]) -> list[tuple[str, Level]]:
    return [(one.check, one.level) for one in findings]


async def test_a_sound_file_storage_is_ok(tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'queues'}"
    async with Queue[int, int]("mail", url) as queue, Worker(queue, lambda job: job.data):
        await queue.enqueue_and_wait("one", 1)
        report = await examine(url)
    checks = ("disk", "persistence", "queues", "workers", "leases")
    assert in_file(report.findings) == [(check, Level.OK) for check in checks]


async def test_a_job_in_files_that_nobody_holds_is_put_back(tmp_path: Path) -> None:
    folder = tmp_path / "queues"
    past = FileStorage(folder, clock=ManualClock())  # which stands long before today
    async with Queue[int, int]("mail", past) as queue:
        await queue.add("n", 1, id="j0")
        await past.claim("mail", wish())
        await past.leave("mail", "w")
    url = f"file:{folder}"
    report = await examine(url)
    leases = found(report, "leases")
    assert (leases.level, leases.count) == (Level.PROBLEM, 1)
    assert await mend(url, report.remedies) == ["mail: put 1 job back in line"]
    assert bad(await examine(url)) == ["workers"]


async def test_files_that_are_not_safe_and_queues_that_are_not_there(tmp_path: Path) -> None:
    report = await examine(f"file:{tmp_path / 'queues'}?durability=memory", ["mail"])
    assert found(report, "persistence").text.startswith("durability=memory: a loss of power")
    assert found(report, "place").text.startswith("queue 'mail' holds nothing in ")


async def test_a_disk_with_little_space_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _path: Disk(free=20_000_000))
    disk = found(await examine(f"file:{tmp_path / 'queues'}"), "disk")
    assert disk.level is Level.WARNING
    assert disk.text.startswith("20 MB free, ")


async def test_memory_is_looked_at_from_its_own_process() -> None:
    async with Queue[int, int]("mail", "memory:doctor") as queue:
        await queue.add("n", 1)
        report = await examine("memory:doctor")
    assert bad(report) == ["workers"]


@pytest.mark.parametrize("layout", ["", "bullmq+"])
async def test_a_cluster_is_checked_node_by_node(nodes: list[Server], layout: str) -> None:
    hosts = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
    url = f"{layout}redis+cluster://{hosts}"
    stem = "post" if layout else "mail"
    names = [f"{stem}{number}" for number in range(4)]
    for name in names:
        async with Queue[int, int](name, url) as queue:
            await queue.add("n", 1, id="j0")
            await queue.add("n", 1, id="j1", delay=3600)
    raw: Any = RedisCluster(host="127.0.0.1", port=nodes[0].port)
    base = "bull:{post2}:" if layout else "{jq:mail2}:"
    _ = raw.delete(f"{base}j1") if layout else raw.hdel(f"{base}jobs", "j1")
    raw.close()
    report = await examine(url, names)
    assert len([one for one in report.findings if one.check == "version"]) == 3
    (ghost,) = report.of(Level.PROBLEM)
    assert (ghost.check, ghost.queue, ghost.count) == ("ghosts", names[2], 1)
    assert await mend(url, report.remedies) == [f"{names[2]}: took 1 out of 'delayed'"]
    again = await examine(url)
    assert again.of(Level.PROBLEM) == []
    assert {one.queue for one in again.findings} == {None, *names}
    async with Queue[int, int](names[2], url) as left:
        assert (await left.get_job_counts()).of(State.DELAYED) == 0
