"""A job whose worker is gone is finished by the other side."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.bullmq.pair import Pair, Recorder
from tests.bullmq.peer import Agent, NodeQueue
from tests.servers import Server
from toril import Worker
from toril.storage.protocol import Claim

pytestmark = pytest.mark.node

QUICK = {"stalledInterval": 100, "lockDuration": 1000}
STALLED = "job stalled more than allowable limit"


async def claim_and_vanish(pair: Pair) -> str:
    """Claim a job with toril and never be heard of again."""
    claim = Claim(token=str(uuid4()), worker_id="gone", count=1, lease_ms=30_000)
    (claimed,) = (await pair.storage.claim(pair.name, claim)).jobs
    pair.lab.lapse(claimed.spec.id)
    return claimed.spec.id


async def test_node_finishes_what_toril_left(pair: Pair) -> None:
    await pair.queue.add("job", 1, id="a")
    await claim_and_vanish(pair)
    worker = await pair.node.work("echo", options=QUICK)
    (run,) = await worker.ran(1)
    assert (run["id"], run["result"]) == ("a", 1)
    (job,) = await pair.node.jobs("completed")
    assert (job["stalledCounter"], job["attemptsStarted"], job["attemptsMade"]) == (1, 2, 1)


async def test_toril_finishes_what_a_killed_node_left(pair: Pair, server: Server) -> None:
    doomed = Agent.start(server.port)
    queue = NodeQueue(doomed, pair.lab.queue)
    await queue.add("job", 1, jobId="a")
    worker = await queue.work("hang", options=QUICK)
    await worker.started(1)
    doomed.kill()
    pair.lab.lapse("a")
    handler = Recorder()
    async with Worker(pair.queue, handler, reap_interval=0.1, lease=1):
        assert await pair.queue.wait_until_finished("a") == 1
    job = await pair.queue.get_job("a")
    assert job is not None
    assert (job.stalls, job.attempts_started, job.attempts_made) == (1, 2, 1)


async def test_what_stalled_too_often_in_node_is_failed_by_toril_without_a_run(pair: Pair) -> None:
    await pair.node.add("job", 1, jobId="a", attempts=5)
    for token in ("first", "second"):
        await pair.node.claim(token)
        for _ in range(2):
            pair.lab.lapse("a")
            pair.lab.forget_check()
            await pair.node.reap(maxStalledCount=1)
    assert pair.lab.field("a", "defa") == STALLED
    handler = Recorder()
    await pair.node.listen()
    async with Worker(pair.queue, handler):
        heard = await pair.node.heard("failed", "a")
    assert handler.runs == []
    assert [event["failedReason"] for event in heard if event["event"] == "failed"] == [STALLED]
    (job,) = await pair.node.jobs("failed")
    assert job["attemptsMade"] == 1


async def test_what_stalled_too_often_in_toril_is_failed_by_node_without_a_run(pair: Pair) -> None:
    await pair.queue.add("job", 1, id="a", attempts=5)
    for _ in range(2):
        await claim_and_vanish(pair)
        for _ in range(2):
            pair.lab.forget_check()
            await pair.storage.reap(pair.name, 1, 30_000)
    assert pair.lab.field("a", "defa") == STALLED
    worker = await pair.node.work("echo")
    (run,) = await worker.ran(1)
    assert run["error"] == STALLED
    assert await worker.started(0) == []


async def test_one_marks_and_the_other_moves(pair: Pair) -> None:
    await pair.queue.add("job", 1, id="a")
    await claim_and_vanish(pair)
    await pair.node.reap()
    pair.lab.forget_check()
    reaped = await pair.storage.reap(pair.name, 1, 30_000)
    assert list(reaped.stalled) == ["a"]
    await claim_and_vanish(pair)
    pair.lab.forget_check()
    await pair.storage.reap(pair.name, 5, 30_000)
    pair.lab.forget_check()
    await pair.node.reap(maxStalledCount=5)
    assert await pair.node.call("getJobState", "a") == "waiting"


async def test_the_check_is_made_once_per_interval_whoever_makes_it(pair: Pair) -> None:
    await pair.queue.add("job", 1, id="a")
    await claim_and_vanish(pair)
    await pair.node.reap(stalledInterval=30_000)
    reaped = await pair.storage.reap(pair.name, 1, 30_000)
    assert list(reaped.stalled) == []
    assert 0 < reaped.next_in_ms <= 30_000
    assert await pair.node.call("getJobState", "a") == "active"


async def test_a_result_that_comes_too_late_is_refused_on_both_sides(pair: Pair) -> None:
    await pair.queue.add("job", 1, id="a")
    await pair.node.claim("slow")
    for _ in range(2):
        pair.lab.lapse("a")
        pair.lab.forget_check()
        await pair.node.reap()
    handler = Recorder()
    async with Worker(pair.queue, handler):
        assert await pair.queue.wait_until_finished("a") == 1
    with pytest.raises(Exception, match="a"):
        await pair.node.ask("complete", id="a", value="late", fetch=False)
    done = await pair.queue.get_job("a")
    assert done is not None
    assert done.result == 1
