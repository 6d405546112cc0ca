"""Check changes to finished jobs that somebody saw a while ago."""

from __future__ import annotations

from toril.event import EventKind
from toril.job import State, Terms
from toril.storage.protocol import Ends, Seen
from toril.testing.suite import Bench, check


async def _seen(bench: Bench, job_id: str) -> Seen:
    finished_ms = (await bench.known(job_id)).finished_ms
    assert finished_ms is not None
    return Seen(id=job_id, finished_ms=finished_ms)


async def _failed(bench: Bench, job_id: str, terms: Terms | None = None) -> Seen:
    await bench.add(job_id, terms=terms)
    await bench.fail(await bench.take())
    return await _seen(bench, job_id)


@check(facet=Ends)
async def a_finished_job_is_discarded_with_its_events(bench: Bench) -> None:
    await bench.run("done")
    seen = [await _seen(bench, "done"), await _failed(bench, "broken")]
    before = await bench.storage.cursor(bench.queue)
    assert list(await bench.ends.discard(bench.queue, seen)) == [True, True]
    assert (await bench.storage.counts(bench.queue)).total == 0
    told = [event for event in await bench.events(before) if event.kind is EventKind.CLEANED]
    assert sum(event.count or 0 for event in told) == 2


@check(facet=Ends)
async def a_job_that_is_no_longer_as_it_was_seen_is_not_discarded(bench: Bench) -> None:
    again = await _failed(bench, "again")
    other = await _failed(bench, "other")
    await bench.rig.advance(10)
    await bench.storage.remove(bench.queue, ["again", "other"])
    await bench.add("again")
    await bench.run("other")
    nobody = Seen(id="nobody", finished_ms=other.finished_ms)
    answers = await bench.ends.discard(bench.queue, [again, other, nobody])
    assert list(answers) == [False, False, False]
    assert {await bench.state("again"), await bench.state("other")} == {
        State.WAITING,
        State.COMPLETED,
    }


@check(facet=Ends)
async def a_discarded_job_frees_its_id(bench: Bench) -> None:
    seen = await _failed(bench, "a")
    await bench.ends.discard(bench.queue, [seen])
    (receipt,) = await bench.add("a")
    assert receipt.created
    assert list(await bench.ends.discard(bench.queue, [seen])) == [False]
    assert await bench.state("a") is State.WAITING


@check(facet=Ends)
async def a_discard_whose_reply_was_lost_deletes_once(bench: Bench) -> None:
    seen = [await _failed(bench, "a"), await _failed(bench, "b")]
    await bench.unheard("discard", lambda: bench.ends.discard(bench.queue, seen[:1]))
    await bench.ends.discard(bench.queue, seen[:1])
    assert await bench.state("b") is State.FAILED
    assert (await bench.storage.get(bench.queue, ["a"]))[0] is None


@check(facet=Ends)
async def a_job_is_rerun_as_if_new_if_it_is_as_it_was_seen(bench: Bench) -> None:
    seen = await _failed(bench, "a", Terms(priority=2))
    assert list(await bench.ends.rerun(bench.queue, [seen])) == [True]
    record = await bench.known("a")
    assert (record.state, record.attempts_made) == (State.PRIORITIZED, 0)
    assert (record.failure, record.finished_ms) == (None, None)
    assert list(await bench.ends.rerun(bench.queue, [seen])) == [False]
    assert await bench.order(1) == ["a"]


@check(facet=Ends)
async def a_job_that_ended_anew_is_not_rerun(bench: Bench) -> None:
    seen = await _failed(bench, "a")
    assert list(await bench.ends.rerun(bench.queue, [seen])) == [True]
    await bench.rig.advance(10)
    await bench.complete(await bench.take())
    assert list(await bench.ends.rerun(bench.queue, [seen])) == [False]
    assert await bench.state("a") is State.COMPLETED


@check(facet=Ends)
async def many_are_answered_in_the_order_asked(bench: Bench) -> None:
    ids = [f"job-{number}" for number in range(260)]
    await bench.run(*ids)
    seen = [await _seen(bench, job_id) for job_id in ids[::2]]
    other = [Seen(id=job_id, finished_ms=1) for job_id in ids[1::2]]
    mixed = [one for pair in zip(seen, other, strict=True) for one in pair]
    assert list(await bench.ends.discard(bench.queue, mixed)) == [True, False] * 130
    assert (await bench.storage.counts(bench.queue)).completed == 130
