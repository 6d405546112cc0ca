"""Flows that Node makes, worked by toril, in each failure mode."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bullmq.pair import Pair, Recorder
from toril import JobContext, Reject, Worker

pytestmark = pytest.mark.node


async def odd_ones_fail(job: JobContext[Any]) -> Any:
    """Fail if the number in the data is odd."""
    if job.data["n"] % 2:
        raise Reject(f"{job.data['n']} is odd")
    return job.data["n"]


async def add_flow(pair: Pair, *numbers: int, **options: Any) -> None:
    """Let Node add a parent whose children carry these numbers."""
    await pair.node.add_flow(
        {
            "name": "parent",
            "queueName": pair.lab.queue,
            "data": {"n": 0},
            "opts": {"jobId": "parent"},
            "children": [
                {
                    "name": "child",
                    "queueName": pair.lab.child_queue,
                    "data": {"n": n},
                    "opts": {"jobId": f"child-{n}", **options},
                }
                for n in numbers
            ],
        }
    )


async def children_and_parent(pair: Pair, children: int) -> Recorder:
    """Work the children, then the parent, with toril; return the parent's handler."""
    parent, child = Recorder(odd_ones_fail), Recorder(odd_ones_fail)
    queue = pair.other(pair.lab.child_name)
    await pair.node.listen()
    async with Worker(pair.queue, parent), Worker(queue, child, concurrency=3):
        await child.ran(children)
        await pair.node.heard("completed", "parent")
    await queue.stop()
    return parent


async def test_children_and_parent_complete(pair: Pair) -> None:
    await add_flow(pair, 2, 4, 6)
    parent = await children_and_parent(pair, 3)
    assert parent.ids == ["parent"]
    values = await pair.node.job("parent", "getChildrenValues")
    base = f"bull:{pair.lab.child_queue}"
    assert values == {f"{base}:child-2": 2, f"{base}:child-4": 4, f"{base}:child-6": 6}


async def test_an_ignored_failure_lets_the_parent_complete(pair: Pair) -> None:
    await add_flow(pair, 1, 2, ignoreDependencyOnFailure=True)
    parent = await children_and_parent(pair, 2)
    assert parent.ids == ["parent"]
    ignored = await pair.node.job("parent", "getIgnoredChildrenFailures")
    assert list(ignored.values()) == ["1 is odd"]


async def test_a_removed_dependency_lets_the_parent_complete(pair: Pair) -> None:
    await add_flow(pair, 1, 2, removeDependencyOnFailure=True)
    parent = await children_and_parent(pair, 2)
    assert parent.ids == ["parent"]
    assert list((await pair.node.job("parent", "getChildrenValues")).values()) == [2]


async def test_a_parent_goes_on_at_the_first_failure_if_told_to(pair: Pair) -> None:
    await add_flow(pair, 1, continueParentOnFailure=True)
    parent = await children_and_parent(pair, 1)
    assert parent.ids == ["parent"]
    assert list((await pair.node.job("parent", "getFailedChildrenValues")).values()) == ["1 is odd"]


async def test_a_failed_child_fails_its_parent_without_running_it(pair: Pair) -> None:
    parent, child = Recorder(odd_ones_fail), Recorder(odd_ones_fail)
    queue = pair.other(pair.lab.child_name)
    await add_flow(pair, 1, failParentOnFailure=True)
    await pair.node.listen()
    async with Worker(pair.queue, parent), Worker(queue, child):
        heard = await pair.node.heard("failed", "parent")
    await queue.stop()
    assert parent.ids == []
    (failed,) = [event for event in heard if event["event"] == "failed"]
    assert failed["failedReason"] == f"child bull:{pair.lab.child_queue}:child-1 failed"


async def test_without_a_mode_a_failed_child_leaves_its_parent_waiting(pair: Pair) -> None:
    child = Recorder(odd_ones_fail)
    queue = pair.other(pair.lab.child_name)
    await add_flow(pair, 1, 2)
    async with Worker(queue, child, concurrency=2):
        await child.ran(2)
        await queue.wait_until_finished("child-2")
    await queue.stop()
    assert await pair.node.call("getJobState", "parent") == "waiting-children"
    counts = await pair.queue.get_job_counts()
    assert counts.waiting_children == 1
    (job,) = await pair.queue.get_jobs("waiting-children")
    assert job.id == "parent"


async def test_toril_works_the_children_and_node_the_parent(pair: Pair) -> None:
    child = Recorder(odd_ones_fail)
    queue = pair.other(pair.lab.child_name)
    await add_flow(pair, 1, 2, ignoreDependencyOnFailure=True)
    node = await pair.node.work("children")
    async with Worker(queue, child):
        (run,) = await node.ran(1)
    await queue.stop()
    assert run["result"] == {"values": [2], "ignored": ["1 is odd"]}


async def test_node_works_the_children_and_toril_the_parent(pair: Pair) -> None:
    await add_flow(pair, 2, 4)
    node = await pair.node.of(pair.lab.child_queue).work("echo")
    parent = Recorder(odd_ones_fail)
    async with Worker(pair.queue, parent):
        await node.ran(2)
        await pair.queue.wait_until_finished("parent")
    assert parent.ids == ["parent"]


async def test_three_generations_are_settled_from_the_leaves(pair: Pair) -> None:
    leaf = {
        "name": "leaf",
        "queueName": pair.lab.queue,
        "data": {"n": 2},
        "opts": {"jobId": "leaf"},
    }
    middle = {**leaf, "name": "middle", "opts": {"jobId": "middle"}, "children": [leaf]}
    await pair.node.add_flow({**leaf, "opts": {"jobId": "root"}, "children": [middle]})
    handler = Recorder(odd_ones_fail)
    async with Worker(pair.queue, handler, concurrency=3):
        await pair.queue.wait_until_finished("root")
    assert handler.ids == ["leaf", "middle", "root"]


async def test_a_child_that_is_tried_again_holds_its_parent_back(pair: Pair) -> None:
    await add_flow(pair, 2, attempts=2, failParentOnFailure=True)
    fails = iter([True, False])

    async def fail_once(job: JobContext[Any]) -> int:
        if next(fails):
            raise RuntimeError("not yet")
        return 2

    queue = pair.other(pair.lab.child_name)
    parent, child = Recorder(odd_ones_fail), Recorder(fail_once)
    async with Worker(pair.queue, parent), Worker(queue, child):
        await pair.queue.wait_until_finished("parent")
    await queue.stop()
    assert [run.attempt for run in child.runs] == [1, 2]
    assert parent.ids == ["parent"]
