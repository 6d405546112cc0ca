"""The doctor on queues that Node wrote."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.bullmq.pair import Pair, Recorder
from tests.bullmq.peer import Agent, NodeQueue
from tests.servers import Server
from toril import Worker
from toril.doctor.examine import examine
from toril.doctor.finding import Finding, Level, Report

pytestmark = pytest.mark.node

HOURLY: Final = {"every": 3_600_000}
YEARLY: Final = {"pattern": "0 0 1 1 *"}


def of(report: Report, check: str) -> Finding:
    (one,) = [one for one in report.findings if one.check == check]
    return one


async def schedulers(pair: Pair) -> Finding:
    return of(await examine(pair.url, [pair.name]), "schedulers")


@pytest.mark.parametrize("repeat", [HOURLY, YEARLY], ids=["interval", "pattern"])
async def test_a_scheduler_of_nodes_is_sound_until_its_job_is_gone(
    pair: Pair, repeat: dict[str, Any]
) -> None:
    await pair.node.call("upsertJobScheduler", "often", repeat, {"name": "tick"})
    await pair.node.call("upsertJobScheduler", "other", HOURLY, {"name": "tick"})
    assert (await schedulers(pair)).text == "2 schedulers have a next job, or came to an end"
    pair.lab.lose("repeat:often:")
    stopped = await schedulers(pair)
    assert (stopped.level, stopped.count) == (Level.PROBLEM, 1)
    assert stopped.text.endswith("will never run again: often")
    await pair.node.call("upsertJobScheduler", "often", repeat, {"name": "tick"})
    assert (await schedulers(pair)).level is Level.OK


@pytest.mark.parametrize("repeat", [HOURLY, YEARLY], ids=["interval", "pattern"])
async def test_a_legacy_repeatable_is_sound(pair: Pair, repeat: dict[str, Any]) -> None:
    await pair.node.add("old", {"n": 1}, repeat=repeat)
    assert (await schedulers(pair)).level is Level.OK


async def test_a_scheduler_at_its_limit_is_sound(pair: Pair) -> None:
    await pair.node.call("upsertJobScheduler", "twice", {"every": 50, "limit": 2}, {"name": "tick"})
    handler = Recorder()
    async with Worker(pair.queue, handler):
        await handler.ran(2)
    assert (await schedulers(pair)).level is Level.OK


async def test_a_working_scheduler_is_sound_at_any_moment(pair: Pair) -> None:
    await pair.node.call("upsertJobScheduler", "often", {"every": 20}, {"name": "tick"})
    handler = Recorder()
    async with Worker(pair.queue, handler):
        while handler.ended < 20:
            report = await examine(pair.url, [pair.name])
            assert report.of(Level.PROBLEM) == []


async def test_a_worker_of_nodes_counts_as_one(pair: Pair) -> None:
    await pair.queue.add("n", 1, delay=3600)
    worker = await pair.node.work("echo")
    workers = of(await examine(pair.url, [pair.name]), "workers")
    assert workers.text.startswith("1 worker, ")
    await worker.stop()


async def test_a_queue_of_nodes_without_braces_is_found(
    agent: Agent, server: Server, name: str
) -> None:
    node = NodeQueue(agent, name)
    await node.add("n", {"n": 1})
    await node.add("n", {"n": 2})
    place = of(await examine(f"bullmq+{server.url}", [name]), "place")
    assert place.code == "E13"
    assert place.text == (
        f"queue '{name}' has no keys under prefix 'bull'; found 'bull:{name}' (2 waiting),"
        " written by a Node client"
    )
    sound = await examine(f"bullmq+{server.url}?hash_tag=off", [name])
    assert sound.of(Level.PROBLEM) == []
