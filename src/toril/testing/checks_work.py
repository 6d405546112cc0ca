"""Check how jobs are handed out: order, claims, refills, counters."""

from __future__ import annotations

from toril.event import EventKind
from toril.job import State, Terms
from toril.outcome import (
    DONE,
    Completed,
    Failed,
    Failure,
    Lease,
    Outcome,
    Postponed,
    Released,
    Retried,
)
from toril.storage.protocol import Claimed, Feature
from toril.testing.suite import LEASE_MS, Bench, check, soon

BOOM = Failure(kind="ValueError", reason="boom", stack="Traceback: boom")


@check()
async def jobs_are_handed_out_in_the_order_they_came(bench: Bench) -> None:
    await bench.add("c", "a")
    await bench.add("b")
    assert await bench.order(3) == ["c", "a", "b"]


@check()
async def a_claim_brings_at_most_the_count_it_asked_for(bench: Bench) -> None:
    await bench.add("a", "b", "c")
    batch = await bench.claim(2)
    ids = [job.spec.id for job in batch.jobs]
    assert 1 <= len(ids) <= 2
    assert ids == ["a", "b"][: len(ids)]
    assert await bench.state("c") is State.WAITING


@check()
async def a_claim_of_an_empty_queue_brings_nothing(bench: Bench) -> None:
    batch = await bench.claim(5)
    assert not batch.jobs
    assert (batch.limited_for_ms, batch.next_in_ms) == (0, None)


@check()
async def no_priority_goes_first_then_one_is_the_most_urgent(bench: Bench) -> None:
    for job_id, priority in [("p9", 9), ("p1", 1), ("p9-later", 9), ("p2", 2), ("p1-later", 1)]:
        await bench.add(job_id, terms=Terms(priority=priority))
    await bench.add("plain")
    assert await bench.order(6) == ["plain", "p1", "p1-later", "p2", "p9", "p9-later"]


@check(feature=Feature.LIFO)
async def a_lifo_job_goes_to_the_front_of_the_line(bench: Bench) -> None:
    await bench.add("a", "b")
    await bench.add("x", terms=Terms(lifo=True))
    await bench.add("y", terms=Terms(lifo=True))
    assert await bench.order(4) == ["y", "x", "a", "b"]


@check()
async def a_delayed_job_is_not_handed_out_before_its_time(bench: Bench) -> None:
    await bench.add("a", terms=Terms(delay_ms=10_000))
    batch = await bench.claim()
    assert not batch.jobs
    assert batch.next_in_ms is not None
    assert 0 < batch.next_in_ms <= 10_000
    await bench.rig.advance(8_000)
    batch = await bench.claim()
    assert not batch.jobs
    assert batch.next_in_ms is not None
    assert 0 < batch.next_in_ms <= 2_000
    await bench.rig.advance(2_001)
    assert await bench.order(1) == ["a"]


@check()
async def delayed_jobs_become_due_in_the_order_of_their_times(bench: Bench) -> None:
    for job_id, delay_ms in [("c", 3_000), ("a", 1_000), ("b", 2_000)]:
        await bench.add(job_id, terms=Terms(delay_ms=delay_ms))
    await bench.rig.advance(3_001)
    assert await bench.order(3) == ["a", "b", "c"]


@check()
async def a_claimed_job_carries_what_its_worker_needs(bench: Bench) -> None:
    await bench.add("a", terms=Terms(attempts=4), name="mail", payload=b"[1]")
    job = await bench.take(worker="w7")
    assert (job.spec.id, job.spec.name, job.spec.payload) == ("a", "mail", b"[1]")
    assert (job.lease.job_id, job.lease.attempt) == ("a", 1)
    assert (job.spec.terms.attempts, job.attempts_made, job.stalls) == (4, 0, 0)
    assert job.doom is None
    record = await bench.known("a")
    assert (record.state, record.worker_id) == (State.ACTIVE, "w7")
    assert record.processed_ms is not None


@check()
async def a_live_lease_is_exclusive(bench: Bench) -> None:
    await bench.add("a")
    await bench.take()
    await bench.rig.advance(LEASE_MS - 2_000)
    await bench.storage.reap(bench.queue, 1, 1_000)
    await bench.rig.advance(1_001)
    await bench.storage.reap(bench.queue, 1, 1_000)
    assert not (await bench.claim(5, worker="w2")).jobs, "a job was handed out under a live lease"


@check()
async def concurrent_claims_never_share_a_job(bench: Bench) -> None:
    ids = [f"job-{number}" for number in range(20)]
    await bench.add(*ids)
    tasks = [await bench.spawn(lambda: bench.claim(2)) for _ in range(10)]
    jobs = [job for task in tasks for job in (await soon(task)).jobs]
    taken = [job.spec.id for job in jobs]
    assert len(set(taken)) == len(taken), "two claims got the same job"
    assert len({(job.lease.token, job.spec.id) for job in jobs}) == len(taken)


