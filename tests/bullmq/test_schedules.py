"""Schedulers and repeatables that Node made go on when toril works their jobs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bullmq.pair import Pair, Recorder
from toril import Worker

pytestmark = pytest.mark.node

EACH_SECOND = {"pattern": "* * * * * *"}
OFTEN = {"every": 50}


async def rounds(pair: Pair, count: int) -> Recorder:
    """Work that many iterations with toril alone."""
    handler = Recorder()
    async with Worker(pair.queue, handler):
        await handler.ran(count)
    return handler


async def test_a_scheduler_by_interval_is_advanced(pair: Pair) -> None:
    template = {"name": "tick", "data": {"n": 7}}
    await pair.node.call("upsertJobScheduler", "often", OFTEN, template)
    handler = await rounds(pair, 4)
    assert [(run.name, run.data) for run in handler.runs[:4]] == [("tick", {"n": 7})] * 4
    assert len(set(handler.ids)) == len(handler.ids)
    scheduler = await pair.node.call("getJobScheduler", "often")
    assert scheduler["iterationCount"] >= 5
    assert scheduler["every"] == 50


async def test_a_scheduler_by_pattern_is_advanced(pair: Pair) -> None:
    await pair.node.call("upsertJobScheduler", "cron", EACH_SECOND, {"name": "tick"})
    handler = await rounds(pair, 2)
    due = [int(job_id.rpartition(":")[2]) for job_id in handler.ids]
    assert all(ms % 1000 == 0 for ms in due)
    assert due[1] > due[0]
    assert (await pair.node.call("getJobScheduler", "cron"))["iterationCount"] >= 3


async def test_a_template_is_read_anew_for_each_iteration(pair: Pair) -> None:
    await pair.node.call("upsertJobScheduler", "often", OFTEN, {"name": "old", "data": 1})
    await rounds(pair, 1)
    await pair.node.call("upsertJobScheduler", "often", OFTEN, {"name": "new", "data": 2})
    handler = await rounds(pair, 3)
    assert (handler.runs[-1].name, handler.runs[-1].data) == ("new", 2)


async def test_a_scheduler_ends_at_its_limit(pair: Pair) -> None:
    await pair.node.call("upsertJobScheduler", "thrice", {**OFTEN, "limit": 3}, {"name": "tick"})
    handler = await rounds(pair, 3)
    assert len(handler.runs) == 3
    assert (await pair.node.counts())["delayed"] == 0


@pytest.mark.parametrize("repeat", [OFTEN, EACH_SECOND], ids=["interval", "pattern"])
async def test_a_legacy_repeatable_is_advanced(pair: Pair, repeat: dict[str, Any]) -> None:
    await pair.node.add("old", {"n": 1}, repeat=repeat)
    handler = await rounds(pair, 2)
    assert [(run.name, run.data) for run in handler.runs[:2]] == [("old", {"n": 1})] * 2
    assert (await pair.node.counts())["delayed"] == 1
    assert len(await pair.node.call("getRepeatableJobs")) == 1


async def test_a_repeatable_of_the_oldest_kind_is_advanced(pair: Pair) -> None:
    pair.lab.remember_repeatable("old::::50")
    await pair.node.add("old", {"n": 1}, repeat=OFTEN)
    handler = await rounds(pair, 3)
    assert [run.data for run in handler.runs[:3]] == [{"n": 1}] * 3
    assert pair.lab.ids("repeat") == ["old::::50"]


async def test_node_and_toril_take_turns(pair: Pair) -> None:
    await pair.node.call("upsertJobScheduler", "often", OFTEN, {"name": "tick"})
    first = await rounds(pair, 2)
    node = await pair.node.work("echo")
    theirs = await node.ran(2)
    await node.stop()
    last = await rounds(pair, 2)
    ids = [*first.ids, *(run["id"] for run in theirs), *last.ids]
    assert len(set(ids)) == len(ids)
    due = [int(job_id.rpartition(":")[2]) for job_id in ids]
    assert due == sorted(due)


async def test_draining_and_cleaning_leave_the_next_iteration(pair: Pair) -> None:
    await pair.node.call("upsertJobScheduler", "daily", {"every": 86_400_000}, {"name": "tick"})
    handler = await rounds(pair, 1)
    await pair.queue.drain(delayed=True)
    await pair.queue.clean(0, 1000, "delayed")
    (left,) = await pair.node.jobs("delayed")
    assert left["id"] not in handler.ids


async def test_draining_keeps_a_schedulers_job_that_waits_already(pair: Pair) -> None:
    await pair.node.call("upsertJobScheduler", "daily", {"every": 86_400_000}, {"name": "tick"})
    await pair.queue.add("job", 1, id="a")
    await pair.queue.drain()
    (left,) = await pair.queue.get_jobs("waiting")
    assert left.name == "tick"
    handler = await rounds(pair, 1)
    assert handler.ids == [left.id]
