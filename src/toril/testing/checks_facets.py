"""Check the optional abilities: notes under a lease, edits, limits."""

from __future__ import annotations

from toril.errors import EventsTrimmed
from toril.event import Cursor, Event, EventKind
from toril.job import State, Terms
from toril.outcome import DONE, GONE, LOST, Completed, Lease
from toril.storage.protocol import Edits, Feature, Limits, Notes, Rate
from toril.testing.suite import Bench, check, error_of, soon

LATER = Terms(delay_ms=60_000)
LONG_MS = 600_000


@check(facet=Notes)
async def progress_is_recorded_and_told(bench: Bench) -> None:
    await bench.add("a")
    job = await bench.take()
    for note in (b'{"done":1}', b"75"):
        answers = await bench.notes.progress(bench.queue, [(job.lease, note)])
        assert list(answers) == [DONE]
        assert (await bench.known("a")).progress == note
    told = [event for event in await bench.events() if event.kind is EventKind.PROGRESS]
    assert [(event.job_id, event.value) for event in told] == [("a", {"done": 1}), ("a", 75)]


@check(facet=Notes)
async def notes_on_a_job_past_its_keep_time_are_answered_gone(bench: Bench) -> None:
    await bench.add("a", terms=Terms(result_ttl_ms=1_000))
    job = await bench.take()
    await bench.complete(job)
    await bench.rig.advance(2_000)
    assert list(await bench.notes.progress(bench.queue, [(job.lease, b"1")])) == [GONE]
    assert list(await bench.notes.log(bench.queue, [(job.lease, "late")])) == [GONE]


@check(facet=Notes)
async def progress_outlives_the_end_of_the_job(bench: Bench) -> None:
    await bench.add("a")
    job = await bench.take()
    await bench.notes.progress(bench.queue, [(job.lease, b"100")])
    await bench.complete(job)
    assert (await bench.known("a")).progress == b"100"


@check(facet=Notes)
async def a_lost_owner_writes_neither_progress_nor_logs(bench: Bench) -> None:
    await bench.add("a")
    old = await bench.take(worker="w1")
    await bench.stall(old.lease)
    new = await bench.take(worker="w2")
    await bench.notes.progress(bench.queue, [(new.lease, b'"new"')])
    cursor = await bench.storage.cursor(bench.queue)
    assert list(await bench.notes.progress(bench.queue, [(old.lease, b'"old"')])) == [LOST]
    assert list(await bench.notes.log(bench.queue, [(old.lease, "from the old owner")])) == [LOST]
    assert (await bench.known("a")).progress == b'"new"'
    assert list(await bench.notes.logs(bench.queue, "a")) == []
    assert await bench.told(EventKind.PROGRESS, cursor) == []


@check(facet=Notes)
async def notes_after_the_end_of_the_attempt_write_nothing(bench: Bench) -> None:
    await bench.add("a")
    job = await bench.take()
    await bench.complete(job)
    (progress,) = await bench.notes.progress(bench.queue, [(job.lease, b'"late"')])
    (line,) = await bench.notes.log(bench.queue, [(job.lease, "late")])
    assert DONE not in (progress, line)
    assert (await bench.known("a")).progress is None
    assert list(await bench.notes.logs(bench.queue, "a")) == []


@check(facet=Notes)
async def notes_of_a_job_that_is_gone_are_told_so(bench: Bench) -> None:
    nobody = Lease(job_id="nobody", token="t", attempt=1)
    await bench.add("a")
    job = await bench.take()
    answers = await bench.notes.progress(bench.queue, [(nobody, b"1"), (job.lease, b"1")])
    assert list(answers) == [GONE, DONE]
    lines = await bench.notes.log(bench.queue, [(job.lease, "here"), (nobody, "there")])
    assert list(lines) == [DONE, GONE]
    assert list(await bench.notes.logs(bench.queue, "nobody")) == []


