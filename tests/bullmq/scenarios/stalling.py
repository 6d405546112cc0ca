"""Find jobs whose worker is gone."""

from __future__ import annotations

from tests.bullmq.scenarios.registry import scenario
from tests.bullmq.sides import New, Side


@scenario
async def the_first_look_marks_running_jobs(q: Side) -> None:
    await q.add_many([New("a"), New("b")])
    await q.claim(2)
    await q.reap()


@scenario
async def a_running_job_with_a_lease_does_not_stall(q: Side) -> None:
    await q.add("a")
    await q.claim()
    await q.reap()
    await q.reap()


@scenario
async def a_renewed_job_is_no_longer_marked(q: Side) -> None:
    await q.add("a")
    await q.claim()
    await q.reap()
    await q.renew("a")


@scenario
async def a_completed_job_is_no_longer_marked(q: Side) -> None:
    await q.add("a")
    await q.claim()
    await q.reap()
    await q.complete("a")


@scenario
async def the_second_look_puts_a_lapsed_job_in_front(q: Side) -> None:
    await q.add("a")
    await q.add("b")
    await q.claim()
    await q.reap()
    q.lab.lapse("a")
    await q.reap()


@scenario
async def a_stalled_prioritised_job_comes_back(q: Side) -> None:
    await q.add("a", priority=3)
    await q.claim()
    await q.reap()
    q.lab.lapse("a")
    await q.reap()


@scenario
async def a_stalled_job_of_a_paused_queue_comes_back(q: Side) -> None:
    await q.add("a")
    await q.claim()
    await q.pause()
    await q.reap()
    q.lab.lapse("a")
    await q.reap()


@scenario
async def a_stalled_job_completes_after_all(q: Side) -> None:
    await q.add("a")
    await q.claim()
    await q.reap()
    q.lab.lapse("a")
    await q.reap()
    await q.claim()
    await q.complete("a")


async def _stall(q: Side, times: int) -> None:
    for _ in range(times):
        await q.claim()
        await q.reap()
        q.lab.lapse("a")
        await q.reap()


@scenario
async def a_job_that_stalls_too_often_is_doomed(q: Side) -> None:
    await q.add("a")
    await _stall(q, 2)


@scenario
async def a_doomed_job_is_failed_by_its_next_worker(q: Side) -> None:
    await q.add("a", attempts=5)
    await _stall(q, 2)
    await q.claim()
    await q.fail("a", "job stalled more than allowable limit", for_good=True)


@scenario
async def no_stall_is_allowed(q: Side) -> None:
    await q.add("a")
    await q.claim()
    await q.reap(max_stalls=0)
    q.lab.lapse("a")
    await q.reap(max_stalls=0)
