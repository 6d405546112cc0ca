"""Hand in jobs with each option."""

from __future__ import annotations

from tests.bullmq.options import TermsGiven
from tests.bullmq.scenarios.registry import scenario
from tests.bullmq.sides import New, Side
from toril.job import Keep
from toril.retry import Backoff


@scenario
async def one_plain_job(q: Side) -> None:
    await q.add("a", {"n": 1})


@scenario
async def several_plain_jobs_keep_their_order(q: Side) -> None:
    for job_id in ("a", "b", "c"):
        await q.add(job_id, {"n": 1}, name="mail")


@scenario
async def an_id_that_is_taken_changes_nothing(q: Side) -> None:
    await q.add("a", {"n": 1})
    await q.add("a", {"n": 2})


@scenario
async def an_id_that_has_completed_changes_nothing(q: Side) -> None:
    await q.add("a")
    await q.claim()
    await q.complete("a")
    await q.add("a")


@scenario
async def a_delayed_job(q: Side) -> None:
    await q.add("a", delay_ms=60_000)


@scenario
async def delayed_jobs_of_one_moment_keep_their_order(q: Side) -> None:
    await q.add_many([New(job_id, terms={"delay_ms": 60_000}) for job_id in "abc"])


@scenario
async def an_earlier_delayed_job_moves_the_marker(q: Side) -> None:
    await q.add("a", delay_ms=120_000)
    await q.add("b", delay_ms=60_000)
    await q.add("c", delay_ms=180_000)


@scenario
async def a_prioritised_job(q: Side) -> None:
    await q.add("a", priority=5)


@scenario
async def priorities_and_turns(q: Side) -> None:
    for job_id, priority in (("a", 9), ("b", 1), ("c", 9), ("d", 2_097_151)):
        await q.add(job_id, priority=priority)


@scenario
async def a_prioritised_job_with_a_delay(q: Side) -> None:
    await q.add("a", priority=3, delay_ms=60_000)


@scenario
async def last_in_first_out(q: Side) -> None:
    await q.add("a")
    await q.add("b", lifo=True)
    await q.add("c", lifo=True)


@scenario
async def attempts_and_backoff(q: Side) -> None:
    await q.add("a", attempts=5, backoff=Backoff("exponential", 2, jitter=0))
    await q.add("b", attempts=2, backoff=Backoff("fixed", 30, jitter=0))


@scenario
async def retention_in_each_shape(q: Side) -> None:
    await q.add("a", keep_completed=Keep(count=0), keep_failed=Keep(count=0))
    await q.add("b", keep_completed=Keep(count=10), keep_failed=Keep(count=20))
    await q.add("c", keep_completed=Keep(age=60), keep_failed=Keep(count=2, age=3600))


@scenario
async def a_bound_for_logs(q: Side) -> None:
    await q.add("a", keep_logs=3)


@scenario
async def many_plain_jobs_at_once(q: Side) -> None:
    await q.add_many([New(f"job-{n:03}", {"n": n}) for n in range(60)])


@scenario
async def a_mixed_bunch_at_once(q: Side) -> None:
    await q.add_many(
        [
            New("a"),
            New("b", terms={"delay_ms": 60_000}),
            New("c", terms={"priority": 2}),
            New("d", name="mail", terms={"lifo": True}),
            New("a", {"again": True}),
            New("e", terms={"attempts": 4}),
        ]
    )


@scenario
async def many_delayed_jobs_at_once(q: Side) -> None:
    await q.add_many(
        [New(f"job-{n:03}", {"n": n}, terms={"delay_ms": 60_000 * (1 + n % 3)}) for n in range(60)]
    )


@scenario
async def many_prioritised_jobs_at_once(q: Side) -> None:
    await q.add_many(
        [New(f"job-{n:03}", {"n": n}, terms={"priority": 1 + n % 3}) for n in range(60)]
    )


@scenario
async def many_jobs_with_delays_priorities_and_names_at_once(q: Side) -> None:
    kinds: list[TermsGiven] = [
        {"delay_ms": 120_000, "attempts": 4},
        {"priority": 2},
        {"delay_ms": 60_000, "priority": 7, "keep_completed": Keep(count=0)},
    ]
    await q.add_many(
        [New(f"job-{n:02}", name=f"name-{n % 2}", terms=kinds[n % 3]) for n in range(12)]
    )


@scenario
async def delayed_and_plain_jobs_by_turns(q: Side) -> None:
    await q.add_many(
        [
            New(f"job-{n:02}", {"n": n}, terms={"delay_ms": 60_000} if n // 6 % 2 else None)
            for n in range(24)
        ]
    )


@scenario
async def an_id_comes_again_among_delayed_jobs(q: Side) -> None:
    await q.add("c")
    later = [New(job_id, terms={"delay_ms": 60_000}) for job_id in "abcdefbg"]
    await q.add_many(later)


@scenario
async def prioritised_jobs_at_once_for_a_paused_queue(q: Side) -> None:
    await q.pause()
    await q.add_many([New(job_id, terms={"priority": 1}) for job_id in "abcdef"])
    await q.add_many([New(job_id, terms={"delay_ms": 60_000}) for job_id in "ghijkl"])


@scenario
async def prioritised_jobs_at_once_for_a_full_queue(q: Side) -> None:
    await q.limit(concurrency=1)
    await q.add("a")
    await q.claim()
    await q.claim()
    await q.add_many([New(job_id, terms={"priority": 1}) for job_id in "bcdefg"])


@scenario
async def jobs_for_a_paused_queue(q: Side) -> None:
    await q.pause()
    await q.add("a")
    await q.add("b", priority=1)
    await q.add("c", delay_ms=60_000)
    await q.add("d", lifo=True)
    await q.add_many([New("e"), New("f")])


@scenario
async def jobs_for_a_full_queue(q: Side) -> None:
    await q.limit(concurrency=1)
    await q.add("a")
    await q.claim()
    await q.add("b")
    await q.add("c", priority=1)
