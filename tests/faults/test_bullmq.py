"""Faults in the BullMQ layout: lost replies and broken records; `reliability.md` N4, P2, P3.

The others of its faults are in the files of their kind, marked `on_bullmq`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.faults.stage import LEASE_S, REAP_S, Stage
from tests.resp.proxy import Proxy
from tests.servers import Server
from toril.storage.bullmq.official import OWN, own, scripts
from toril.storage.protocol import Cancellation, Removal

pytestmark = [
    pytest.mark.on_bullmq,
    pytest.mark.parametrize("serve", ["bullmq"], indirect=True),
]


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[Proxy]:
    """A proxy before the server."""
    async with Proxy(server.port) as proxy:
        yield proxy


@pytest.mark.parametrize(
    "name",
    [
        *("add", "later", "addStandardJob", "addPrioritizedJob"),
        *("finish", "finish_alone", "moveToActive"),
        *("moveToFinished", "extendLocks", "moveStalledJobsToWait", "pause", "drop", "outlook"),
    ],
)
async def test_n4_a_reply_lost_after_the_script_ran_changes_nothing(
    stage: Stage, proxy: Proxy, name: str
) -> None:
    stage.worker("w", url=stage.through(proxy.port), concurrency=3, steady=True)
    jobs = [f"j{number}" for number in range(6)]
    # Priorities have a batch script of their own; LIFO is left to the official ones.
    options = {"j1": {"priority": 1}, "j2": {"priority": 1, "lifo": True}}
    async with stage.queue(stage.through(proxy.port)) as queue:
        # Once round in peace: the scripts are loaded, the worker is at work.
        await queue.enqueue("warm", {"do": "sleep", "seconds": 0.5})
        await stage.drained(1)
        sha = (own(name) if name in OWN else scripts()[name]).sha
        proxy.cut_reply_to(sha.encode(), times=4)
        for job in ("p0", "p1"):
            assert await stage.hand_in(queue, job, {}) == "ok"
        await queue.pause()
        for job in [*jobs, "unwanted", "useless"]:
            data = {"do": "sleep", "seconds": 0.8 if job == "j0" else 0.02}
            assert await stage.hand_in(queue, job, data, **options.get(job, {})) == "ok"
        answer = await queue.cancel("unwanted")
        stage.history.write("cancel", "ok", "unwanted")
        assert answer.status is Cancellation.CANCELLED
        assert await queue.storage.remove(queue.name, ["useless"]) == [Removal.REMOVED]
        stage.history.write("cancel", "ok", "useless")
        await queue.resume()
        await queue.storage.wait([queue.name], 0)
        # Bounds make the batch scripts leave everything to the official ones.
        await stage.drained(3 + len(jobs))
        await queue.tune(concurrency=2)
        assert await stage.hand_in(queue, "last", {}) == "ok"
        await stage.drained(4 + len(jobs))
    assert proxy.cuts >= 1, "nothing was cut"
    dump = stage.check()
    assert dump.by_id.keys() == {"warm", "p0", "p1", *jobs, "last"}
    for one in dump.jobs:
        assert (one.state, one.started, one.stalls, one.made) == ("completed", 1, 0, 1), one
    assert not stage.of("lost")
    kinds = [step.kind for step in dump.trail]
    assert kinds.count("added") == len(dump.jobs) + 2
    assert kinds.count("cancelled") == 1
    assert kinds.count("completed") == kinds.count("active") == len(dump.jobs)


BROKEN = {
    "data": b"{not json",
    "opts": b"{not json",
    "atm": b"many",
    "stc": b"many",
    "ats": b"many",
    "timestamp": b"long ago",
    "priority": b"high",
}

MENDED = ("opts", "atm", "stc", "ats")
IGNORED = ("timestamp", "priority")


@pytest.mark.parametrize("field", BROKEN)
async def test_p2_garbage_in_a_job_loses_nothing_and_the_queue_flows(
    stage: Stage, field: str
) -> None:
    worker = stage.worker("w", concurrency=2)
    await stage.ready(worker)
    async with stage.queue() as queue:
        await queue.pause()
        for job in ("a", "bad", "z"):
            await stage.hand_in(queue, job, {})
        stage.looker.call("HSET", stage.looker.key("bad"), field, BROKEN[field])
        await queue.resume()
        for job in ("a", "z"):
            await stage.committed(job)
        await stage.hand_in(queue, "later", {})
        await stage.committed("later")
        await stage.drained(4)
    assert worker.alive
    dump = stage.check()
    bad = dump.by_id["bad"]
    if field in IGNORED:
        # What is no time or priority counts as none.
        assert (bad.state, bad.made) == ("completed", 1)
    else:
        assert (bad.state, bad.made, bad.stalls) == ("failed", 1, 0)
        assert "SerdeError" in bad.failure
        assert not stage.of("run", job="bad")
    kept = f"toril-broken-{field}" if field in MENDED else field
    assert stage.looker.call("HGET", stage.looker.key("bad"), kept) == BROKEN[field]


@pytest.mark.parametrize("field", MENDED)
async def test_p2_garbage_in_a_running_job_whose_worker_dies_loses_nothing(
    stage: Stage, field: str
) -> None:
    async with stage.queue() as queue:
        await stage.hand_in(queue, "bad", stage.hold())
        dying = stage.worker("dying")
        await stage.started("bad")
        stage.looker.call("HSET", stage.looker.key("bad"), field, BROKEN[field])
        dying.process.kill()
        heir = stage.worker("heir")
        await stage.drained(1)
    assert heir.alive
    job = stage.check().by_id["bad"]
    assert (job.state, job.stalls, job.made) == ("failed", 1, 1)
    assert "SerdeError: broken record: " in job.failure
    kept = stage.looker.call("HGET", stage.looker.key("bad"), f"toril-broken-{field}")
    assert kept == BROKEN[field]


@pytest.mark.parametrize("line", ["wait", "prioritized", "delayed"])
async def test_p3_an_id_without_a_record_is_not_run_and_does_not_stay(
    stage: Stage, line: str
) -> None:
    each: dict[str, dict[str, float]] = {"prioritized": {"priority": 3}, "delayed": {"delay": 0.2}}
    worker = stage.worker("w")
    await stage.ready(worker)
    async with stage.queue() as queue:
        await queue.pause()
        for job in ("a", "missing", "z"):
            await stage.hand_in(queue, job, {}, **each.get(line, {}))
        stage.looker.call("DEL", stage.looker.key("missing"))
        await queue.resume()
        await stage.committed("a")
        await stage.committed("z")
        await stage.until(lambda: stage.looker.counts().get("active") == 0, LEASE_S + 4 * REAP_S)
    assert worker.alive
    assert not stage.of("run", job="missing")
    missing = stage.check(lossy=True).by_id["missing"]
    assert missing.state == "failed"
    assert missing.failure.startswith("JobMissing: ")


async def test_a_job_in_two_containers_or_in_none_is_seen(stage: Stage) -> None:
    async with stage.queue() as queue:
        for job in ("twice", "nowhere", "ghost"):
            await stage.hand_in(queue, job, {})
    look = stage.looker
    look.call("ZADD", look.key("delayed"), 1, "twice")
    look.call("LREM", look.key("wait"), 1, "nowhere")
    look.call("DEL", look.key("ghost"))
    with pytest.raises(AssertionError) as found:
        stage.check(drained=False)
    told = str(found.value)
    assert "I6 twice" in told
    assert "I6 nowhere" in told
    assert "I6 ghost" in told
