"""Each side sees what the other does: events, jobs, counts, workers, progress and logs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.bullmq.pair import LIMIT_S, Pair, Recorder, until
from toril import Cursor, Event, EventKind, JobContext, State, Worker

pytestmark = pytest.mark.node


async def note(job: JobContext[Any]) -> str:
    """Write progress and a line, then end."""
    await job.progress({"done": 1, "of": 2})
    await job.log("half way 🐂")
    if job.name == "bad":
        raise RuntimeError("no")
    return "noted"


async def events_until(pair: Pair, kind: EventKind, job_id: str | None = None) -> list[Event]:
    """Read the events from the first to the first of a kind."""
    found: list[Event] = []
    async with asyncio.timeout(LIMIT_S):
        async for event in pair.queue.events(Cursor.START):
            found.append(event)
            if event.kind is kind and job_id in (None, event.job_id):
                break
    return found


async def test_node_hears_what_toril_does(pair: Pair) -> None:
    await pair.node.listen("0-0")
    handler = Recorder(note)
    await pair.queue.add("good", 1, id="a")
    await pair.queue.add("good", 1, id="b", dedup="k")
    await pair.queue.add("good", 1, id="c", dedup="k")
    await pair.queue.add("good", 1, id="a")
    await pair.queue.add("bad", 1, id="e", attempts=1)
    async with Worker(pair.queue, handler):
        await handler.ran(3)
        await pair.node.heard("failed", "e")
        await pair.node.heard("drained")
    await pair.queue.add("later", 1, id="d", delay=60)
    await pair.queue.pause()
    await pair.queue.resume()
    await pair.queue.remove_job("d")
    heard = await pair.node.heard("removed", "d")
    about_a = [event for event in heard if event.get("jobId") == "a"]
    assert [event["event"] for event in about_a] == [
        "added",
        "waiting",
        "duplicated",
        "active",
        "progress",
        "completed",
    ]
    assert about_a[4]["data"] == {"done": 1, "of": 2}
    assert (about_a[5]["returnvalue"], about_a[5]["prev"]) == ("noted", "active")
    kinds = {event["event"] for event in heard}
    assert kinds >= {
        "delayed",
        "deduplicated",
        "failed",
        "drained",
        "paused",
        "resumed",
        "removed",
        "retries-exhausted",
    }
    (failed,) = [event for event in heard if event["event"] == "failed"]
    assert (failed["jobId"], failed["failedReason"]) == ("e", "no")


async def test_toril_reads_what_node_does(pair: Pair) -> None:
    worker = await pair.node.work("notes", progress={"p": 1}, line="x")
    await pair.node.add("job", 1, jobId="a")
    await worker.ran(1)
    await pair.node.add("job", 1, jobId="d", delay=60000)
    await pair.node.call("pause")
    await pair.node.call("resume")
    await pair.node.call("remove", "d")
    events = await events_until(pair, EventKind.REMOVED)
    about_a = [event for event in events if event.job_id == "a"]
    assert [event.kind for event in about_a] == [
        EventKind.ADDED,
        EventKind.WAITING,
        EventKind.ACTIVE,
        EventKind.PROGRESS,
        EventKind.COMPLETED,
    ]
    assert about_a[0].job_name == "job"
    assert about_a[3].value == {"p": 1}
    kinds = {event.kind for event in events}
    assert kinds >= {EventKind.DELAYED, EventKind.PAUSED, EventKind.RESUMED}
    assert [event.cursor for event in events] == sorted(event.cursor for event in events)
    assert all(event.time_ms > 1_700_000_000_000 for event in events)


@pytest.mark.parametrize("how", ["delayed", "waiting"])
async def test_what_node_puts_off_is_no_retry(pair: Pair, how: str) -> None:
    worker = await pair.node.work("postpone", how=how)
    await pair.node.add("job", 1, jobId="a")
    events = await events_until(pair, EventKind.COMPLETED, "a")
    assert [event.kind for event in events].count(EventKind.ACTIVE) == 2
    assert EventKind.RETRYING not in [event.kind for event in events]
    await worker.stop()


async def test_what_node_puts_off_by_a_rate_limit_is_no_retry(pair: Pair) -> None:
    worker = await pair.node.work("limited", ms=50, options={"limiter": {"max": 9, "duration": 9}})
    await pair.node.add("job", 1, jobId="a")
    events = await events_until(pair, EventKind.COMPLETED, "a")
    assert [event.kind for event in events].count(EventKind.ACTIVE) == 2
    assert EventKind.RETRYING not in [event.kind for event in events]
    await worker.stop()


async def test_a_parent_that_goes_to_wait_for_its_children_is_no_retry(pair: Pair) -> None:
    worker = await pair.node.work("postpone", how="children")
    name = pair.node.name
    await pair.node.add("job", 1, jobId="a", delay=500)
    child = {"jobId": "c", "delay": 1000, "parent": {"id": "a", "queue": f"bull:{name}"}}
    await pair.node.add("job", 2, **child)
    events = await events_until(pair, EventKind.COMPLETED, "a")
    kinds = [event.kind for event in events if event.job_id == "a"]
    assert kinds.count(EventKind.ACTIVE) == 2
    assert EventKind.WAITING_CHILDREN in kinds
    assert EventKind.RETRYING not in kinds
    await worker.stop()


async def test_a_retry_in_node_is_a_retrying_event_in_toril(pair: Pair) -> None:
    worker = await pair.node.work("late", attempt=2)
    await pair.node.add("job", 1, jobId="a", attempts=2, backoff={"type": "fixed", "delay": 5})
    await worker.ran(2)
    events = await events_until(pair, EventKind.COMPLETED)
    assert EventKind.RETRYING in [event.kind for event in events]


async def fill(pair: Pair) -> None:
    """Leave jobs in every state, from both sides."""
    handler = Recorder(note)
    await pair.queue.add("good", 1, id="done-1")
    await pair.node.add("good", 2, jobId="done-2")
    await pair.queue.add("bad", 3, id="failed-1", attempts=1)
    async with Worker(pair.queue, handler):
        await handler.ran(3)
        await pair.counted("completed", 2)
        await pair.counted("failed", 1)
    await pair.queue.add("good", 4, id="active-1")
    await pair.node.claim("t")
    for number in range(3):
        await pair.queue.add("good", number, id=f"wait-{number}")
    await pair.node.add("good", 0, jobId="urgent-2", priority=2)
    await pair.queue.add("good", 0, id="urgent-1", priority=1)
    await pair.queue.add("good", 0, id="later-2", delay=120)
    await pair.node.add("good", 0, jobId="later-1", delay=60000)


async def test_both_count_the_same(pair: Pair) -> None:
    await fill(pair)
    node, ours = await pair.node.counts(), await pair.queue.get_job_counts()
    assert node == {
        "waiting": ours.waiting,
        "prioritized": ours.prioritized,
        "delayed": ours.delayed,
        "active": ours.active,
        "completed": ours.completed,
        "failed": ours.failed,
        "waiting-children": ours.waiting_children,
        "paused": 0,
    }
    assert (ours.waiting, ours.ready, ours.total) == (3, 5, 11)
    await pair.queue.pause()
    node, ours = await pair.node.counts(), await pair.queue.get_job_counts()
    assert (node["waiting"], node["paused"]) == (0, 3)
    assert (ours.waiting, ours.paused) == (3, True)
    assert await pair.node.call("isPaused") is True


@pytest.mark.parametrize("state", [state for state in State if state != State.WAITING_CHILDREN])
async def test_both_list_the_same_jobs(pair: Pair, state: State) -> None:
    await fill(pair)
    # In ascending order Node gives the next to run, or the oldest finished, first.
    node = await pair.node.call("getJobs", [state.value], 0, -1, True)
    ours = list(await pair.queue.get_jobs(state))
    if state in (State.COMPLETED, State.FAILED):
        ours.reverse()
    assert [job["id"] for job in node] == [job.id for job in ours]
    for theirs, mine in zip(node, ours, strict=True):
        assert (theirs["name"], theirs["data"]) == (mine.name, mine.data)
        assert theirs["attemptsMade"] == mine.attempts_made
        assert theirs["attemptsStarted"] == mine.attempts_started
        assert theirs["returnvalue"] == mine.result
        assert theirs.get("failedReason") == (mine.error.reason if mine.error else None)


async def test_both_know_the_state_of_a_job(pair: Pair) -> None:
    await fill(pair)
    for job_id in ("done-1", "failed-1", "active-1", "wait-0", "urgent-1", "later-1"):
        job = await pair.queue.get_job(job_id)
        assert job is not None
        assert await pair.node.call("getJobState", job_id) == job.state


async def test_each_sees_the_workers_of_the_other(pair: Pair) -> None:
    await pair.node.work("echo", options={"name": "node-mailer"})
    handler = Recorder()
    async with Worker(pair.queue, handler, name="toril-mailer"):
        await pair.queue.add("job", 1)
        await pair.counted("completed", 1)

        async def both() -> bool:
            return len(await pair.node.call("getWorkers")) == 2

        await until(both)
        seen = await pair.node.call("getWorkers")
        ours = await pair.queue.get_workers()
    names = {worker["name"] for worker in seen}
    raw = {worker["rawname"] for worker in seen}
    assert any("toril-mailer" in name for name in names | raw)
    assert any("node-mailer" in name for name in names | raw)
    assert "node-mailer" in {worker.name for worker in ours}
    assert "toril-mailer" in {worker.name for worker in ours}


async def test_the_name_of_a_worker_is_written_into_its_jobs(pair: Pair) -> None:
    async with Worker(pair.queue, Recorder(), name="mailer"):
        await pair.queue.add("job", 1, id="a")
        await pair.queue.wait_until_finished("a")
    (job,) = await pair.node.jobs("completed")
    assert job["processedBy"] == "mailer"


async def test_progress_and_logs_cross_both_ways(pair: Pair) -> None:
    async with Worker(pair.queue, Recorder(note)):
        await pair.node.add("job", 1, jobId="by-toril")
        await pair.queue.wait_until_finished("by-toril")
    (job,) = await pair.node.jobs("completed")
    assert job["progress"] == {"done": 1, "of": 2}
    assert await pair.node.call("getJobLogs", "by-toril") == {"logs": ["half way 🐂"], "count": 1}

    await pair.node.work("notes", progress=[1, "π"], line="über")
    await pair.queue.add("job", 1, id="by-node")
    await pair.queue.wait_until_finished("by-node")
    done = await pair.queue.get_job("by-node")
    assert done is not None
    assert done.progress == [1, "π"]
    assert await pair.queue.logs("by-node") == ["über"]


async def test_the_bound_for_events_is_where_node_looks_for_it(pair: Pair) -> None:
    await pair.queue.tune(events_kept=50)
    await pair.node.add("job", 1)
    assert pair.lab.field("meta", "opts.maxLenEvents") == "50"
    await pair.queue.tune()
    await pair.node.add("job", 1)
    assert pair.lab.field("meta", "opts.maxLenEvents") == "10000"
