"""Jobs that kill their worker and records that make no sense; `reliability.md` P1-P3."""

from __future__ import annotations

import msgpack
import pytest

from tests.faults.stage import Stage
from toril.event import Cursor, EventKind


@pytest.mark.on_bullmq
async def test_p1_a_handler_that_kills_the_process_runs_twice_and_then_fails(
    stage: Stage,
) -> None:
    async with stage.queue() as queue:
        await stage.hand_in(queue, "bomb", {"do": "exit"})
        for number in range(2):
            victim = stage.worker(f"victim-{number}")
            assert await stage.ended(victim, 15) == 9
        stage.worker("survivor")
        await stage.drained(1)
        await stage.hand_in(queue, "next", {})
        await stage.drained(2)
    dump = stage.check()
    bomb = dump.by_id["bomb"]
    # On the BullMQ wire a worker takes a doomed job once more, to fail it without its handler.
    taken = 1 if stage.on_bullmq else 0
    assert (bomb.state, bomb.stalls) == ("failed", 2)
    assert (bomb.started, bomb.made) == (2 + taken, taken)
    assert "JobStalled" in bomb.failure
    assert len(stage.of("run", "invoke", job="bomb")) == 2
    assert dump.by_id["next"].state == "completed"


NOT_MSGPACK = b"\xc1\xff garbage"
NOT_A_SPEC = b"\x93\x01\x02\x03"


@pytest.mark.parametrize("blob", [NOT_MSGPACK, NOT_A_SPEC, b""], ids=["noise", "other", "empty"])
@pytest.mark.parametrize("place", ["specs", "jobs"])
async def test_p2_garbage_in_a_job_ends_it_and_the_queue_flows(
    stage: Stage, place: str, blob: bytes
) -> None:
    worker = stage.worker("w", concurrency=2)
    await stage.ready(worker)
    async with stage.queue() as queue:
        await queue.pause()
        for job in ("a", "bad", "z"):
            await stage.hand_in(queue, job, {})
        stage.looker.call("HSET", stage.looker.key(place), "bad", blob)
        await queue.resume()
        for job in ("a", "z"):
            await stage.committed(job)
        # Nor does it come back, time and again.
        await stage.hand_in(queue, "later", {})
        await stage.committed("later")
        await stage.until(
            lambda: stage.looker.call("ZCARD", stage.looker.key("processing")) == 0, 5
        )
    assert worker.alive
    assert not stage.of("run", job="bad")
    dump = stage.check()
    bad = dump.by_id["bad"]
    assert (bad.state, bad.stalls) == ("failed", 0)
    assert "SerdeError" in bad.failure
    assert [step.kind for step in dump.trail if step.job == "bad"][-1] == "failed"
    kept = stage.looker.key("specs" if place == "specs" else "broken")
    assert stage.looker.call("HGET", kept, "bad") == blob


async def test_p2_data_that_is_not_json_fails_at_once_and_is_kept(stage: Stage) -> None:
    stage.worker("w")
    async with stage.queue() as queue:
        await queue.pause()
        await stage.hand_in(queue, "bad", {})
        key = stage.looker.key("specs")
        name, _, *rest = msgpack.unpackb(stage.looker.call("HGET", key, "bad"))
        blob = msgpack.packb((name, b"{not json", *rest))
        stage.looker.call("HSET", key, "bad", blob)
        await queue.resume()
        await stage.drained(1)
        await stage.hand_in(queue, "next", {})
        await stage.drained(2)
    job = stage.check().by_id["bad"]
    assert (job.state, job.started, job.stalls) == ("failed", 1, 0)
    assert not stage.of("run", job="bad")
    assert stage.looker.call("HGET", key, "bad") == blob


@pytest.mark.parametrize("line", ["queue", "prioritized", "delayed"])
async def test_p3_an_entry_without_a_record_is_dropped_with_a_word_and_not_run(
    stage: Stage, line: str
) -> None:
    each: dict[str, dict[str, float]] = {"prioritized": {"priority": 3}, "delayed": {"delay": 0.2}}
    options = each.get(line, {})
    worker = stage.worker("w")
    await stage.ready(worker)
    async with stage.queue() as queue:
        await queue.pause()
        for job in ("a", "cancelled", "missing", "z"):
            await stage.hand_in(queue, job, {}, **options)
        spec = stage.looker.call("HGET", stage.looker.key("specs"), "missing")
        stage.looker.call("HDEL", stage.looker.key("jobs"), "missing")
        # Its entry stays as well, and by right: nobody is told of that.
        await queue.cancel("cancelled")
        await queue.resume()
        await stage.committed("a")
        await stage.committed("z")
        counts = await queue.storage.counts(queue.name)
        events = await queue.storage.events(queue.name, Cursor.START)
    assert (counts.waiting, counts.prioritized, counts.delayed) == (0, 0, 0)
    assert (counts.active, counts.completed) == (0, 2)
    removed = [(one.job_id, one.reason) for one in events if one.kind is EventKind.REMOVED]
    assert removed == [("missing", "its record is missing")]
    assert worker.alive
    assert not stage.of("run", job="missing")
    assert stage.looker.call("LLEN", stage.looker.key("queue")) == 0
    assert stage.looker.call("EXISTS", stage.looker.key("stale")) == 0
    assert stage.looker.call("HGET", stage.looker.key("broken"), "missing") == spec
    stage.check(lossy=True)


async def test_p3_a_record_without_its_spec_fails_and_is_not_run(stage: Stage) -> None:
    worker = stage.worker("w")
    await stage.ready(worker)
    async with stage.queue() as queue:
        await queue.pause()
        for job in ("a", "bare", "z"):
            await stage.hand_in(queue, job, {})
        stage.looker.call("HDEL", stage.looker.key("specs"), "bare")
        await queue.resume()
        await stage.committed("a")
        await stage.committed("z")
        await stage.until(
            lambda: stage.looker.call("ZCARD", stage.looker.key("processing")) == 0, 5
        )
    assert worker.alive
    assert not stage.of("run", job="bare")
