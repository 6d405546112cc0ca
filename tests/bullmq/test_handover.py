"""A job whose worker is gone is finished by the other side."""

from __future__ import annotations

import pytest

from tests.bullmq.pair import Pair, Recorder
from tests.bullmq.peer import Agent, NodeError, NodeQueue
from tests.servers import Server
from toril import Worker
from toril.outcome import LOST, Completed

pytestmark = pytest.mark.node

QUICK = {"stalledInterval": 100, "lockDuration": 1000}
STALLED = "job stalled more than allowable limit"


async def claim_and_vanish(pair: Pair) -> str:
    """Claim a job with toril and never be heard of again."""
    (claimed,) = (await pair.claim()).jobs
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


async def stall(pair: Pair, job_id: str) -> None:
    """Let the lease of a job run out, and both looks find it."""
    for _ in range(2):
        pair.lab.lapse(job_id)
        pair.lab.forget_check()
        await pair.node.reap()


async def test_a_result_that_comes_too_late_from_node_is_refused(pair: Pair) -> None:
    await pair.queue.add("job", 1, id="a")
    await pair.node.claim("slow")
    await stall(pair, "a")
    async with Worker(pair.queue, Recorder()):
        assert await pair.queue.wait_until_finished("a") == 1
    with pytest.raises(NodeError, match="Missing lock"):
        await pair.node.ask("complete", id="a", value="late", fetch=False)
    assert await pair.queue.get_result("a") == 1


async def test_a_result_that_comes_too_late_from_toril_is_refused(pair: Pair) -> None:
    await pair.queue.add("job", 1, id="a")
    (slow,) = (await pair.claim()).jobs
    await stall(pair, "a")
    running = await pair.node.claim("fast")
    assert running["id"] == "a"
    late = Completed(lease=slow.lease, result=b'"late"')
    assert list((await pair.storage.settle(pair.name, [late])).answers) == [LOST]
    await pair.node.ask("complete", id="a", value="fast", fetch=False)
    assert list((await pair.storage.settle(pair.name, [late])).answers) == [LOST]
    assert await pair.queue.get_result("a") == "fast"
