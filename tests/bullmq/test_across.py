"""Jobs cross from Node to toril and back, with every option that travels."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

import pytest

from tests.bullmq.pair import Pair, Recorder
from toril import Backoff, Dedup, JobContext, JobFailed, Limiter, NewJob, Reject, State, Worker
from toril.storage.protocol import Rate

pytestmark = pytest.mark.node

STRANGE: Final = {
    "unicode": "naïve Σ 日本語 ﷽",
    "emoji": "🐂 👩‍🚀 🏳️‍🌈",
    "nul": "a\0b",
    "control": "\x01\x1b\x7f\u2028\u2029",
    "nested": {"list": [1, [2, [3, {}]], []], "empty": {}, "null": None},
    "numbers": [0, -1, 1.5, 1e-7, 9007199254740991],
}
MANY: Final = 10_000


async def test_a_job_that_node_adds_is_worked_by_toril(pair: Pair) -> None:
    handler = Recorder()
    await pair.node.listen()
    async with Worker(pair.queue, handler):
        added = await pair.node.add("mail", {"to": "ada"})
        await pair.node.heard("completed", added["id"])
    (run,) = handler.runs
    assert (run.id, run.name, run.data, run.attempt) == (added["id"], "mail", {"to": "ada"}, 1)
    (job,) = await pair.node.jobs("completed")
    assert (job["id"], job["returnvalue"]) == (added["id"], {"to": "ada"})
    assert (job["attemptsMade"], job["attemptsStarted"]) == (1, 1)


async def test_a_job_that_toril_adds_is_worked_by_node(pair: Pair) -> None:
    worker = await pair.node.work("echo")
    job = await pair.queue.add("mail", {"to": "ada"})
    assert await pair.queue.wait_until_finished(job.id) == {"to": "ada"}
    (run,) = await worker.ran(1)
    assert (run["id"], run["name"], run["data"]) == (job.id, "mail", {"to": "ada"})
    done = await pair.queue.get_job(job.id)
    assert done is not None
    assert (done.state, done.result, done.attempts_made) == (State.COMPLETED, {"to": "ada"}, 1)


async def test_a_failure_in_node_is_told_to_the_one_who_waits_in_toril(pair: Pair) -> None:
    await pair.node.work("fail", message="the door is closed")
    job = await pair.queue.add("job", None, attempts=1)
    with pytest.raises(JobFailed, match="the door is closed"):
        await pair.queue.wait_until_finished(job.id)


async def test_a_failure_in_toril_is_read_by_node(pair: Pair) -> None:
    async def refuse(job: JobContext[Any]) -> None:
        raise Reject("nobody wants this 🐂")

    async with Worker(pair.queue, Recorder(refuse)):
        await pair.node.listen()
        added = await pair.node.add("job", 1, attempts=5)
        heard = await pair.node.heard("failed", added["id"])
    (failed,) = [event for event in heard if event["event"] == "failed"]
    assert failed["failedReason"] == "nobody wants this 🐂"
    (job,) = await pair.node.jobs("failed")
    assert (job["failedReason"], job["attemptsMade"]) == ("nobody wants this 🐂", 1)


@pytest.mark.slow
async def test_both_work_one_queue_at_once_and_each_job_runs_once(pair: Pair) -> None:
    half = MANY // 2
    handler = Recorder()
    node = await pair.node.work("echo", options={"concurrency": 20})
    async with Worker(pair.queue, handler, concurrency=20):
        for first in range(0, half, 1000):
            ours = [NewJob(name="job", data=n, id=f"t{n}") for n in range(first, first + 1000)]
            theirs = [
                {"name": "job", "data": n, "opts": {"jobId": f"n{n}"}}
                for n in range(first, first + 1000)
            ]
            await asyncio.gather(pair.queue.add_bulk(ours), pair.node.add_bulk(theirs))
        await pair.counted("completed", MANY)
    runs = Counter(handler.ids) + Counter(run["id"] for run in await node.stop())
    assert len(runs) == MANY
    assert set(runs.values()) == {1}
    counts = await pair.queue.get_job_counts()
    assert (counts.completed, counts.total) == (MANY, MANY)
    assert handler.runs
    assert len(handler.runs) < MANY


@pytest.mark.parametrize("adder", ["node", "toril"])
async def test_both_take_jobs_in_the_same_order(pair: Pair, adder: str) -> None:
    plan: list[tuple[str, dict[str, Any]]] = [
        ("plain-1", {}),
        ("urgent", {"priority": 1}),
        ("later", {"priority": 9}),
        ("plain-2", {}),
        ("front", {"lifo": True}),
    ]
    for job_id, options in plan:
        if adder == "node":
            await pair.node.add("job", None, jobId=job_id, **options)
        else:
            await pair.queue.add("job", None, id=job_id, **options)
    if adder == "node":
        handler = Recorder()
        async with Worker(pair.queue, handler):
            ran = [run.id for run in await handler.ran(5)]
    else:
        worker = await pair.node.work("echo")
        ran = [run["id"] for run in await worker.ran(5)]
    assert ran == ["front", "plain-1", "plain-2", "urgent", "later"]


async def test_a_delayed_job_of_node_is_started_by_toril(pair: Pair) -> None:
    handler = Recorder()
    async with Worker(pair.queue, handler):
        await pair.node.add("job", 1, jobId="later", delay=150)
        job = await pair.queue.get_job("later")
        assert job is not None
        await handler.ran(1)
    assert handler.runs[0].id == "later"


async def test_a_delayed_job_of_toril_is_started_by_node(pair: Pair) -> None:
    worker = await pair.node.work("echo")
    await pair.queue.add("job", 1, id="later", delay=0.15)
    assert [run["id"] for run in await worker.ran(1)] == ["later"]


async def test_a_retry_with_backoff_goes_from_toril_to_node(pair: Pair) -> None:
    async def fail(job: JobContext[Any]) -> None:
        raise RuntimeError("first try")

    await pair.node.listen()
    async with Worker(pair.queue, Recorder(fail)):
        await pair.node.add(
            "job", 1, jobId="a", attempts=3, backoff={"type": "fixed", "delay": 200}
        )
        await pair.node.heard("delayed", "a")
    worker = await pair.node.work("late", attempt=2)
    (run,) = await worker.ran(1)
    assert run["result"] == 2
    (job,) = await pair.node.jobs("completed")
    assert (job["attemptsMade"], job["attemptsStarted"]) == (2, 2)
    assert len(job["stacktrace"]) == 1
    assert "first try" in job["stacktrace"][0]


async def test_a_retry_with_backoff_goes_from_node_to_toril(pair: Pair) -> None:
    worker = await pair.node.work("fail", message="first try")
    await pair.queue.add("job", 1, id="a", attempts=3, backoff=Backoff("fixed", 0.2, jitter=0))
    await worker.ran(1)
    await worker.stop()
    handler = Recorder()
    async with Worker(pair.queue, handler):
        assert [run.attempt for run in await handler.ran(1)] == [2]
        await pair.queue.wait_until_finished("a")
    job = await pair.queue.get_job("a")
    assert job is not None
    assert (job.attempts_made, job.attempts_started) == (2, 2)


async def test_node_obeys_the_backoff_that_toril_writes(pair: Pair) -> None:
    worker = await pair.node.work("late", attempt=3)
    backoff = Backoff("exponential", 0.02, jitter=0.2, max_delay=1)
    job = await pair.queue.add("job", 1, attempts=3, backoff=backoff)
    assert await pair.queue.wait_until_finished(job.id) == 3
    assert [run.get("error") for run in await worker.ran(3)] == ["not yet", "not yet", None]


async def test_an_unrecoverable_error_of_node_is_final(pair: Pair) -> None:
    await pair.node.work("unrecoverable")
    job = await pair.queue.add("job", 1, attempts=5)
    with pytest.raises(JobFailed, match="never"):
        await pair.queue.wait_until_finished(job.id)
    done = await pair.queue.get_job(job.id)
    assert done is not None
    assert done.attempts_made == 1


async def test_strange_text_comes_back_as_it_was_through_toril(pair: Pair) -> None:
    handler = Recorder()
    await pair.node.listen()
    async with Worker(pair.queue, handler):
        await pair.node.add("job", STRANGE, jobId="a")
        await pair.node.heard("completed", "a")
    assert handler.runs[0].data == STRANGE
    (job,) = await pair.node.jobs("completed")
    assert job["returnvalue"] == STRANGE


async def test_strange_text_comes_back_as_it_was_through_node(pair: Pair) -> None:
    worker = await pair.node.work("echo")
    await pair.queue.add("job", STRANGE, id="a")
    assert await pair.queue.wait_until_finished("a") == STRANGE
    assert (await worker.ran(1))[0]["data"] == STRANGE


async def test_a_megabyte_crosses_both_ways(pair: Pair) -> None:
    big = {"text": "ñ🐂x" * 150_000}
    worker = await pair.node.work("echo")
    await pair.queue.add("job", big, id="to-node")
    assert await pair.queue.wait_until_finished("to-node") == big
    await worker.stop()
    handler = Recorder()
    async with Worker(pair.queue, handler):
        await pair.node.add("job", big, jobId="to-toril")
        assert await pair.queue.wait_until_finished("to-toril") == big
    assert handler.runs[0].data == big


async def test_a_dedup_key_of_node_holds_for_toril(pair: Pair) -> None:
    await pair.node.add("job", 1, jobId="first", deduplication={"id": "k"})
    second = await pair.queue.add("job", 2, id="second", dedup="k")
    assert (second.id, second.data) == ("first", 1)
    assert await pair.node.call("getDeduplicationJobId", "k") == "first"
    async with Worker(pair.queue, Recorder()):
        await pair.queue.wait_until_finished("first")
    third = await pair.node.add("job", 3, jobId="third", deduplication={"id": "k"})
    assert third["id"] == "third"


async def test_a_throttle_of_toril_holds_for_node(pair: Pair) -> None:
    await pair.queue.add("job", 1, id="first", dedup=Dedup("k", ttl=60))
    second = await pair.node.add("job", 2, jobId="second", deduplication={"id": "k", "ttl": 60000})
    assert second["id"] == "first"
    assert (await pair.node.counts())["waiting"] == 1


async def test_a_debounce_of_one_replaces_the_job_of_the_other(pair: Pair) -> None:
    rule = {"id": "k", "ttl": 60000, "extend": True, "replace": True}
    await pair.node.add("job", 1, jobId="first", delay=60000, deduplication=rule)
    debounce = Dedup("k", ttl=60, extend=True, replace=True)
    second = await pair.queue.add("job", 2, id="second", delay=60, dedup=debounce)
    assert second.id == "second"
    await pair.node.add("job", 3, jobId="third", delay=60000, deduplication=rule)
    assert [job["id"] for job in await pair.node.jobs("delayed")] == ["third"]
    assert [job.id for job in await pair.queue.get_jobs("delayed")] == ["third"]


async def test_a_limit_is_shared_by_the_workers_of_both(pair: Pair) -> None:
    for job_id in "abc":
        await pair.node.add("job", None, jobId=job_id)
    handler = Recorder()
    async with Worker(pair.queue, handler, limiter=Limiter(2, 60)):
        await handler.ran(2)
        await pair.counted("completed", 2)
    assert await pair.node.claim("t", limiter={"max": 2, "duration": 60000}) is None
    assert await pair.node.call("getRateLimitTtl", 2) > 0
    assert (await pair.node.counts())["waiting"] == 1


async def test_a_limit_that_node_reached_holds_toril_back(pair: Pair) -> None:
    for job_id in "abc":
        await pair.queue.add("job", None, id=job_id)
    await pair.node.call("rateLimit", 60_000)
    batch = await pair.claim(Rate(max=100, duration_ms=1000))
    assert not batch.jobs
    assert 0 < batch.limited_for_ms <= 60_000
    await pair.node.call("removeRateLimitKey")
    handler = Recorder()
    async with Worker(pair.queue, handler, limiter=Limiter(100, 1)):
        await handler.ran(3)
    assert handler.ids == ["a", "b", "c"]


async def test_a_node_worker_that_limits_its_queue_gives_the_job_back(pair: Pair) -> None:
    await pair.node.work("limited", options={"limiter": {"max": 100, "duration": 1000}}, ms=50)
    job = await pair.queue.add("job", 1)
    assert await pair.queue.wait_until_finished(job.id) == "let through"


async def test_the_bound_for_running_jobs_is_shared(pair: Pair) -> None:
    await pair.queue.tune(concurrency=1)
    assert await pair.node.call("getGlobalConcurrency") == 1
    for job_id in "ab":
        await pair.queue.add("job", None, id=job_id)
    running = await pair.node.claim("t")
    assert running["id"] == "a"
    assert not (await pair.claim()).jobs
    handler = Recorder()
    async with Worker(pair.queue, handler):
        await pair.node.ask("complete", id="a", value=1, fetch=False)
        await handler.ran(1)
    assert handler.ids == ["b"]


async def test_a_handler_of_toril_is_chosen_by_the_name_node_gave(pair: Pair) -> None:
    scan, mail = Recorder(), Recorder()
    async with Worker(pair.queue, {"scan": scan, "mail": mail}):
        await pair.node.add("mail", 1, jobId="m")
        await pair.node.add("scan", 2, jobId="s")
        await mail.ran(1)
        await scan.ran(1)
    assert (mail.ids, scan.ids) == (["m"], ["s"])
