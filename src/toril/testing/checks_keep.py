"""Check how long finished jobs stay, and what a dedup key holds back."""

from __future__ import annotations

from typing import Final

from toril.event import EventKind
from toril.job import KEEP_NONE, Dedup, Keep, State, Terms
from toril.storage.protocol import Feature
from toril.testing.suite import Bench, check

MINUTE_MS = 60_000


@check()
async def a_result_without_a_keep_time_stays(bench: Bench) -> None:
    await bench.run("a", result=b'"mine"')
    await bench.rig.advance(100 * MINUTE_MS)
    assert (await bench.known("a")).result == b'"mine"'


@check()
async def a_result_is_readable_for_its_keep_time_and_gone_after(bench: Bench) -> None:
    await bench.run("a", terms=Terms(result_ttl_ms=MINUTE_MS), result=b'"mine"')
    await bench.rig.advance(MINUTE_MS - 2_000)
    assert (await bench.known("a")).result == b'"mine"', "the result went before its time"
    await bench.rig.advance(3_000)
    assert await bench.record("a") is None
    (receipt,) = await bench.add("a")
    assert receipt.created, "an expired result still holds its id"


@check()
async def the_keep_time_runs_from_the_end_of_the_job(bench: Bench) -> None:
    await bench.add("a", terms=Terms(result_ttl_ms=MINUTE_MS))
    await bench.rig.advance(2 * MINUTE_MS)
    await bench.complete(await bench.take())
    await bench.rig.advance(MINUTE_MS - 2_000)
    assert await bench.state("a") is State.COMPLETED


@check()
async def null_is_a_result(bench: Bench) -> None:
    await bench.run("a", result=b"null")
    record = await bench.known("a")
    assert (record.state, record.result) == (State.COMPLETED, b"null")
    assert (await bench.ending("a")).result == b"null"


@check()
async def keep_prolongs_and_shortens_the_life_of_a_result(bench: Bench) -> None:
    await bench.run("a", "b", terms=Terms(result_ttl_ms=MINUTE_MS))
    await bench.rig.advance(MINUTE_MS - 5_000)
    assert list(await bench.storage.keep(bench.queue, ["a"], 10 * MINUTE_MS)) == [True]
    await bench.rig.advance(9 * MINUTE_MS)
    assert await bench.state("a") is State.COMPLETED, "the first keep time still held"
    assert await bench.state("b") is None
    assert list(await bench.storage.keep(bench.queue, ["a"], 1_000)) == [True]
    await bench.rig.advance(2_000)
    assert await bench.state("a") is None


@check()
async def keep_without_a_time_keeps_for_good(bench: Bench) -> None:
    await bench.run("a", terms=Terms(result_ttl_ms=MINUTE_MS), result=b'"mine"')
    assert list(await bench.storage.keep(bench.queue, ["a"], None)) == [True]
    await bench.rig.advance(1000 * MINUTE_MS)
    assert (await bench.known("a")).result == b'"mine"'


@check()
async def keep_never_touches_another_job(bench: Bench) -> None:
    await bench.run("plain")
    await bench.run("own", "a", terms=Terms(result_ttl_ms=10 * MINUTE_MS))
    await bench.storage.keep(bench.queue, ["a"], 1_000)
    await bench.rig.advance(2_000)
    assert await bench.state("a") is None
    assert await bench.state("own") is State.COMPLETED
    assert await bench.state("plain") is State.COMPLETED
    await bench.run("later", terms=Terms(result_ttl_ms=1_000))
    await bench.rig.advance(5_000)
    assert await bench.state("own") is State.COMPLETED
    assert await bench.state("plain") is State.COMPLETED


@check()
async def keep_tells_which_jobs_were_there(bench: Bench) -> None:
    await bench.run("done")
    await bench.add("waiting")
    ids = ["nobody", "done", "waiting"]
    assert list(await bench.storage.keep(bench.queue, ids, MINUTE_MS)) == [False, True, False]
    await bench.rig.advance(2 * MINUTE_MS)
    assert await bench.state("waiting") is State.WAITING


