"""Handing in by id: the answers, the defaults, the order, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.queue.conftest import (
    AnyQueue,
    Context,
    Gate,
    MakeQueue,
    RecordingStorage,
    Work,
    claim_one,
    echo,
    fail,
    state_is,
    until,
)
from toril import (
    Backoff,
    Dedup,
    EnqueueResult,
    InvalidInput,
    InvalidName,
    InvalidOption,
    InvalidPayload,
    JobOptions,
    Keep,
    ManualClock,
    MemoryStorage,
    Queue,
    State,
    Storage,
    content_id,
)
from toril.job import KEEP_ALL, KEEP_NONE, Terms
from toril.options import options_size

HOUR_MS = 3_600_000


async def terms_of(queue: AnyQueue, job_id: str) -> Terms:
    """Read what the storage holds of a job's options."""
    (record,) = await queue.storage.get(queue.name, [job_id])
    assert record is not None
    return record.spec.terms


async def run_order(queue: AnyQueue, work: Work, count: int) -> list[str]:
    """Let one worker run everything and tell in which order."""
    order: list[str] = []

    async def note(job: Context) -> None:
        order.append(job.id)

    async def all_ran() -> bool:
        return len(order) == count

    await work(queue, note)
    await until(all_ran)
    return order


# -- answers -------------------------------------------------------------------------------


async def test_a_new_id_is_queued(queue: AnyQueue) -> None:
    assert await queue.enqueue("order-1", {"n": 1}) == EnqueueResult(id="order-1", status="queued")
    assert (await queue.get_job_counts()).waiting == 1


async def test_an_id_that_waits_is_a_duplicate_and_tells_its_state(queue: AnyQueue) -> None:
    await queue.enqueue("order-1", 1)
    again = await queue.enqueue("order-1", 2)
    assert again == EnqueueResult(id="order-1", status="duplicate", existing_state=State.WAITING)
    assert (await queue.get_job_counts()).total == 1


@pytest.mark.parametrize(
    ("options", "state"),
    [({"delay": 60}, State.DELAYED), ({"priority": 5}, State.PRIORITIZED)],
)
async def test_a_duplicate_of_a_delayed_or_prioritized_job_tells_that_state(
    queue: AnyQueue, options: dict[str, Any], state: State
) -> None:
    await queue.enqueue("order-1", 1, **options)
    assert (await queue.enqueue("order-1", 1)).existing_state is state


async def test_a_duplicate_of_a_running_job_is_active(queue: AnyQueue, work: Work) -> None:
    gate = Gate()
    await work(queue, gate)
    await queue.enqueue("order-1", 1)
    await gate.running()
    again = await queue.enqueue("order-1", 1)
    assert (again.status, again.existing_state) == ("duplicate", State.ACTIVE)


async def test_an_id_that_has_completed_answers_with_its_result(
    queue: AnyQueue, work: Work
) -> None:
    await work(queue, echo)
    await queue.enqueue_and_wait("order-1", {"n": 1})
    again = await queue.enqueue("order-1", {"n": 2})
    assert again == EnqueueResult(
        id="order-1", status="completed", existing_state=State.COMPLETED, result={"n": 1}
    )


