"""Many jobs handed in by id: each is answered as `enqueue` would, in few calls."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from tests.queue.conftest import (
    AnyQueue,
    MakeQueue,
    RecordingStorage,
    Work,
    echo,
    fail,
    state_is,
    until,
)
from toril import (
    Dedup,
    EnqueueResult,
    InvalidInput,
    InvalidName,
    InvalidOption,
    InvalidPayload,
    JobOptions,
    NewJob,
    State,
)


def new(job_id: str | None, data: Any = None, options: JobOptions | None = None) -> NewJob[Any]:
    """A job as a caller describes it."""
    return NewJob(name="send", data=data, id=job_id, options=options)


async def test_each_of_many_is_answered_as_if_it_came_alone(queue: AnyQueue, work: Work) -> None:
    worker = await work(queue, echo)
    assert await queue.enqueue_and_wait("done", {"n": 0}) == {"n": 0}
    await worker.stop()
    await queue.enqueue("there", 1)
    found = await queue.enqueue_many([new("fresh", 1), new("there", 2), new("done", 3)])
    assert list(found) == [
        EnqueueResult(id="fresh", status="queued"),
        EnqueueResult(id="there", status="duplicate", existing_state=State.WAITING),
        EnqueueResult(
            id="done", status="completed", existing_state=State.COMPLETED, result={"n": 0}
        ),
    ]
    assert (await queue.get_job_counts()).waiting == 2


async def test_an_id_that_comes_twice_is_one_job(queue: AnyQueue) -> None:
    first, second = await queue.enqueue_many([new("a", 1), new("a", 2)])
    assert (first.status, second.status) == ("queued", "duplicate")
    job = await queue.get_job("a")
    assert job is not None
    assert job.data == 1


async def test_ids_are_made_where_none_is_given(queue: AnyQueue) -> None:
    found = await queue.enqueue_many(new(None, n) for n in range(3))
    assert [one.status for one in found] == ["queued"] * 3
    jobs = [await queue.get_job(one.id) for one in found]
    assert [job.data for job in jobs if job is not None] == [0, 1, 2]


@pytest.mark.parametrize("on_failed", ["requeue", "keep"])
async def test_failed_ids_are_queued_anew_unless_they_are_kept(
    queue: AnyQueue, work: Work, on_failed: Any
) -> None:
    worker = await work(queue, fail)
    await queue.enqueue("a", 1, attempts=1)
    await until(lambda: state_is(queue, "a", State.FAILED))
    await worker.stop()
    found = await queue.enqueue_many([new("a", 2), new("b", 2)], on_failed=on_failed)
    told = ("queued", "queued") if on_failed == "requeue" else ("duplicate", "queued")
    assert (found[0].status, found[1].status) == told
    job = await queue.get_job("a")
    assert job is not None
    assert job.data == (2 if on_failed == "requeue" else 1)


async def test_results_are_kept_as_those_of_enqueue(queue: AnyQueue) -> None:
    await queue.enqueue("alone", 1)
    await queue.enqueue_many([new("plain", 1), new("own", 1, JobOptions(delay=5))])
    alone, plain, own = await queue.storage.get(queue.name, ["alone", "plain", "own"])
    assert alone is not None
    assert plain is not None
    assert own is not None
    assert plain.spec.terms == alone.spec.terms
    assert own.spec.terms.keep_completed == alone.spec.terms.keep_completed
    assert own.spec.terms.delay_ms == 5000


async def test_more_than_one_call_carries_are_all_answered(queue: AnyQueue) -> None:
    await queue.enqueue("j10400", None)
    found = await queue.enqueue_many(new(f"j{n}", n) for n in range(10_500))
    assert [one.id for one in found] == [f"j{n}" for n in range(10_500)]
    assert [one.id for one in found if one.status != "queued"] == ["j10400"]
    assert (await queue.get_job_counts()).waiting == 10_500


async def test_a_dedup_key_that_is_taken_answers_with_its_job(queue: AnyQueue) -> None:
    daily = JobOptions(dedup=Dedup("daily"))
    first, second = await queue.enqueue_many([new("a", 1, daily), new("b", 2, daily)])
    assert first == EnqueueResult(id="a", status="queued")
    assert second == EnqueueResult(id="a", status="duplicate", existing_state=State.WAITING)


async def test_a_thousand_go_in_one_call_and_none_in_none(
    make_queue: MakeQueue, recording: RecordingStorage
) -> None:
    queue = make_queue(on=recording)
    assert list(await queue.enqueue_many([])) == []
    assert recording.calls.count("enqueue") == 0
    await queue.enqueue_many(new(f"j{n}", n) for n in range(1_000))
    assert recording.calls.count("enqueue") == 1


@pytest.mark.parametrize(
    ("jobs", "changes", "error", "words"),
    [
        ([new("a"), new("")], {}, InvalidName, "job id"),
        ([new("a"), new("b", {1, 2})], {}, InvalidPayload, "set"),
        ([new("a"), {"id": "b"}], {}, InvalidOption, r"jobs\[1\]"),
        ([new("a"), SimpleNamespace(data=1)], {}, InvalidOption, r"jobs\[1\]"),
        ([new("a")], {"on_failed": "drop"}, InvalidOption, "on_failed='drop'"),
        ([new("a")], {"on_failed": None}, InvalidOption, "on_failed=None"),
        ("ab", {}, InvalidOption, r"jobs\[0\]"),
        (new("a"), {}, InvalidOption, "give a list"),
        (None, {}, InvalidOption, "give a list"),
    ],
)
async def test_what_is_wrong_with_one_is_told_before_any_is_sent(
    make_queue: MakeQueue,
    recording: RecordingStorage,
    jobs: Any,
    changes: dict[str, Any],
    error: type[InvalidInput],
    words: str,
) -> None:
    queue = make_queue(on=recording)
    with pytest.raises(error, match=words):
        await queue.enqueue_many(jobs, **changes)
    assert recording.calls == []


async def test_duplicates_of_many_are_one_line_of_the_log(
    queue: AnyQueue, caplog: pytest.LogCaptureFixture
) -> None:
    await queue.enqueue_many([new("a"), new("b")])
    with caplog.at_level(logging.INFO, logger="toril"):
        await queue.enqueue_many([new("a"), new("b"), new("c")])
    (line,) = [one.getMessage() for one in caplog.records if "E11" in one.getMessage()]
    assert "2 of 3 jobs" in line
    assert "'a'" in line