@check(facet=Notes)
async def logs_are_read_in_pages_oldest_first(bench: Bench) -> None:
    await bench.add("a")
    job = await bench.take()
    lines = [f"line {number} – ü" for number in range(5)]
    await bench.notes.log(bench.queue, [(job.lease, line) for line in lines])
    assert list(await bench.notes.logs(bench.queue, "a")) == lines
    assert list(await bench.notes.logs(bench.queue, "a", 1, 3)) == lines[1:3]
    assert list(await bench.notes.logs(bench.queue, "a", 3)) == lines[3:]
    assert list(await bench.notes.logs(bench.queue, "a", 9, 12)) == []
    await bench.complete(job)
    assert list(await bench.notes.logs(bench.queue, "a")) == lines


@check(facet=Notes)
async def only_the_newest_log_lines_are_kept(bench: Bench) -> None:
    await bench.add("a", terms=Terms(keep_logs=3))
    job = await bench.take()
    for number in range(7):
        await bench.notes.log(bench.queue, [(job.lease, f"line {number}")])
    assert list(await bench.notes.logs(bench.queue, "a")) == ["line 4", "line 5", "line 6"]


@check(facet=Notes)
async def the_logs_of_a_removed_job_do_not_pass_to_the_next_of_its_id(bench: Bench) -> None:
    await bench.add("a")
    job = await bench.take()
    await bench.notes.log(bench.queue, [(job.lease, "old")])
    await bench.notes.progress(bench.queue, [(job.lease, b"50")])
    await bench.complete(job)
    await bench.storage.remove(bench.queue, ["a"])
    await bench.add("a")
    assert list(await bench.notes.logs(bench.queue, "a")) == []
    assert (await bench.known("a")).progress is None


@check(facet=Edits)
async def a_promoted_job_starts_now(bench: Bench) -> None:
    await bench.add("a", terms=LATER)
    await bench.add("urgent", terms=Terms(delay_ms=60_000, priority=4))
    await bench.add("b")
    ids = ["a", "b", "nobody", "urgent"]
    assert list(await bench.edits.promote(bench.queue, ids)) == [True, False, False, True]
    assert await bench.state("a") is State.WAITING
    assert await bench.state("urgent") is State.PRIORITIZED
    assert (await bench.storage.counts(bench.queue)).delayed == 0
    assert await bench.order(3) == ["b", "a", "urgent"]
    await bench.rig.advance(60_001)
    assert not (await bench.claim()).jobs, "the old delay started the job a second time"


@check(facet=Edits)
async def a_promotion_wakes_the_waiting(bench: Bench) -> None:
    await bench.add("a", terms=LATER)
    task = await bench.spawn(lambda: bench.storage.wait([bench.queue], LONG_MS))
    await bench.edits.promote(bench.queue, ["a"])
    await soon(task)
    assert await bench.order(1) == ["a"]


@check(facet=Edits)
async def a_new_priority_means_a_new_place(bench: Bench) -> None:
    for job_id, priority in [("a", 5), ("b", 3), ("c", 4)]:
        await bench.add(job_id, terms=Terms(priority=priority))
    await bench.add("plain")
    edits = bench.edits
    assert list(await edits.reprioritize(bench.queue, ["a", "nobody"], 1)) == [True, False]
    assert list(await edits.reprioritize(bench.queue, ["plain"], 9)) == [True]
    assert (await bench.known("a")).spec.terms.priority == 1
    assert await bench.state("plain") is State.PRIORITIZED
    assert await bench.order(4) == ["a", "b", "c", "plain"]
    assert list(await edits.reprioritize(bench.queue, ["a"], 2)) == [False]


@check(facet=Edits)
async def a_job_that_loses_its_priority_waits_in_the_plain_line(bench: Bench) -> None:
    await bench.add("a", "b", terms=Terms(priority=5))
    assert list(await bench.edits.reprioritize(bench.queue, ["b"], 0)) == [True]
    counts = await bench.storage.counts(bench.queue)
    assert (counts.waiting, counts.prioritized) == (1, 1)
    assert await bench.order(2) == ["b", "a"]


@check(facet=Edits)
async def a_delayed_job_keeps_its_time_under_a_new_priority(bench: Bench) -> None:
    await bench.add("a", terms=LATER)
    due_ms = (await bench.known("a")).due_ms
    assert list(await bench.edits.reprioritize(bench.queue, ["a"], 2)) == [True]
    record = await bench.known("a")
    assert (record.state, record.due_ms) == (State.DELAYED, due_ms)
    await bench.rig.advance(60_001)
    await bench.add("b", terms=Terms(priority=1))
    assert await bench.order(2) == ["b", "a"]