@check()
async def a_repeated_claim_brings_the_same_jobs_and_no_others(bench: Bench) -> None:
    await bench.add("a", "b")
    wish = bench.wish(1)
    first = await bench.storage.claim(bench.queue, wish)
    again = await bench.storage.claim(bench.queue, wish)
    assert [job.spec.id for job in first.jobs] == ["a"]
    assert [job.spec.id for job in again.jobs] == ["a"], "the same token was granted other jobs"
    assert again.jobs[0].lease == first.jobs[0].lease
    assert await bench.state("b") is State.WAITING


@check()
async def a_lost_reply_to_a_claim_costs_neither_an_attempt_nor_a_stall(bench: Bench) -> None:
    await bench.add("a", "b")
    wish = bench.wish(2)
    await bench.unheard("claim", lambda: bench.storage.claim(bench.queue, wish))
    jobs = list((await bench.storage.claim(bench.queue, wish)).jobs)
    assert jobs[0].spec.id == "a"
    assert (jobs[0].lease.attempt, jobs[0].attempts_made, jobs[0].stalls) == (1, 0, 0)
    record = await bench.known("a")
    assert (record.attempts_started, record.stalls) == (1, 0)
    assert await bench.told(EventKind.ACTIVE) == [job.spec.id for job in jobs]
    assert list((await bench.complete(jobs[0])).answers) == [DONE]


@check()
async def a_refill_brings_the_next_job_in_the_same_call(bench: Bench) -> None:
    await bench.add("a", "b", "c")
    job = await bench.take()
    done = Completed(lease=job.lease, result=b"1")
    settlement = await bench.settle(done, refill=bench.wish(1))
    assert list(settlement.answers) == [DONE]
    assert [job.spec.id for job in settlement.batch.jobs] == ["b"]
    assert await bench.state("a") is State.COMPLETED
    assert await bench.state("c") is State.WAITING


@check()
async def a_settle_without_refill_brings_no_jobs(bench: Bench) -> None:
    await bench.add("a", "b")
    settlement = await bench.complete(await bench.take())
    assert not settlement.batch.jobs
    assert await bench.state("b") is State.WAITING


@check()
async def a_refill_without_outcomes_is_a_claim(bench: Bench) -> None:
    await bench.add("a")
    settlement = await bench.settle(refill=bench.wish(1))
    assert list(settlement.answers) == []
    assert [job.spec.id for job in settlement.batch.jobs] == ["a"]


@check()
async def a_refill_may_bring_what_the_same_call_puts_back(bench: Bench) -> None:
    await bench.add("a", "b")
    a, b = await bench.take_many(2)
    settlement = await bench.settle(
        Failed(lease=a.lease, failure=BOOM),
        Retried(lease=b.lease, failure=BOOM, delay_ms=0),
        refill=bench.wish(1),
    )
    assert list(settlement.answers) == [DONE, DONE]
    assert [job.spec.id for job in settlement.batch.jobs] == ["b"]


@check()
async def a_lost_reply_to_a_settle_with_refill_costs_nothing(bench: Bench) -> None:
    await bench.add("a", "b", "c")
    job = await bench.take()
    done = Completed(lease=job.lease, result=b"1")
    refill = bench.wish(1)
    await bench.unheard("settle", lambda: bench.settle(done, refill=refill))
    settlement = await bench.settle(done, refill=refill)
    assert list(settlement.answers) == [DONE]
    (next_job,) = settlement.batch.jobs
    assert (next_job.spec.id, next_job.stalls, next_job.lease.attempt) == ("b", 0, 1)
    assert await bench.state("c") is State.WAITING, "the repeated refill took another job"
    assert await bench.told(EventKind.COMPLETED) == ["a"]
    assert list((await bench.complete(next_job)).answers) == [DONE]


@check()
async def one_settle_takes_many_outcomes_and_answers_in_order(bench: Bench) -> None:
    await bench.add("a", "b", "c")
    a, b, c = await bench.take_many(3)
    stranger = Lease(job_id="nobody", token="t", attempt=1)
    settlement = await bench.settle(
        Failed(lease=c.lease, failure=BOOM),
        Completed(lease=stranger, result=b"1"),
        Completed(lease=a.lease, result=b"1"),
        Retried(lease=b.lease, failure=BOOM, delay_ms=0),
    )
    assert [str(answer.kind) for answer in settlement.answers] == ["done", "gone", "done", "done"]
    states = [await bench.state(job_id) for job_id in "abc"]
    assert states == [State.COMPLETED, State.WAITING, State.FAILED]