async def test_a_completed_job_whose_result_has_expired_is_queued_anew(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    await work(queue, echo)
    await queue.enqueue_and_wait("order-1", 1, result_ttl=10)
    await clock.advance(10)
    assert (await queue.enqueue("order-1", 2)).status == "queued"


async def test_an_id_that_failed_is_queued_anew_with_the_new_data(
    queue: AnyQueue, work: Work
) -> None:
    worker = await work(queue, fail)
    await queue.enqueue("order-1", "old", attempts=1)
    await until(lambda: state_is(queue, "order-1", State.FAILED))
    await worker.stop()
    again = await queue.enqueue("order-1", "new")
    assert again == EnqueueResult(id="order-1", status="queued")
    job = await queue.get_job("order-1")
    assert job is not None
    assert (job.data, job.state, job.attempts_made, job.error) == ("new", State.WAITING, 0, None)
    assert (await queue.get_job_counts()).failed == 0


async def test_an_id_that_failed_is_left_alone_when_told_to_keep_it(
    queue: AnyQueue, work: Work
) -> None:
    await work(queue, fail)
    await queue.enqueue("order-1", "old", attempts=1)
    await until(lambda: state_is(queue, "order-1", State.FAILED))
    again = await queue.enqueue("order-1", "new", on_failed="keep")
    assert again == EnqueueResult(id="order-1", status="duplicate", existing_state=State.FAILED)
    job = await queue.get_job("order-1")
    assert job is not None
    assert job.data == "old"


async def test_a_duplicate_touches_neither_payload_nor_options(queue: AnyQueue) -> None:
    await queue.enqueue("order-1", {"n": 1}, name="first", priority=3)
    await queue.enqueue("order-1", {"n": 2}, name="second", priority=7, attempts=9)
    job = await queue.get_job("order-1")
    assert job is not None
    assert (job.data, job.name, job.priority, job.max_attempts) == ({"n": 1}, "first", 3, 3)


async def test_content_ids_make_equal_data_one_job(queue: AnyQueue) -> None:
    one, two = {"a": 1, "b": 2}, {"b": 2, "a": 1}
    assert (await queue.enqueue(content_id(one), one)).status == "queued"
    assert (await queue.enqueue(content_id(two), two)).status == "duplicate"


# -- defaults and options ------------------------------------------------------------------


async def test_the_defaults_are_written_into_the_job(queue: AnyQueue) -> None:
    await queue.enqueue("order-1", None)
    assert await terms_of(queue, "order-1") == Terms(
        delay_ms=0,
        priority=0,
        lifo=False,
        attempts=3,
        backoff=Backoff("exponential", 1, max_delay=3600, jitter=0.2),
        keep_completed=KEEP_ALL,
        keep_failed=KEEP_ALL,
        result_ttl_ms=HOUR_MS,
        timeout_ms=None,
        expires_ms=None,
        dedup=None,
        keep_logs=1000,
        correlation_id=None,
    )


async def test_added_jobs_have_the_same_defaults_but_are_kept_for_good(queue: AnyQueue) -> None:
    job = await queue.add("send", None)
    assert job.terms == JobOptions().terms()
    assert job.terms.result_ttl_ms is None
    assert await terms_of(queue, job.id) == job.terms


async def test_jobs_handed_in_by_id_are_called_job_unless_named(queue: AnyQueue) -> None:
    await queue.enqueue("a", None)
    await queue.enqueue("b", None, name="send")
    names = [job.name for job in await queue.get_jobs("waiting")]
    assert names == ["job", "send"]


@pytest.mark.parametrize(
    ("given", "field", "stored"),
    [
        ({"delay": 1.5}, "delay_ms", 1500),
        ({"delay": timedelta(minutes=1)}, "delay_ms", 60_000),
        ({"priority": 2_097_151}, "priority", 2_097_151),
        ({"lifo": True}, "lifo", True),
        ({"attempts": 1}, "attempts", 1),
        ({"backoff": 5}, "backoff", Backoff("fixed", 5)),
        ({"backoff": None}, "backoff", None),
        ({"keep_completed": False}, "keep_completed", KEEP_NONE),
        ({"keep_completed": True}, "keep_completed", KEEP_ALL),
        ({"keep_completed": 100}, "keep_completed", Keep(count=100)),
        ({"keep_failed": timedelta(days=1)}, "keep_failed", Keep(age=86_400)),
        ({"keep_failed": Keep(5, 60)}, "keep_failed", Keep(count=5, age=60)),
        ({"result_ttl": 10}, "result_ttl_ms", 10_000),
        ({"result_ttl": None}, "result_ttl_ms", None),
        ({"timeout": 2}, "timeout_ms", 2000),
        ({"expires_in": timedelta(seconds=3)}, "expires_ms", 3000),
        ({"dedup": "key"}, "dedup", Dedup("key")),
        ({"dedup": Dedup("key", ttl=5)}, "dedup", Dedup("key", ttl=5)),
        ({"keep_logs": 0}, "keep_logs", 0),
        ({"correlation_id": "request-7"}, "correlation_id", "request-7"),
    ],
)
async def test_every_option_reaches_the_job(
    queue: AnyQueue, given: dict[str, Any], field: str, stored: object
) -> None:
    await queue.enqueue("by-id", None, **given)
    assert getattr(await terms_of(queue, "by-id"), field) == stored
    await queue.remove_job("by-id")
    added = await queue.add("named", None, **given)
    assert getattr(await terms_of(queue, added.id), field) == stored


async def test_the_queues_defaults_hold_unless_a_job_overrides_them(make_queue: MakeQueue) -> None:
    defaults = JobOptions(attempts=7, priority=4, result_ttl=60)
    queue = make_queue(defaults=defaults)
    await queue.enqueue("plain", None)
    await queue.enqueue("other", None, attempts=2)
    plain, other = await terms_of(queue, "plain"), await terms_of(queue, "other")
    assert (plain.attempts, plain.priority, plain.result_ttl_ms) == (7, 4, 60_000)
    assert (other.attempts, other.priority, other.result_ttl_ms) == (2, 4, 60_000)
    assert (await queue.add("send", None)).terms.result_ttl_ms == 60_000


async def test_a_result_ttl_of_none_in_the_defaults_keeps_results_for_good(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue(defaults=JobOptions(result_ttl=None))
    await queue.enqueue("order-1", None)
    assert (await terms_of(queue, "order-1")).result_ttl_ms is None


# -- dedup by key --------------------------------------------------------------------------


async def test_a_key_that_is_held_refuses_a_second_job_and_names_the_first(
    queue: AnyQueue,
) -> None:
    await queue.enqueue("a", 1, dedup="tenant-1")
    second = await queue.enqueue("b", 2, dedup="tenant-1")
    assert second == EnqueueResult(id="a", status="duplicate", existing_state=State.WAITING)
    assert await queue.get_job("b") is None


async def test_a_key_without_time_is_free_once_its_job_has_finished(
    queue: AnyQueue, work: Work
) -> None:
    await work(queue, echo)
    await queue.enqueue_and_wait("a", 1, dedup="tenant-1")
    assert (await queue.enqueue("b", 2, dedup="tenant-1")).status == "queued"


async def test_a_key_with_a_time_throttles_until_it_is_over(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    throttle = Dedup("tenant-1", ttl=60)
    await work(queue, echo)
    await queue.enqueue_and_wait("a", 1, dedup=throttle)
    held = await queue.enqueue("b", 2, dedup=throttle)
    assert (held.id, held.status, held.result) == ("a", "completed", 1)
    await clock.advance(60)
    assert (await queue.enqueue("b", 2, dedup=throttle)).status == "queued"


async def test_a_replacing_key_lets_the_newest_delayed_job_win(queue: AnyQueue) -> None:
    debounce = Dedup("tenant-1", replace=True)
    await queue.enqueue("a", 1, dedup=debounce, delay=10)
    assert (await queue.enqueue("b", 2, dedup=debounce, delay=10)).status == "queued"
    assert [job.id for job in await queue.get_jobs("delayed")] == ["b"]


async def test_waiting_for_a_refused_job_gives_the_result_of_the_one_that_holds_the_key(
    queue: AnyQueue, work: Work
) -> None:
    await queue.enqueue("a", "first", dedup="tenant-1")
    await work(queue, echo)
    assert await queue.enqueue_and_wait("b", "second", dedup="tenant-1") == "first"


# -- order ---------------------------------------------------------------------------------


async def test_jobs_run_in_the_order_they_came(queue: AnyQueue, work: Work) -> None:
    for name in ("a", "b", "c"):
        await queue.enqueue(name, None)
    assert await run_order(queue, work, 3) == ["a", "b", "c"]


async def test_lifo_jobs_overtake_the_line(queue: AnyQueue, work: Work) -> None:
    await queue.enqueue("a", None)
    await queue.enqueue("b", None, lifo=True)
    await queue.enqueue("c", None, lifo=True)
    assert await run_order(queue, work, 3) == ["c", "b", "a"]


async def test_no_priority_runs_first_then_the_smallest_number(queue: AnyQueue, work: Work) -> None:
    await queue.enqueue("low", None, priority=9)
    await queue.enqueue("high", None, priority=1)
    await queue.enqueue("low-too", None, priority=9)
    await queue.enqueue("none", None)
    assert await run_order(queue, work, 4) == ["none", "high", "low", "low-too"]


async def test_a_delayed_job_starts_at_its_time_and_not_before(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    gate = Gate()
    await work(queue, gate)
    await queue.enqueue("later", None, delay=10)
    await clock.advance(9.999)
    assert gate.begun == []
    await clock.advance(0.001)
    assert gate.begun == ["later"]


async def test_a_job_that_was_not_started_in_time_fails_unrun(
    queue: AnyQueue, work: Work, clock: ManualClock
) -> None:
    gate = Gate()
    await queue.enqueue("order-1", None, expires_in=5)
    await clock.advance(6)
    await work(queue, gate)
    await until(lambda: state_is(queue, "order-1", State.FAILED))
    status = await queue.get_status("order-1")
    assert status is not None
    assert status.error is not None
    assert status.error.kind == "JobExpired"
    assert gate.begun == []


# -- what is refused -----------------------------------------------------------------------

BAD_IDS: list[tuple[Any, str]] = [
    ("", "is empty"),
    (42, "use str with a prefix, e.g. 'job-42'"),
    ("42", "is an integer"),
    (None, "use str"),
    (b"a", "decode"),
    ("a:b", "holds ':'"),
    ("a\nb", "U+000A"),
    ("a\ud800", "lone surrogate"),
    ("x" * 256, "the limit is 255"),
    ("meta", "reserved"),
]

BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"delay": -1}, "delay=-1"),
    ({"delay": "5"}, "delay='5'"),
    ({"delay": float("nan")}, "delay=nan"),
    ({"priority": 1.5}, "whole number"),
    ({"priority": -1}, "priority"),
    ({"priority": 2_097_152}, "2097151"),
    ({"priority": True}, "whole number"),
    ({"lifo": 1}, "True or False"),
    ({"attempts": 0}, "attempts=0"),
    ({"backoff": "exponential"}, "Backoff(kind, delay)"),
    ({"keep_completed": "all"}, "keep_completed='all'"),
    ({"keep_failed": -1}, "keep_failed=-1"),
    ({"result_ttl": 0}, "result_ttl=0"),
    ({"timeout": 0}, "timeout=0"),
    ({"expires_in": -5}, "expires_in=-5"),
    ({"dedup": 5}, "dedup=5"),
    ({"keep_logs": -1}, "keep_logs=-1"),
    ({"size_limit": 0}, "size_limit=0"),
    ({"correlation_id": ""}, "empty"),
    ({"atempts": 5}, "attempts"),
    ({"max_attempts": 5}, "unknown job option 'max_attempts'"),
]

BAD_DATA: list[tuple[Any, str]] = [
    ({"a": [1, {2, 3}]}, "data.a[1]"),
    ({"a": float("nan")}, "data.a"),
    ({"a": 2**53}, "data.a"),
    (b"raw", "bytes"),
    ({1: "one"}, "key"),
]


@pytest.mark.parametrize(("job_id", "words"), BAD_IDS)
async def test_a_bad_id_is_refused_before_anything_is_sent(
    make_queue: MakeQueue, recording: RecordingStorage, job_id: Any, words: str
) -> None:
    queue = make_queue(on=recording)
    for hand_in in (queue.enqueue, queue.enqueue_and_wait):
        with pytest.raises(InvalidName) as refusal:
            await hand_in(job_id, None)
        assert words in str(refusal.value)
    if job_id is not None:
        with pytest.raises(InvalidName):
            await queue.add("send", None, id=job_id)
    assert recording.calls == []


@pytest.mark.parametrize(("options", "words"), BAD_OPTIONS)
async def test_a_bad_option_is_refused_before_anything_is_sent(
    make_queue: MakeQueue,
    recording: RecordingStorage,
    options: dict[str, Any],
    words: str,
) -> None:
    queue = make_queue(on=recording)
    with pytest.raises(InvalidInput) as refusal:
        await queue.enqueue("order-1", None, **options)
    assert words in str(refusal.value)
    with pytest.raises(InvalidInput):
        await queue.add("send", None, **options)
    if "timeout" not in options:
        with pytest.raises(InvalidInput):
            await queue.enqueue_and_wait("order-1", None, **options)
    assert recording.calls == []


@pytest.mark.parametrize(("data", "words"), BAD_DATA)
async def test_bad_data_is_refused_with_its_path_before_anything_is_sent(
    make_queue: MakeQueue, recording: RecordingStorage, data: Any, words: str
) -> None:
    queue = make_queue(on=recording)
    with pytest.raises(InvalidPayload) as refusal:
        await queue.enqueue("order-1", data)
    assert words in str(refusal.value)
    with pytest.raises(InvalidPayload):
        await queue.add("send", data)
    with pytest.raises(InvalidPayload):
        await queue.update_data("order-1", data)
    assert recording.calls == []


async def test_other_bad_arguments_are_refused_before_anything_is_sent(
    make_queue: MakeQueue, recording: RecordingStorage
) -> None:
    queue = make_queue(on=recording)
    keep: Any = "maybe"
    with pytest.raises(InvalidOption, match="on_failed='maybe'"):
        await queue.enqueue("order-1", None, on_failed=keep)
    with pytest.raises(InvalidName, match="job name"):
        await queue.enqueue("order-1", None, name="")
    with pytest.raises(InvalidName, match="job name"):
        await queue.add("", None)
    for timeout in (-1, "30"):
        limit: Any = timeout
        with pytest.raises(InvalidOption, match="timeout"):
            await queue.enqueue_and_wait("order-1", None, timeout=limit)
    with pytest.raises(InvalidOption, match="timeout"):
        await queue.enqueue_and_wait("order-1", None, job_timeout=0)
    assert recording.calls == []


LOOKUPS: Mapping[str, Callable[[AnyQueue, Any], Any]] = {
    "cancel": lambda queue, job_id: queue.cancel(job_id),
    "change_delay": lambda queue, job_id: queue.change_delay(job_id, 1),
    "change_priority": lambda queue, job_id: queue.change_priority(job_id, 1),
    "get_job": lambda queue, job_id: queue.get_job(job_id),
    "get_result": lambda queue, job_id: queue.get_result(job_id),
    "get_status": lambda queue, job_id: queue.get_status(job_id),
    "logs": lambda queue, job_id: queue.logs(job_id),
    "promote": lambda queue, job_id: queue.promote(job_id),
    "remove_job": lambda queue, job_id: queue.remove_job(job_id),
    "retry_job": lambda queue, job_id: queue.retry_job(job_id),
    "update_data": lambda queue, job_id: queue.update_data(job_id, None),
    "update_result_ttl": lambda queue, job_id: queue.update_result_ttl(job_id, 1),
    "wait_until_finished": lambda queue, job_id: queue.wait_until_finished(job_id),
}


@pytest.mark.parametrize("verb", LOOKUPS)
@pytest.mark.parametrize("job_id", [42, None, "", "x" * 256])
async def test_an_impossible_id_is_not_even_looked_up(
    make_queue: MakeQueue, recording: RecordingStorage, verb: str, job_id: Any
) -> None:
    queue = make_queue(on=recording)
    with pytest.raises(InvalidOption, match="job id"):
        await LOOKUPS[verb](queue, job_id)
    assert recording.calls == []


async def test_a_lookup_accepts_ids_that_others_made(queue: AnyQueue) -> None:
    assert await queue.get_job("42") is None
    assert await queue.get_job("repeat:abc:1700") is None


async def test_a_refusal_leaves_the_jobs_there_unchanged(queue: AnyQueue) -> None:
    await queue.enqueue("order-1", "old")
    before = await queue.get_job("order-1")
    cursor = await queue.storage.cursor(queue.name)
    with pytest.raises(InvalidInput):
        await queue.enqueue("order-1", object())
    with pytest.raises(InvalidInput):
        await queue.enqueue("order-2", None, attempts=0)
    assert await queue.get_job("order-1") == before
    assert (await queue.get_job_counts()).total == 1
    assert await queue.storage.cursor(queue.name) == cursor


# -- size ----------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1_000, 9_000, 100_000])
async def test_data_and_options_together_may_reach_the_limit_and_no_more(
    make_queue: MakeQueue, recording: RecordingStorage, limit: int
) -> None:
    queue = make_queue(on=recording)
    options = JobOptions(size_limit=limit)
    room = limit - options_size(options.terms(3600)) - len('""')
    with pytest.raises(InvalidPayload) as refusal:
        await queue.enqueue("order-1", "x" * (room + 1), size_limit=limit)
    assert recording.calls == []
    assert f"take {limit + 1:,} bytes; the limit is {limit:,}" in str(refusal.value)
    assert "'order-1'" in str(refusal.value)
    assert (await queue.enqueue("order-1", "x" * room, size_limit=limit)).status == "queued"


async def test_the_limit_is_ten_mebibytes_unless_told_otherwise(
    make_queue: MakeQueue, recording: RecordingStorage
) -> None:
    queue = make_queue(on=recording)
    with pytest.raises(InvalidPayload, match="the limit is 10,485,760"):
        await queue.enqueue("order-1", "x" * 10_485_760)
    assert recording.calls == []


async def test_a_long_option_counts_towards_the_limit(queue: AnyQueue) -> None:
    plain = JobOptions().terms(3600)
    limit = options_size(plain) + len("null") + 10
    await queue.enqueue("fits", None, size_limit=limit)
    with pytest.raises(InvalidPayload):
        await queue.enqueue("fits-not", None, size_limit=limit, correlation_id="x" * 200)


async def test_a_queue_with_a_larger_limit_carries_larger_jobs(
    make_queue: MakeQueue, work: Work
) -> None:
    queue = make_queue(defaults=JobOptions(size_limit=20 * 1024 * 1024))

    async def measure(job: Context) -> int:
        return len(job.data)

    await work(queue, measure)
    assert await queue.enqueue_and_wait("big", "x" * 11_000_000) == 11_000_000


async def test_what_could_not_be_read_back_is_not_accepted(
    make_queue: MakeQueue, recording: RecordingStorage
) -> None:
    # One job's size_limit does not make the queue's serde read more.
    queue = make_queue(on=recording)
    with pytest.raises(InvalidPayload, match="10,485,760"):
        await queue.enqueue("big", "x" * 11_000_000, size_limit=20 * 1024 * 1024)
    assert recording.calls == []


# -- the queue itself ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a:b", "{a}", 5, None, "x" * 256, "a\x00"])
def test_a_bad_queue_name_is_refused(name: Any) -> None:
    with pytest.raises(InvalidName, match="queue"):
        Queue(name, "memory:")


def test_defaults_that_are_not_options_are_refused() -> None:
    defaults: Any = {"attempts": 5}
    with pytest.raises(InvalidOption, match=r"give JobOptions"):
        Queue("emails", "memory:", defaults=defaults)


@pytest.mark.parametrize("storage", [5, object(), b"memory:"])
def test_what_is_no_storage_is_refused(storage: Any) -> None:
    with pytest.raises(InvalidOption, match="storage="):
        Queue("emails", storage)


@pytest.mark.parametrize("url", ["memori:", "memory", "", ":", "redus://host"])
def test_a_url_nobody_knows_is_refused(url: str) -> None:
    with pytest.raises(InvalidOption, match="storage"):
        Queue("emails", url)


def test_without_storage_and_environment_it_is_an_embedded_server_not_started_yet(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TORIL_URL", raising=False)
    monkeypatch.setenv("TORIL_HOME", str(tmp_path / "home"))
    queue: AnyQueue = Queue("emails")
    assert queue.storage.url == "embedded:"
    assert not (tmp_path / "home").exists()


async def test_without_storage_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORIL_URL", "memory:from-the-environment")
    queue: AnyQueue = Queue("emails")
    other: AnyQueue = Queue("emails", "memory:from-the-environment")
    async with queue, other:
        await queue.enqueue("order-1", None)
        assert (await other.get_job_counts()).waiting == 1


async def test_a_queue_opens_its_storage_at_first_use_and_closes_it_at_stop(
    clock: ManualClock, recording: RecordingStorage
) -> None:
    queue: AnyQueue = Queue("emails", recording)
    assert recording.calls == []
    await queue.enqueue("order-1", None)
    await queue.enqueue("order-2", None)
    await queue.stop()
    assert recording.calls == ["open", "enqueue", "enqueue", "close"]


async def test_a_queue_can_be_used_again_after_stop(queue: AnyQueue, work: Work) -> None:
    await queue.enqueue("order-1", 1)
    await queue.stop()
    await queue.stop()
    assert (await queue.enqueue("order-1", 1)).status == "duplicate"
    await work(queue, echo)
    assert await queue.enqueue_and_wait("order-2", 2) == 2


async def test_a_queue_can_be_started_again_with_its_worker(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.execute(echo)
    for number in (1, 2):
        async with queue:
            assert await queue.enqueue_and_wait(f"order-{number}", number) == number


async def test_a_queue_takes_one_worker_of_its_own(queue: AnyQueue) -> None:
    queue.execute(echo)
    with pytest.raises(Exception, match="has a worker already; make a Worker for more"):
        queue.execute(echo)


async def test_two_queues_on_one_storage_do_not_see_each_others_jobs(
    make_queue: MakeQueue, work: Work
) -> None:
    emails, sms = make_queue("emails"), make_queue("sms")
    await emails.enqueue("order-1", "mail")
    assert (await sms.enqueue("order-1", "text")).status == "queued"
    await work(sms, echo)
    assert await sms.wait_until_finished("order-1") == "text"
    assert await emails.get_result("order-1") is None
    await emails.stop()
    assert await sms.get_result("order-1") == "text"


async def test_two_queues_of_one_name_share_their_jobs(make_queue: MakeQueue, work: Work) -> None:
    producer, consumer = make_queue(), make_queue()
    await work(consumer, echo)
    assert await producer.enqueue_and_wait("order-1", 1) == 1
    assert await consumer.get_result("order-1") == 1


async def test_a_queue_is_shown_with_its_name_and_place(queue: AnyQueue) -> None:
    assert repr(queue) == f"<Queue 'emails' on {queue.storage.url}>"


async def test_hooks_of_the_queue_hear_of_its_worker(make_queue: MakeQueue) -> None:
    queue = make_queue()
    heard: list[tuple[str, Any]] = []

    @queue.on("completed")
    def before(job: Context, result: Any) -> None:
        heard.append(("before", result))

    queue.execute(echo)

    @queue.on("completed")
    async def after(job: Context, result: Any) -> None:
        heard.append(("after", result))

    async with queue:
        await queue.enqueue_and_wait("order-1", 1)
    assert heard == [("before", 1), ("after", 1)]


def test_an_unknown_hook_is_refused_at_once() -> None:
    queue: AnyQueue = Queue("emails", "memory:")
    kind: Literal["completed"] = "complete"  # type: ignore[assignment]
    with pytest.raises(InvalidOption, match="completed"):
        queue.on(kind)(print)


async def test_the_clock_is_the_storages_unless_given(clock: ManualClock) -> None:
    queue: AnyQueue = Queue("emails", MemoryStorage(clock=clock))
    assert queue.clock is clock


async def test_a_lost_reply_does_not_make_a_job_of_its_own_a_duplicate(
    storage: Storage, queue: AnyQueue
) -> None:
    await queue.enqueue("order-1", 1)
    (record,) = await storage.get("emails", ["order-1"])
    assert record is not None
    assert record.spec.origin
    (receipt,) = await storage.enqueue("emails", [record.spec])
    assert receipt.created
    claimed = await claim_one(storage)
    assert claimed.spec.id == "order-1"