@check(feature=Feature.KEEP_COUNT)
async def only_so_many_completed_jobs_stay_newest_first(bench: Bench) -> None:
    terms = Terms(keep_completed=Keep(count=2))
    for job_id in "abcd":
        await bench.run(job_id, terms=terms)
        await bench.rig.advance(10)
    left = [await bench.state(job_id) for job_id in "abcd"]
    assert left == [None, None, State.COMPLETED, State.COMPLETED]


@check(feature=Feature.KEEP_COUNT)
async def completed_and_failed_jobs_are_kept_apart(bench: Bench) -> None:
    terms = Terms(keep_completed=Keep(count=1), keep_failed=Keep(count=2))
    for number in range(3):
        await bench.run(f"done-{number}", terms=terms)
        await bench.add(f"broken-{number}", terms=terms)
        await bench.fail(await bench.take())
        await bench.rig.advance(10)
    counts = await bench.storage.counts(bench.queue)
    assert (counts.completed, counts.failed) == (1, 2)
    assert await bench.state("done-2") is State.COMPLETED
    assert await bench.state("broken-0") is None


@check(feature=Feature.KEEP_COUNT)
async def a_job_that_keeps_nothing_leaves_nothing(bench: Bench) -> None:
    await bench.run("a", terms=Terms(keep_completed=KEEP_NONE))
    await bench.add("b", terms=Terms(keep_failed=KEEP_NONE))
    await bench.fail(await bench.take())
    assert (await bench.storage.counts(bench.queue)).total == 0
    assert await bench.told(EventKind.COMPLETED) == ["a"]
    assert await bench.told(EventKind.FAILED) == ["b"]


@check(feature=Feature.KEEP_AGE)
async def finished_jobs_past_their_age_go_when_the_next_one_ends(bench: Bench) -> None:
    terms = Terms(keep_completed=Keep(age=60))
    await bench.run("old", terms=terms)
    await bench.add("broken")
    await bench.fail(await bench.take())
    await bench.rig.advance(MINUTE_MS - 5_000)
    assert await bench.state("old") is State.COMPLETED
    await bench.rig.advance(10_000)
    await bench.run("new", terms=terms)
    assert await bench.state("old") is None
    assert await bench.state("new") is State.COMPLETED
    assert await bench.state("broken") is State.FAILED


_A_B_A: Final = (("a", b"1"), ("b", b"2"), ("a", b"3"))


def _deduped(
    key: str,
    *,
    ttl: float | None = None,
    extend: bool = False,
    replace: bool = False,
    delay_ms: int = 0,
) -> Terms:
    dedup = Dedup(key, ttl=ttl, extend=extend, replace=replace)
    return Terms(dedup=dedup, delay_ms=delay_ms)


@check()
async def a_dedup_key_lets_one_job_live(bench: Bench) -> None:
    terms = _deduped("k")
    (first,) = await bench.add("a", terms=terms, payload=b'"first"')
    (second,) = await bench.add("b", terms=terms, payload=b'"second"')
    (other,) = await bench.add("c", terms=_deduped("other"))
    assert (first.created, second.created, other.created) == (True, False, True)
    assert (second.id, second.state, second.deduplicated) == ("a", State.WAITING, True)
    assert await bench.record("b") is None
    assert (await bench.known("a")).spec.payload == b'"first"'
    (told,) = [one for one in await bench.events() if one.kind is EventKind.DEDUPLICATED]
    assert told.job_id == "a"


@check()
async def a_dedup_key_holds_back_the_other_jobs_of_its_batch(bench: Bench) -> None:
    for holder, terms, state in (
        ("plain", _deduped("k"), State.WAITING),
        ("timed", _deduped("with a time", ttl=60), State.WAITING),
        ("later", _deduped("with a delay", delay_ms=5_000), State.DELAYED),
    ):
        first, second, third = await bench.add(holder, "b", "c", terms=terms)
        assert (first.created, second.created, third.created) == (True, False, False)
        for other in (second, third):
            assert (other.id, other.state, other.deduplicated) == (holder, state, True)
        assert await bench.record("b") is None


