"""Fail, and try again."""

from __future__ import annotations

from tests.bullmq.scenarios.registry import scenario
from tests.bullmq.sides import Side
from toril.retry import Backoff


@scenario
async def a_failed_job(q: Side) -> None:
    await q.add("a")
    await q.claim()
    await q.fail("a", "the door is closed")


@scenario
async def a_failed_job_and_the_next_in_hand(q: Side) -> None:
    await q.add("a")
    await q.add("b")
    await q.claim()
    assert await q.fail("a", fetch=True) == ["b"]


@scenario
async def a_retry_without_backoff(q: Side) -> None:
    await q.add("a", attempts=2)
    await q.add("b")
    await q.claim()
    await q.fail("a")


@scenario
async def a_retry_without_backoff_of_a_prioritised_job(q: Side) -> None:
    await q.add("a", attempts=2, priority=3)
    await q.add("b", priority=3)
    await q.claim()
    await q.fail("a")


@scenario
async def a_retry_without_backoff_in_a_paused_queue(q: Side) -> None:
    await q.add("a", attempts=2)
    await q.claim()
    await q.pause()
    await q.fail("a")


@scenario
async def a_retry_without_backoff_of_a_lifo_job(q: Side) -> None:
    await q.add("a", attempts=2, lifo=True)
    await q.claim()
    await q.add("b")
    await q.fail("a")


@scenario
async def a_retry_with_fixed_backoff(q: Side) -> None:
    await q.add("a", attempts=2, backoff=Backoff("fixed", 60, jitter=0))
    await q.claim()
    await q.fail("a")


@scenario
async def exponential_backoff_doubles(q: Side) -> None:
    await q.add("a", attempts=4, backoff=Backoff("exponential", 60, jitter=0))
    for _ in range(3):
        await q.claim()
        await q.fail("a")
        if "a" in q.lab.ids("delayed"):
            q.lab.fall_due("a")


@scenario
async def the_last_attempt_fails(q: Side) -> None:
    await q.add("a", attempts=3)
    for reason in ("first", "second", "third"):
        await q.claim()
        await q.fail("a", reason)


@scenario
async def the_second_attempt_completes(q: Side) -> None:
    await q.add("a", attempts=3)
    await q.claim()
    await q.fail("a")
    await q.claim()
    await q.complete("a", "at last")


@scenario
async def a_delayed_retry_falls_due_and_completes(q: Side) -> None:
    await q.add("a", attempts=2, backoff=Backoff("fixed", 60, jitter=0))
    await q.claim()
    await q.fail("a")
    q.lab.fall_due("a")
    await q.claim()
    await q.complete("a")


@scenario
async def an_error_for_good_uses_up_no_more_attempts(q: Side) -> None:
    await q.add("a", attempts=5, backoff=Backoff("fixed", 60, jitter=0))
    await q.claim()
    await q.fail("a", for_good=True)


@scenario
async def a_postponed_job(q: Side) -> None:
    await q.add("a", attempts=2)
    await q.claim()
    await q.postpone("a", 60_000)


@scenario
async def a_postponed_job_completes_later(q: Side) -> None:
    await q.add("a")
    await q.claim()
    await q.postpone("a", 60_000)
    q.lab.fall_due("a")
    await q.claim()
    await q.complete("a")


@scenario
async def a_released_job_is_in_front(q: Side) -> None:
    await q.add("a")
    await q.add("b")
    await q.claim()
    await q.release("a")


@scenario
async def a_released_prioritised_job(q: Side) -> None:
    await q.add("a", priority=2)
    await q.add("b", priority=1)
    await q.claim()
    await q.release("b")


@scenario
async def a_released_job_of_a_paused_queue(q: Side) -> None:
    await q.add("a")
    await q.claim()
    await q.pause()
    await q.release("a")