@check(facet=Edits)
async def a_rescheduled_job_starts_at_its_new_time(bench: Bench) -> None:
    await bench.add("sooner", "later", terms=LATER)
    await bench.add("plain")
    ids = ["sooner", "plain", "nobody"]
    answers = await bench.edits.reschedule(bench.queue, ids, 5_000)
    assert list(answers) == [True, False, False]
    assert list(await bench.edits.reschedule(bench.queue, ["later"], 90_000)) == [True]
    await bench.rig.advance(5_001)
    assert await bench.order(2) == ["plain", "sooner"]
    await bench.rig.advance(60_000)
    assert not (await bench.claim()).jobs, "the old time started the job"
    await bench.rig.advance(30_000)
    assert await bench.order(1) == ["later"]


@check(facet=Edits)
async def a_pending_job_can_be_given_other_data(bench: Bench) -> None:
    await bench.add("a", "b", payload=b'"old"')
    assert await bench.edits.replace(bench.queue, "a", b'"new"')
    assert not await bench.edits.replace(bench.queue, "nobody", b'"new"')
    job = await bench.take()
    assert (job.spec.id, job.spec.payload) == ("a", b'"new"')
    assert not await bench.edits.replace(bench.queue, "a", b'"too late"')
    assert (await bench.known("a")).spec.payload == b'"new"'
    assert (await bench.known("b")).spec.payload == b'"old"'


@check(facet=Edits)
async def a_revived_job_runs_again_as_if_new(bench: Bench) -> None:
    await bench.run("done")
    await bench.add("broken", terms=Terms(priority=2))
    await bench.fail(await bench.take())
    await bench.add("waiting")
    ids = ["broken", "done", "waiting", "nobody"]
    assert list(await bench.edits.revive(bench.queue, ids)) == [True, True, False, False]
    record = await bench.known("broken")
    assert (record.state, record.attempts_made) == (State.PRIORITIZED, 0)
    assert (record.failure, record.finished_ms) == (None, None)
    assert (await bench.known("done")).result is None
    assert await bench.order(3) == ["waiting", "done", "broken"]


@check(facet=Edits)
async def a_revived_job_may_keep_its_attempts(bench: Bench) -> None:
    await bench.add("a")
    await bench.fail(await bench.take())
    assert list(await bench.edits.revive(bench.queue, ["a"], reset_attempts=False)) == [True]
    job = await bench.take()
    assert (job.attempts_made, job.lease.attempt) == (1, 2)


@check(facet=Edits)
async def a_revived_job_is_not_dropped_at_its_old_keep_time(bench: Bench) -> None:
    await bench.run("a", terms=Terms(result_ttl_ms=5_000))
    assert list(await bench.edits.revive(bench.queue, ["a"])) == [True]
    await bench.rig.advance(6_000)
    assert await bench.state("a") is State.WAITING
    assert await bench.order(1) == ["a"]


@check(facet=Edits)
async def a_late_settle_does_not_end_a_revived_job(bench: Bench) -> None:
    await bench.add("a")
    job = await bench.take()
    await bench.complete(job, b'"first"')
    await bench.edits.revive(bench.queue, ["a"])
    await bench.settle(Completed(lease=job.lease, result=b'"late"'))
    assert await bench.state("a") is State.WAITING
    assert (await bench.known("a")).result is None


@check(facet=Limits)
async def a_concurrency_limit_holds_over_all_workers(bench: Bench) -> None:
    await bench.limits.tune(bench.queue, concurrency=2)
    await bench.add("a", "b", "c", "d")
    first = await bench.take(worker="w1")
    await bench.take(worker="w2")
    assert not (await bench.claim(5, worker="w3")).jobs, "more jobs run than the limit allows"
    settlement = await bench.settle(Completed(lease=first.lease, result=b"1"), refill=bench.wish(5))
    assert [job.spec.id for job in settlement.batch.jobs] == ["c"]
    await bench.limits.tune(bench.queue, concurrency=None)
    assert await bench.order(1) == ["d"]