@check()
async def a_dedup_key_is_held_while_its_job_runs_and_free_when_it_ends(bench: Bench) -> None:
    terms = _deduped("k")
    for ended, following in [("a", "b"), ("b", "c")]:
        await bench.add(ended, terms=terms)
        job = await bench.take()
        (refused,) = await bench.add(following, terms=terms)
        assert (refused.created, refused.state) == (False, State.ACTIVE)
        await (bench.complete(job) if ended == "a" else bench.fail(job))
    (receipt,) = await bench.add("c", terms=terms)
    assert receipt.created, "the key of a finished job was not released"


@check()
async def a_dedup_key_is_free_when_its_job_is_cancelled_or_removed(bench: Bench) -> None:
    for terms in (_deduped("k"), _deduped("timed", ttl=600)):
        (first,) = await bench.add("a", terms=terms)
        await bench.storage.cancel(bench.queue, ["a"])
        (second,) = await bench.add("b", terms=terms)
        await bench.storage.remove(bench.queue, ["b"])
        (third,) = await bench.add("c", terms=terms)
        assert (first.created, second.created, third.created) == (True, True, True)
        await bench.storage.remove(bench.queue, ["c"])


@check()
async def a_dedup_key_with_a_time_is_free_when_the_time_is_up(bench: Bench) -> None:
    terms = _deduped("k", ttl=10)
    await bench.add("a", terms=terms)
    await bench.rig.advance(8_000)
    (refused,) = await bench.add("b", terms=terms)
    await bench.rig.advance(3_000)
    (receipt,) = await bench.add("b", terms=terms)
    assert (refused.created, receipt.created) == (False, True)
    assert await bench.state("a") is State.WAITING


@check()
async def a_dedup_key_with_a_time_outlives_its_job(bench: Bench) -> None:
    terms = _deduped("k", ttl=10)
    await bench.run("a", terms=terms)
    (refused,) = await bench.add("b", terms=terms)
    assert (refused.created, refused.deduplicated, refused.id) == (False, True, "a")
    await bench.rig.advance(11_000)
    (receipt,) = await bench.add("b", terms=terms)
    assert receipt.created


@check()
async def a_failed_job_is_not_queued_anew_while_its_own_key_holds(bench: Bench) -> None:
    terms = _deduped("k", ttl=10)
    await bench.add("a", terms=terms)
    await bench.fail(await bench.take())
    (refused,) = await bench.add("a", terms=terms, requeue_failed=True)
    assert (refused.created, refused.deduplicated, refused.state) == (False, True, State.FAILED)
    await bench.rig.advance(11_000)
    (receipt,) = await bench.add("a", terms=terms, requeue_failed=True)
    assert receipt.created


@check()
async def a_dedup_key_with_a_time_outlives_the_result_of_its_job(bench: Bench) -> None:
    dedup = Dedup("k", ttl=60)
    await bench.run("a", terms=Terms(dedup=dedup, result_ttl_ms=1_000))
    await bench.rig.advance(2_000)
    assert (await bench.storage.counts(bench.queue)).total == 0
    for job_id in ("b", "a"):
        (refused,) = await bench.add(job_id, terms=Terms(dedup=dedup))
        assert (refused.created, refused.id, refused.state) == (False, "a", None)
        assert refused.deduplicated
    assert (await bench.storage.counts(bench.queue)).total == 0


@check(feature=Feature.KEEP_COUNT)
async def a_dedup_key_held_for_a_job_not_kept_reports_no_state(bench: Bench) -> None:
    dedup = Dedup("k", ttl=10)
    await bench.run("a", terms=Terms(dedup=dedup, keep_completed=KEEP_NONE))
    (refused,) = await bench.add("b", terms=Terms(dedup=dedup))
    assert (refused.created, refused.id, refused.state) == (False, "a", None)