async def _second_start(bench: Bench, job: Claimed, outcome: Outcome) -> Claimed:
    """End one attempt and start the next."""
    assert await bench.answer(outcome) == DONE
    await bench.rig.advance(1_001)
    again = await bench.take(worker="w2")
    assert again.spec.id == job.spec.id
    return again


@check()
async def a_retried_attempt_counts(bench: Bench) -> None:
    await bench.add("a", terms=Terms(attempts=3))
    job = await bench.take()
    retried = Retried(lease=job.lease, failure=BOOM, delay_ms=0)
    again = await _second_start(bench, job, retried)
    assert (again.attempts_made, again.lease.attempt, again.stalls) == (1, 2, 0)
    record = await bench.known("a")
    assert (record.attempts_made, record.attempts_started) == (1, 2)
    assert "boom" in str(record.failure)


@check()
async def a_postponed_attempt_does_not_count(bench: Bench) -> None:
    await bench.add("a")
    job = await bench.take()
    again = await _second_start(bench, job, Postponed(lease=job.lease, delay_ms=1_000))
    assert (again.attempts_made, again.lease.attempt, again.stalls) == (0, 1, 0)
    assert (await bench.known("a")).attempts_started == 2


@check()
async def a_released_attempt_does_not_count(bench: Bench) -> None:
    await bench.add("a")
    job = await bench.take()
    again = await _second_start(bench, job, Released(lease=job.lease))
    assert (again.attempts_made, again.lease.attempt, again.stalls) == (0, 1, 0)
    assert (await bench.known("a")).attempts_started == 2


@check()
async def completed_and_failed_attempts_count(bench: Bench) -> None:
    await bench.add("a", "b")
    a, b = await bench.take_many(2)
    await bench.complete(a)
    await bench.fail(b)
    for job_id in "ab":
        record = await bench.known(job_id)
        assert (record.attempts_made, record.attempts_started, record.stalls) == (1, 1, 0)
        assert record.finished_ms is not None
        assert record.processed_ms is not None
        assert record.created_ms <= record.processed_ms <= record.finished_ms


@check()
async def a_failed_job_keeps_its_reason_and_its_traceback(bench: Bench) -> None:
    await bench.add("a")
    job = await bench.take()
    await bench.settle(Failed(lease=job.lease, failure=BOOM, exhausted=True))
    record = await bench.known("a")
    assert record.state is State.FAILED
    assert record.failure is not None
    assert (record.failure.kind, record.failure.reason) == ("ValueError", "boom")
    assert record.stacktrace == ("Traceback: boom",)
    assert record.result is None
    assert await bench.told(EventKind.RETRIES_EXHAUSTED) == ["a"]


@check()
async def a_completion_after_a_retry_clears_the_error(bench: Bench) -> None:
    await bench.add("a", terms=Terms(attempts=2))
    job = await bench.take()
    again = await _second_start(bench, job, Retried(lease=job.lease, failure=BOOM, delay_ms=0))
    await bench.complete(again)
    assert (await bench.ending("a")).failure is None
    assert await bench.state("a") is State.COMPLETED


@check()
async def a_retried_job_goes_to_the_back_of_the_line(bench: Bench) -> None:
    await bench.add("a", "b", "c")
    job = await bench.take()
    await bench.settle(Retried(lease=job.lease, failure=BOOM, delay_ms=0))
    assert await bench.order(3) == ["b", "c", "a"]


@check()
async def a_retry_with_a_delay_waits_for_its_time(bench: Bench) -> None:
    await bench.add("a", terms=Terms(attempts=2))
    job = await bench.take()
    await bench.settle(Retried(lease=job.lease, failure=BOOM, delay_ms=5_000))
    record = await bench.known("a")
    assert record.state is State.DELAYED
    assert record.due_ms is not None
    assert not (await bench.claim()).jobs
    await bench.rig.advance(5_001)
    assert await bench.order(1) == ["a"]


@check()
async def a_released_job_goes_to_the_front_of_the_line(bench: Bench) -> None:
    await bench.add("a", "b", "c")
    job = await bench.take()
    assert await bench.answer(Released(lease=job.lease)) == DONE
    assert await bench.state("a") is State.WAITING
    assert await bench.order(3) == ["a", "b", "c"]


@check()
async def a_job_postponed_until_a_moment_comes_back_then(bench: Bench) -> None:
    await bench.add("a")
    job = await bench.take()
    until_ms = job.created_ms + job.age_ms + 20_000
    assert await bench.answer(Postponed(lease=job.lease, until_ms=until_ms)) == DONE
    assert (await bench.known("a")).due_ms == until_ms
    await bench.rig.advance(18_000)
    assert not (await bench.claim()).jobs
    await bench.rig.advance(2_001)
    assert await bench.order(1) == ["a"]