@check(facet=Limits)
async def wait_is_woken_when_a_limit_gives_room(bench: Bench) -> None:
    await bench.limits.tune(bench.queue, concurrency=1)
    await bench.add("a", "b")
    job = await bench.take()
    task = await bench.spawn(lambda: bench.storage.wait([bench.queue], LONG_MS))
    await bench.complete(job)
    await soon(task)
    assert await bench.order(1) == ["b"]


@check(facet=Limits, feature=Feature.RATE_LIMIT)
async def a_rate_limit_of_the_queue_holds_back_the_rest_of_its_window(bench: Bench) -> None:
    await bench.limits.tune(bench.queue, rate=Rate(max=2, duration_ms=10_000))
    await bench.add("a", "b", "c", "d")
    assert await bench.order(2) == ["a", "b"]
    batch = await bench.claim(5)
    assert not batch.jobs
    assert 0 < batch.limited_for_ms <= 10_000
    await bench.rig.advance(batch.limited_for_ms + 1)
    assert await bench.order(2) == ["c", "d"]


@check(facet=Limits, feature=Feature.RATE_LIMIT)
async def wait_is_not_late_for_the_end_of_a_rate_limit(bench: Bench) -> None:
    await bench.limits.tune(bench.queue, rate=Rate(max=1, duration_ms=10_000))
    await bench.add("a", "b")
    await bench.take()
    task = await bench.spawn(lambda: bench.storage.wait([bench.queue], LONG_MS))
    await bench.rig.advance(10_001)
    await soon(task)
    assert await bench.order(1) == ["b"]


@check(feature=Feature.RATE_LIMIT)
async def a_rate_limit_of_the_claim_holds_over_all_workers(bench: Bench) -> None:
    rate = Rate(max=1, duration_ms=10_000)
    await bench.add("a", "b")
    assert len((await bench.claim(5, worker="w1", rate=rate)).jobs) == 1
    batch = await bench.claim(5, worker="w2", rate=rate)
    assert not batch.jobs
    assert 0 < batch.limited_for_ms <= 10_000
    await bench.rig.advance(batch.limited_for_ms + 1)
    assert len((await bench.claim(5, worker="w2", rate=rate)).jobs) == 1


@check(feature=Feature.RATE_LIMIT)
async def a_repeated_claim_does_not_count_twice_against_the_rate(bench: Bench) -> None:
    rate = Rate(max=2, duration_ms=10_000)
    await bench.add("a", "b")
    wish = bench.wish(1, rate=rate)
    for _ in range(3):
        (job,) = (await bench.storage.claim(bench.queue, wish)).jobs
        assert job.spec.id == "a"
    assert [job.spec.id for job in (await bench.claim(1, rate=rate)).jobs] == ["b"]


async def _fill(bench: Bench, events_kept: int) -> list[Event]:
    """Let events fall off while a reader that keeps up sees each of them."""
    await bench.limits.tune(bench.queue, events_kept=events_kept)
    seen: list[Event] = []
    after = Cursor.START
    for number in range(60):
        await bench.add(*(f"job-{number}-{part}" for part in range(5)))
        seen += await bench.events(after)
        after = seen[-1].cursor
    return seen


@check(facet=Limits)
async def a_read_of_trimmed_events_raises_and_tells_how_many_are_gone(bench: Bench) -> None:
    seen = await _fill(bench, events_kept=50)
    storage = bench.storage
    gap = await error_of(EventsTrimmed, lambda: storage.events(bench.queue, Cursor.START))
    rest = await bench.events(gap.resume)
    assert rest == seen[len(seen) - len(rest) :]
    assert len(rest) >= 50, "fewer events are kept than were asked for"
    assert gap.count == len(seen) - len(rest)


@check(facet=Limits)
async def a_range_that_was_trimmed_away_whole_is_not_called_empty(bench: Bench) -> None:
    seen = await _fill(bench, events_kept=50)
    storage, until = bench.storage, seen[9].cursor
    gap = await error_of(EventsTrimmed, lambda: storage.events(bench.queue, Cursor.START, until))
    assert gap.count == 10
    assert list(await storage.events(bench.queue, gap.resume, until)) == []
