"""Check what survives: lapsed leases, lost owners, lost replies."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from toril.event import EventKind
from toril.job import KEEP_NONE, State, Terms
from toril.outcome import (
    CANCELLED,
    DONE,
    GONE,
    LOST,
    AnswerKind,
    Completed,
    Failed,
    Failure,
    Lease,
    Outcome,
    Postponed,
    Released,
    Retried,
)
from toril.storage.protocol import Claimed, EndingKind, Feature
from toril.testing.suite import LEASE_MS, REAP_MS, Bench, check, soon

BOOM = Failure(kind="ValueError", reason="boom")
LONG_MS = 600_000


def _every_outcome(lease: Lease) -> list[Outcome]:
    return [
        Completed(lease=lease, result=b'"late"'),
        Failed(lease=lease, failure=BOOM),
        Retried(lease=lease, failure=BOOM, delay_ms=0),
        Postponed(lease=lease, delay_ms=5_000),
        Released(lease=lease),
    ]


@check()
async def a_lapsed_lease_makes_the_job_claimable_again(bench: Bench) -> None:
    await bench.add("a")
    job = await bench.take()
    assert list((await bench.stall(job.lease)).stalled) == ["a"]
    again = await bench.take(worker="w2")
    assert (again.spec.id, again.doom) == ("a", None)


@check()
async def a_crashed_worker_loses_no_job(bench: Bench) -> None:
    await bench.add("a", "b")
    await bench.take(worker="w1")
    last = await bench.take(worker="w1")
    await bench.rig.crash("w1")
    await bench.stall(last.lease)
    assert sorted(await bench.order(2)) == ["a", "b"]


@check()
async def a_stall_counts_apart_from_attempts(bench: Bench) -> None:
    await bench.add("a")
    await bench.stall((await bench.take()).lease)
    again = await bench.take(worker="w2")
    assert (again.attempts_made, again.lease.attempt, again.stalls) == (0, 1, 1)
    record = await bench.known("a")
    assert (record.attempts_made, record.attempts_started, record.stalls) == (0, 2, 1)


@check()
async def a_stalled_job_goes_to_the_front_of_the_line(bench: Bench) -> None:
    await bench.add("a", "b", "c")
    await bench.stall((await bench.take()).lease)
    assert await bench.order(3) == ["a", "b", "c"]


@check()
async def a_stall_leaves_an_event(bench: Bench) -> None:
    await bench.add("a")
    await bench.stall((await bench.take()).lease)
    assert await bench.told(EventKind.STALLED) == ["a"]


@check()
async def a_reap_that_finds_work_wakes_the_waiting(bench: Bench) -> None:
    await bench.add("a")
    job = await bench.take()
    task = await bench.spawn(lambda: bench.storage.wait([bench.queue], LONG_MS))
    await bench.stall(job.lease)
    await soon(task)
    assert await bench.order(1) == ["a"]


async def _end_the_doomed(bench: Bench, job_id: str) -> None:
    """Fail a doomed job as the engine does, where the storage has not failed it already."""
    if await bench.state(job_id) is not State.FAILED:
        job = await bench.take(worker="w2")
        assert job.spec.id == job_id
        assert job.doom, f"{job_id!r} stalled too often and was handed out to run again"
        await bench.fail(job, job.doom.reason)
    assert await bench.state(job_id) is State.FAILED


@check()
async def a_job_that_stalls_too_often_fails_without_running_again(bench: Bench) -> None:
    await bench.add("a")
    assert not (await bench.stall((await bench.take()).lease, max_stalls=1)).doomed
    second = await bench.take(worker="w2")
    assert second.doom is None
    assert list((await bench.stall(second.lease, max_stalls=1)).doomed) == ["a"]
    await _end_the_doomed(bench, "a")
    assert not (await bench.claim()).jobs
    assert await bench.told(EventKind.FAILED) == ["a"]


@check()
async def no_stall_is_forgiven_where_none_is_allowed(bench: Bench) -> None:
    await bench.add("a", reply=True)
    reaped = await bench.stall((await bench.take()).lease, max_stalls=0)
    assert (list(reaped.stalled), list(reaped.doomed)) == ([], ["a"])
    await _end_the_doomed(bench, "a")
    ending = await bench.ending("a")
    assert ending.kind is EndingKind.FAILED
    assert "stall" in str(ending.failure).lower()


@check()
async def only_one_caller_reaps_per_interval_and_the_others_learn_when(bench: Bench) -> None:
    first = await bench.storage.reap(bench.queue, 1, 60_000)
    assert first.next_in_ms > 0
    await bench.add("a")
    await bench.claim(lease_ms=2_000)
    await bench.rig.advance(2_001)
    second = await bench.storage.reap(bench.queue, 1, 60_000)
    assert (list(second.stalled), list(second.doomed)) == ([], [])
    assert 0 < second.next_in_ms <= 60_000
    assert await bench.state("a") is State.ACTIVE
    for _ in range(2):
        await bench.rig.advance(60_001)
        await bench.storage.reap(bench.queue, 1, 60_000)
    assert await bench.order(1) == ["a"]


@check()
async def a_renewed_lease_outlives_its_first_term(bench: Bench) -> None:
    await bench.add("a", "b")
    kept, left = await bench.take_many(2)
    await bench.rig.advance(LEASE_MS - 5_000)
    renewal = await bench.storage.renew(bench.queue, [kept.lease], LEASE_MS)
    assert (list(renewal.lost), list(renewal.cancelled)) == ([], [])
    assert list((await bench.stall(left.lease)).stalled) == ["b"]
    assert await bench.state("a") is State.ACTIVE
    assert await bench.answer(Completed(lease=kept.lease, result=b"1")) == DONE


@check()
async def a_renewal_whose_reply_was_lost_holds(bench: Bench) -> None:
    await bench.add("a", "b")
    kept, left = await bench.take_many(2)
    await bench.rig.advance(LEASE_MS - 5_000)
    renew = bench.storage.renew
    await bench.unheard("renew", lambda: bench.storage.renew(bench.queue, [kept.lease], LEASE_MS))
    await bench.stall(left.lease)
    assert await bench.state("a") is State.ACTIVE
    assert not (await renew(bench.queue, [kept.lease], LEASE_MS)).lost


@check()
async def renew_reports_the_leases_that_are_gone(bench: Bench) -> None:
    await bench.add("a", "b", "c")
    lost, done, held = await bench.take_many(3)
    await bench.complete(done)
    await bench.rig.advance(LEASE_MS - 5_000)
    await bench.storage.renew(bench.queue, [held.lease], LEASE_MS)
    await bench.stall(lost.lease)
    await bench.take(worker="w2")
    nobody = Lease(job_id="nobody", token="t", attempt=1)
    leases = [held.lease, nobody, lost.lease, done.lease]
    renewal = await bench.storage.renew(bench.queue, leases, LEASE_MS)
    assert list(renewal.lost) == [nobody, lost.lease, done.lease]


@check()
async def renew_tells_an_old_lease_of_a_job_from_its_new_one(bench: Bench) -> None:
    await bench.add("a")
    old = await bench.take()
    await bench.stall(old.lease)
    new = await bench.take()
    renewal = await bench.storage.renew(bench.queue, [old.lease, new.lease], LEASE_MS)
    assert list(renewal.lost) == [old.lease]
    await bench.storage.cancel(bench.queue, ["a"], running=True)
    renewal = await bench.storage.renew(bench.queue, [old.lease, new.lease], LEASE_MS)
    assert list(renewal.cancelled) == [new.lease]


@check()
async def a_repeated_claim_restarts_the_leases_it_returns(bench: Bench) -> None:
    await bench.add("a")
    wish = bench.wish()
    await bench.unheard("claim", lambda: bench.storage.claim(bench.queue, wish))
    await bench.rig.advance(LEASE_MS - 100)
    (job,) = (await bench.storage.claim(bench.queue, wish)).jobs
    await bench.rig.advance(LEASE_MS - 100)
    for _ in range(2):
        reaped = await bench.storage.reap(bench.queue, 1, REAP_MS)
        assert not reaped.stalled, "the lease ran from the lost claim, not from its repeat"
        await bench.storage.renew(bench.queue, [job.lease], LEASE_MS)
        await bench.rig.advance(REAP_MS + 1)
    assert (await bench.complete(job)).answers[0].kind is AnswerKind.DONE


async def _lose_lease(bench: Bench) -> tuple[Claimed, Claimed]:
    """Let one worker lose its job to another."""
    await bench.add("a", terms=Terms(attempts=3))
    old = await bench.take(worker="w1")
    await bench.stall(old.lease)
    return old, await bench.take(worker="w2")


@check()
async def settling_under_a_lost_lease_changes_nothing(bench: Bench) -> None:
    old, _new = await _lose_lease(bench)
    before = await bench.record("a")
    cursor = await bench.storage.cursor(bench.queue)
    for outcome in _every_outcome(old.lease):
        assert await bench.answer(outcome) == LOST, f"{type(outcome).__name__} was accepted"
        assert await bench.record("a") == before, f"{type(outcome).__name__} changed the job"
    touched = [event for event in await bench.events(cursor) if event.job_id == "a"]
    assert touched == []


@check()
async def the_new_owner_settles_after_the_old_one_was_refused(bench: Bench) -> None:
    old, new = await _lose_lease(bench)
    assert await bench.answer(Completed(lease=old.lease, result=b'"old"')) == LOST
    assert await bench.answer(Completed(lease=new.lease, result=b'"new"')) == DONE
    assert (await bench.known("a")).result == b'"new"'


@check()
async def a_late_owner_does_not_overwrite_the_result_of_the_new_one(bench: Bench) -> None:
    old, new = await _lose_lease(bench)
    assert await bench.answer(Completed(lease=new.lease, result=b'"new"')) == DONE
    for outcome in _every_outcome(old.lease):
        assert await bench.answer(outcome) == LOST
    record = await bench.known("a")
    assert (record.state, record.result) == (State.COMPLETED, b'"new"')
    assert await bench.told(EventKind.COMPLETED) == ["a"]


@check()
async def a_stalled_job_that_waits_is_not_ended_by_its_old_owner(bench: Bench) -> None:
    await bench.add("a")
    old = await bench.take()
    await bench.stall(old.lease)
    assert await bench.answer(Completed(lease=old.lease, result=b"1")) == LOST
    assert await bench.state("a") is State.WAITING
    assert (await bench.known("a")).result is None


@check()
async def a_lapsed_lease_nobody_noticed_settles_wholly_or_not_at_all(bench: Bench) -> None:
    await bench.add("a")
    job = await bench.take()
    await bench.rig.lapse(bench.queue, job.lease)
    answer = await bench.answer(Completed(lease=job.lease, result=b"1"))
    record = await bench.known("a")
    done = (record.state is State.COMPLETED, record.result == b"1")
    assert done == ((True, True) if answer == DONE else (False, False))
    assert await bench.told(EventKind.COMPLETED) == (["a"] if answer == DONE else [])


@check()
async def a_wrong_token_settles_nothing(bench: Bench) -> None:
    await bench.add("a")
    job = await bench.take()
    forged = Lease(job_id="a", token="forged", attempt=1, note=job.lease.note)
    assert await bench.answer(Completed(lease=forged, result=b'"forged"')) == LOST
    assert await bench.state("a") is State.ACTIVE
    assert await bench.answer(Completed(lease=job.lease, result=b'"own"')) == DONE
    assert (await bench.known("a")).result == b'"own"'


@check()
async def a_settle_of_a_job_that_is_gone_is_told_so(bench: Bench) -> None:
    await bench.add("a")
    job = await bench.take()
    await bench.stall(job.lease)
    await bench.storage.remove(bench.queue, ["a"])
    for outcome in _every_outcome(job.lease):
        assert await bench.answer(outcome) == GONE
    assert await bench.state("a") is None
    assert not (await bench.claim()).jobs


@check()
async def a_lost_owner_does_not_end_another_job_of_the_same_id(bench: Bench) -> None:
    await bench.add("a")
    old = await bench.take()
    await bench.stall(old.lease)
    await bench.storage.cancel(bench.queue, ["a"])
    await bench.add("a", payload=b'"another"')
    for outcome in _every_outcome(old.lease):
        assert await bench.answer(outcome) == LOST, f"{type(outcome).__name__} was accepted"
    assert await bench.state("a") is State.WAITING
    new = await bench.take(worker="w2")
    for outcome in _every_outcome(old.lease):
        assert await bench.answer(outcome) == LOST, f"{type(outcome).__name__} was accepted"
    assert await bench.answer(Completed(lease=new.lease, result=b"2")) == DONE


async def _settle_twice(bench: Bench, make: Callable[[Lease], Outcome]) -> None:
    """Lose the reply to a settle, repeat it, and see it recognised without a second effect."""
    await bench.add("a", terms=Terms(attempts=3))
    outcome = make((await bench.take()).lease)
    await bench.unheard("settle", lambda: bench.settle(outcome))
    record = await bench.record("a")
    seen = await bench.kinds()
    assert await bench.answer(outcome) == DONE, "our own settle was not recognised"
    assert await bench.record("a") == record, "the repeated settle took effect again"
    told = [kind for kind in await bench.kinds() if kind != EventKind.DRAINED]
    assert told == [kind for kind in seen if kind != EventKind.DRAINED]


@check()
async def a_repeated_completion_is_recognised(bench: Bench) -> None:
    await _settle_twice(bench, lambda lease: Completed(lease=lease, result=b"1"))


@check()
async def a_repeated_failure_is_recognised(bench: Bench) -> None:
    await _settle_twice(bench, lambda lease: Failed(lease=lease, failure=BOOM))


@check()
async def a_repeated_retry_is_recognised(bench: Bench) -> None:
    await _settle_twice(bench, lambda lease: Retried(lease=lease, failure=BOOM, delay_ms=0))


@check()
async def a_repeated_delayed_retry_is_recognised(bench: Bench) -> None:
    await _settle_twice(bench, lambda lease: Retried(lease=lease, failure=BOOM, delay_ms=5_000))


@check()
async def a_repeated_postponement_is_recognised(bench: Bench) -> None:
    await _settle_twice(bench, lambda lease: Postponed(lease=lease, delay_ms=5_000))


@check()
async def a_repeated_release_is_recognised(bench: Bench) -> None:
    await _settle_twice(bench, lambda lease: Released(lease=lease))


@check()
async def a_repeated_settle_is_recognised_after_another_worker_took_the_job(bench: Bench) -> None:
    for number, outcome in enumerate(_every_outcome(Lease(job_id="-", token="-", attempt=1))[2:]):
        job_id = f"job-{number}"
        await bench.add(job_id, terms=Terms(attempts=3))
        own = _with_lease(outcome, (await bench.take(worker="w1")).lease)
        await bench.unheard("settle", partial(bench.settle, own))
        await bench.rig.advance(5_001)
        other = await bench.take(worker="w2")
        assert await bench.answer(own) == DONE, f"{type(own).__name__} was not recognised"
        assert await bench.state(job_id) is State.ACTIVE
        assert await bench.answer(Completed(lease=other.lease, result=b"2")) == DONE


def _with_lease(outcome: Outcome, lease: Lease) -> Outcome:
    return next(one for one in _every_outcome(lease) if type(one) is type(outcome))


@check(feature=Feature.KEEP_COUNT)
async def a_repeated_completion_of_a_job_not_kept_is_not_called_lost(bench: Bench) -> None:
    await bench.add("a", terms=Terms(keep_completed=KEEP_NONE))
    done = Completed(lease=(await bench.take()).lease, result=b"1")
    await bench.unheard("settle", lambda: bench.settle(done))
    answer = await bench.answer(done)
    assert answer.kind in {AnswerKind.DONE, AnswerKind.GONE}


@check()
async def an_old_attempt_does_not_end_a_new_one_under_the_same_token(bench: Bench) -> None:
    await bench.add("a", terms=Terms(attempts=3))
    wish = bench.wish()
    (first,) = (await bench.storage.claim(bench.queue, wish)).jobs
    retried = Retried(lease=first.lease, failure=BOOM, delay_ms=0)
    assert await bench.answer(retried) == DONE
    (second,) = (await bench.storage.claim(bench.queue, wish)).jobs
    answer = await bench.answer(retried)
    assert answer.kind in {AnswerKind.DONE, AnswerKind.LOST}
    record = await bench.known("a")
    assert (record.state, record.attempts_made) == (State.ACTIVE, 1)
    assert await bench.answer(Completed(lease=second.lease, result=b"2")) == DONE


@check()
async def a_job_cancelled_while_it_ran_ends_as_cancelled(bench: Bench) -> None:
    await bench.add("a", reply=True)
    job = await bench.take()
    await bench.storage.cancel(bench.queue, ["a"], running=True)
    failure = Failure(kind=CANCELLED, reason="as asked")
    assert await bench.answer(Failed(lease=job.lease, failure=failure)) == DONE
    assert await bench.state("a") is State.FAILED
    assert (await bench.ending("a")).kind is EndingKind.CANCELLED
