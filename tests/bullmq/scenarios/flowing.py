"""Settle flows that Node made; the children are in a queue of their own."""

from __future__ import annotations

from typing import Any

from tests.bullmq.scenarios.registry import scenario
from tests.bullmq.sides import Side


async def _flow(q: Side, *children: str, **options: Any) -> None:
    await q.lab.node.add_flow(
        {
            "name": "parent",
            "queueName": q.lab.queue,
            "data": {"n": 0},
            "opts": {"jobId": "parent"},
            "children": [
                {
                    "name": "child",
                    "queueName": q.lab.child_queue,
                    "data": {"n": 1},
                    "opts": {"jobId": child, **options},
                }
                for child in children
            ],
        }
    )


@scenario
async def a_flow_that_waits_for_its_children(q: Side) -> None:
    await _flow(q, "a", "b")
    await q.claim(child=True)


@scenario
async def the_first_child_completes(q: Side) -> None:
    await _flow(q, "a", "b")
    await q.claim(child=True)
    await q.complete("a", {"found": 1})


@scenario
async def all_children_complete_and_the_parent_waits(q: Side) -> None:
    await _flow(q, "a", "b")
    await q.claim(2, child=True)
    await q.complete("a", 1)
    await q.complete("b", None)


@scenario
async def the_parent_completes(q: Side) -> None:
    await _flow(q, "a")
    await q.claim(child=True)
    await q.complete("a", 1)
    assert await q.claim() == ["parent"]
    await q.complete("parent", "all")


@scenario
async def children_complete_with_the_next_in_hand(q: Side) -> None:
    await _flow(q, "a", "b")
    await q.claim(child=True)
    assert await q.complete("a", 1, fetch=True) == ["b"]
    assert await q.complete("b", 2, fetch=True) == []


@scenario
async def a_failed_child_keeps_its_parent_waiting(q: Side) -> None:
    await _flow(q, "a")
    await q.claim(child=True)
    await q.fail("a", "broken")


@scenario
async def a_failed_child_fails_its_parent(q: Side) -> None:
    await _flow(q, "a", "b", failParentOnFailure=True)
    await q.claim(child=True)
    await q.fail("a", "broken")


@scenario
async def a_doomed_parent_is_failed_by_its_worker(q: Side) -> None:
    await _flow(q, "a", failParentOnFailure=True)
    await q.claim(child=True)
    await q.fail("a", "broken")
    assert await q.claim() == ["parent"]
    await q.fail("parent", f"child {q.lab.prefix}:{q.lab.child_queue}:a failed", for_good=True)


@scenario
async def a_failed_child_is_ignored(q: Side) -> None:
    await _flow(q, "a", ignoreDependencyOnFailure=True)
    await q.claim(child=True)
    await q.fail("a", "broken")


@scenario
async def a_failed_child_is_no_longer_a_dependency(q: Side) -> None:
    await _flow(q, "a", removeDependencyOnFailure=True)
    await q.claim(child=True)
    await q.fail("a", "broken")


@scenario
async def a_failed_child_lets_its_parent_go_on(q: Side) -> None:
    await _flow(q, "a", "b", continueParentOnFailure=True)
    await q.claim(child=True)
    await q.fail("a", "broken")


@scenario
async def a_child_that_is_tried_again_changes_nothing_yet(q: Side) -> None:
    await _flow(q, "a", failParentOnFailure=True, attempts=2)
    await q.claim(child=True)
    await q.fail("a", "broken")


@scenario
async def a_child_that_is_not_kept(q: Side) -> None:
    await _flow(q, "a", removeOnComplete=True)
    await q.claim(child=True)
    await q.complete("a", "short")


@scenario
async def a_prioritised_parent_of_a_paused_queue(q: Side) -> None:
    await q.lab.node.add_flow(
        {
            "name": "parent",
            "queueName": q.lab.queue,
            "opts": {"jobId": "parent", "priority": 4},
            "children": [
                {"name": "child", "queueName": q.lab.child_queue, "opts": {"jobId": "a"}},
            ],
        }
    )
    await q.pause()
    await q.claim(child=True)
    await q.complete("a")