@check()
async def an_extended_dedup_key_starts_over_at_each_refused_job(bench: Bench) -> None:
    terms = _deduped("k", ttl=10, extend=True)
    await bench.add("a", terms=terms)
    for job_id in ("b", "c"):
        await bench.rig.advance(8_000)
        (refused,) = await bench.add(job_id, terms=terms)
        assert not refused.created, "the key was not extended"
    await bench.rig.advance(11_000)
    (receipt,) = await bench.add("d", terms=terms)
    assert receipt.created


@check()
async def a_replacing_dedup_key_drops_the_delayed_job_for_the_new_one(bench: Bench) -> None:
    terms = _deduped("k", replace=True, delay_ms=5_000)
    await bench.add("a", terms=terms)
    await bench.rig.advance(3_000)
    (receipt,) = await bench.add("b", terms=terms)
    assert (receipt.id, receipt.created) == ("b", True)
    assert await bench.record("a") is None
    await bench.rig.advance(3_000)
    assert not (await bench.claim()).jobs, "the replaced job's time still counted"
    await bench.rig.advance(2_001)
    assert await bench.order(1) == ["b"]


@check()
async def a_replacing_dedup_key_drops_the_delayed_job_of_its_own_batch(bench: Bench) -> None:
    terms = _deduped("k", replace=True, delay_ms=5_000)
    specs = [bench.spec(job_id, terms, payload=payload) for job_id, payload in _A_B_A]
    receipts = await bench.storage.enqueue(bench.queue, specs)
    assert [(one.id, one.created) for one in receipts] == [("a", True), ("b", True), ("a", True)]
    assert await bench.record("b") is None
    assert (await bench.known("a")).spec.payload == b"3"
    assert (await bench.storage.counts(bench.queue)).delayed == 1
    await bench.rig.advance(5_001)
    assert await bench.order(1) == ["a"]


@check()
async def a_job_that_was_replaced_may_be_handed_in_again_by_the_same_batch(bench: Bench) -> None:
    terms = _deduped("k", replace=True, delay_ms=5_000)
    await bench.add("a", terms=terms, payload=b"0")
    specs = [bench.spec(job_id, terms, payload=payload) for job_id, payload in _A_B_A[1:]]
    receipts = await bench.storage.enqueue(bench.queue, specs)
    assert [(one.id, one.created) for one in receipts] == [("b", True), ("a", True)]
    assert (await bench.known("a")).spec.payload == b"3"
    plain = [bench.spec("b", terms), bench.spec("a"), bench.spec("b")]
    receipts = await bench.storage.enqueue(bench.queue, plain)
    assert [one.created for one in receipts] == [True, True, False]
    assert [await bench.state(job_id) for job_id in "ab"] == [State.WAITING, State.DELAYED]


@check()
async def a_replaced_job_that_is_waited_for_comes_back_in_the_same_batch(bench: Bench) -> None:
    terms = _deduped("k", replace=True, delay_ms=5_000)
    specs = [bench.spec(job_id, terms, payload=payload, reply=True) for job_id, payload in _A_B_A]
    await bench.storage.enqueue(bench.queue, specs)
    await bench.rig.advance(100 * MINUTE_MS)
    counts = await bench.storage.counts(bench.queue)
    assert counts.delayed + counts.waiting == 1, "the word of its first end took it along"
    assert await bench.order(1) == ["a"]


@check()
async def a_replacing_dedup_key_spares_a_job_that_runs(bench: Bench) -> None:
    terms = _deduped("k", replace=True, delay_ms=1_000)
    await bench.add("a", terms=terms)
    await bench.rig.advance(1_001)
    await bench.take()
    (refused,) = await bench.add("b", terms=terms)
    assert (refused.created, refused.id, refused.state) == (False, "a", State.ACTIVE)


@check()
async def a_deduplicated_enqueue_repeated_after_a_lost_reply_is_still_ours(bench: Bench) -> None:
    spec = bench.spec("a", _deduped("k", ttl=10))
    await bench.unheard("enqueue", lambda: bench.storage.enqueue(bench.queue, [spec]))
    (receipt,) = await bench.storage.enqueue(bench.queue, [spec])
    assert (receipt.id, receipt.created, receipt.deduplicated) == ("a", True, False)
