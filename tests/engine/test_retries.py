"""What becomes of a failed attempt."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from tests.engine.conftest import Stage
from toril import (
    Backoff,
    ErrorCategory,
    JobCancelled,
    JobContext,
    JobError,
    JobFailed,
    PermanentError,
    Postpone,
    Reject,
    RetriesExhausted,
    Retry,
    State,
    TransientError,
    Worker,
)

Ctx = JobContext[object]


class Flaky:
    """Fails a number of times, then succeeds."""

    def __init__(self, stage: Stage, *errors: BaseException) -> None:
        self._stage = stage
        self._errors = list(errors)
        self.starts: list[float] = []
        self.attempts: list[int] = []

    async def __call__(self, job: Ctx) -> object:
        self.starts.append(self._stage.clock.monotonic())
        self.attempts.append(job.attempt)
        if self._errors:
            raise self._errors.pop(0)
        return "fine"


NO_JITTER = Backoff("exponential", 1, jitter=0)


async def test_a_failed_attempt_is_tried_again_after_its_backoff(stage: Stage) -> None:
    handler = Flaky(stage, ValueError("one"), TransientError("two"))
    await stage.queue.enqueue("j", None, backoff=NO_JITTER)
    async with Worker(stage.queue, handler):
        await stage.advance(0)
        assert await stage.state("j") is State.DELAYED
        await stage.advance(10)
    assert handler.starts == [0, 1, 3]
    assert handler.attempts == [1, 2, 3]
    assert await stage.queue.get_result("j") == "fine"


async def test_a_job_fails_when_its_attempts_are_used_up(stage: Stage) -> None:
    handler = Flaky(stage, *[ValueError(f"try {n}") for n in range(9)])
    errors: list[BaseException] = []
    worker = Worker(stage.queue, handler)
    worker.on("failed")(lambda _job, error: errors.append(error))
    await stage.queue.enqueue("j", {"n": 1}, backoff=NO_JITTER)
    async with worker:
        await stage.advance(10)
    assert handler.attempts == [1, 2, 3]
    assert "retries-exhausted" in await stage.kinds("j")
    (error,) = errors
    assert isinstance(error, RetriesExhausted)
    assert (error.payload, error.attempts, error.job_id) == ({"n": 1}, 3, "j")
    assert error.original_error.reason == "try 2"
    assert isinstance(error.__cause__, ValueError)
    job = await stage.queue.get_job("j")
    assert job is not None
    assert len(job.stacktrace) == 3


@pytest.mark.parametrize("error", [PermanentError("no"), Reject("no")])
async def test_a_permanent_error_fails_the_job_at_once(stage: Stage, error: BaseException) -> None:
    handler = Flaky(stage, error)
    async with Worker(stage.queue, handler):
        with pytest.raises(JobFailed, match="no") as caught:
            await stage.queue.enqueue_and_wait("j", None)
    assert not isinstance(caught.value, RetriesExhausted)
    assert handler.attempts == [1]
    assert "retries-exhausted" not in await stage.kinds("j")


async def test_retry_names_its_own_delay_and_counts(stage: Stage) -> None:
    handler = Flaky(stage, Retry(after=5), Retry())
    await stage.queue.enqueue("j", None, backoff=NO_JITTER)
    async with Worker(stage.queue, handler):
        await stage.advance(20)
    assert handler.starts == [0, 5, 7]
    assert handler.attempts == [1, 2, 3]


async def test_retry_cannot_exceed_the_attempts(stage: Stage) -> None:
    handler = Flaky(stage, Retry(after=1), Retry(after=1), Retry(after=1))
    await stage.queue.enqueue("j", None, attempts=2)
    async with Worker(stage.queue, handler):
        await stage.advance(10)
    assert handler.attempts == [1, 2]
    assert await stage.state("j") is State.FAILED


async def test_postpone_does_not_count_as_an_attempt(stage: Stage) -> None:
    when = datetime.fromtimestamp(1_700_000_000, UTC) + timedelta(seconds=30)
    handler = Flaky(stage, Postpone(10), Postpone(timedelta(seconds=5)), Postpone(when))
    await stage.queue.enqueue("j", None, attempts=1)
    async with Worker(stage.queue, handler):
        await stage.advance(60)
    assert handler.starts == [0, 10, 15, 30]
    assert handler.attempts == [1, 1, 1, 1]
    assert await stage.state("j") is State.COMPLETED


async def test_the_worker_overrides_attempts_and_backoff(stage: Stage) -> None:
    handler = Flaky(stage, *[ValueError()] * 9)
    await stage.queue.enqueue("j", None, attempts=9)
    async with Worker(stage.queue, handler, attempts=2, backoff=Backoff("fixed", 7, jitter=0)):
        await stage.advance(30)
    assert handler.starts == [0, 7]


async def test_max_backoff_caps_the_wait(stage: Stage) -> None:
    handler = Flaky(stage, ValueError())
    await stage.queue.enqueue("j", None, backoff=Backoff("fixed", 500, jitter=0))
    async with Worker(stage.queue, handler, max_backoff=2):
        await stage.advance(10)
    assert handler.starts == [0, 2]


async def test_classify_replaces_the_policy(stage: Stage) -> None:
    handler = Flaky(stage, PermanentError("try me"), KeyError("x"))
    await stage.queue.enqueue("j", None, backoff=NO_JITTER)

    def classify(error: BaseException) -> ErrorCategory:
        permanent = isinstance(error, KeyError)
        return ErrorCategory.PERMANENT if permanent else ErrorCategory.TRANSIENT

    async with Worker(stage.queue, handler, classify=classify):
        await stage.advance(10)
    assert handler.attempts == [1, 2]


async def test_unknown_errors_can_be_permanent(stage: Stage) -> None:
    handler = Flaky(stage, ValueError("who knows"))
    async with Worker(stage.queue, handler, unknown="permanent"):
        with pytest.raises(JobFailed):
            await stage.queue.enqueue_and_wait("j", None)
    assert handler.attempts == [1]


async def test_a_classifier_that_raises_fails_the_job_and_spares_the_worker(stage: Stage) -> None:
    handler = Flaky(stage, ValueError("boom"))

    def classify(_error: BaseException) -> ErrorCategory:
        raise RuntimeError("broken policy")

    async with Worker(stage.queue, handler, classify=classify):
        with pytest.raises(JobFailed, match="broken policy"):
            await stage.queue.enqueue_and_wait("j", None)
        assert await stage.queue.enqueue_and_wait("next", None) == "fine"


async def test_a_custom_strategy_decides_the_wait(stage: Stage) -> None:
    handler = Flaky(stage, ValueError(), ValueError(), ValueError())
    asked: list[int] = []

    def lazy(attempt: int, _error: BaseException) -> float | None:
        asked.append(attempt)
        return None if attempt == 3 else attempt * 10.0

    await stage.queue.enqueue("j", None, attempts=9, backoff=Backoff.custom("lazy"))
    async with Worker(stage.queue, handler, strategies={"lazy": lazy}):
        await stage.advance(60)
    assert handler.starts == [0, 10, 30]
    assert asked == [1, 2, 3]
    assert await stage.state("j") is State.FAILED


async def test_an_unknown_strategy_fails_the_job_with_the_remedy(stage: Stage) -> None:
    handler = Flaky(stage, ValueError())
    async with Worker(stage.queue, handler, strategies={"lazy": lambda _a, _e: 1}):
        with pytest.raises(JobFailed, match=r"'lasy' is not known.*Did you mean 'lazy'"):
            await stage.queue.enqueue_and_wait("j", None, backoff=Backoff.custom("lasy"))


async def test_a_handler_over_its_timeout_is_cancelled_and_counts_as_failed(stage: Stage) -> None:
    cleaned: list[bool] = []

    async def handler(_job: Ctx) -> object:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)
        return None

    await stage.queue.enqueue("j", None, timeout=5, attempts=2, backoff=NO_JITTER)
    async with Worker(stage.queue, handler):
        await stage.advance(4.9)
        assert await stage.state("j") is State.ACTIVE
        await stage.advance(0.2)
        assert await stage.state("j") is State.DELAYED
        await stage.advance(10)
    assert cleaned == [True, True]
    status = await stage.queue.get_status("j")
    assert status is not None
    assert status.error is not None
    assert status.error.kind == "toril.errors.JobTimeout"
    assert "timeout of 5 s" in status.error.reason


async def test_many_timeouts_need_one_timer(stage: Stage) -> None:
    async def handler(_job: Ctx) -> object:
        await asyncio.Event().wait()
        return None

    for number in range(50):
        await stage.queue.enqueue(f"j{number}", None, timeout=5 + number, attempts=1)
    async with Worker(stage.queue, handler, concurrency=50):
        await stage.clock.settle()
        # heart tick, reap and one deadline, however many jobs run
        assert stage.clock.pending <= 5
        await stage.advance(60)
    assert (await stage.queue.get_job_counts()).failed == 50


async def test_a_cancelled_error_of_the_handlers_own_is_a_failed_attempt(stage: Stage) -> None:
    handler = Flaky(stage, asyncio.CancelledError())
    await stage.queue.enqueue("j", None, backoff=NO_JITTER)
    async with Worker(stage.queue, handler):
        await stage.advance(5)
    assert handler.attempts == [1, 2]
    assert await stage.state("j") is State.COMPLETED


async def test_hooks_hear_of_each_end(stage: Stage) -> None:
    heard: list[tuple[object, ...]] = []
    handler = Flaky(stage, ValueError("once"))
    worker = Worker(stage.queue, handler)
    worker.on("completed")(lambda job, result: heard.append(("completed", job.id, result)))
    worker.on("retrying")(
        lambda job, error, delay: heard.append(("retrying", job.id, str(error), delay))
    )

    @worker.on("failed")
    async def on_failed(job: Ctx, error: JobError) -> None:
        heard.append(("failed", job.id, type(error)))

    async with worker:
        await stage.queue.enqueue("a", None, backoff=NO_JITTER)
        await stage.advance(5)
        handler._errors.append(PermanentError("never"))
        await stage.queue.enqueue("b", None)
        await stage.advance(0)
    assert heard == [
        ("retrying", "a", "once", 1.0),
        ("completed", "a", "fine"),
        ("failed", "b", JobFailed),
    ]


async def test_a_cancelled_run_tells_both_hooks(stage: Stage) -> None:
    heard: list[tuple[object, ...]] = []

    async def handler(_job: Ctx) -> object:
        await asyncio.Event().wait()
        return None

    worker = Worker(stage.queue, handler)
    worker.on("cancelled")(lambda job: heard.append(("cancelled", job.id)))
    worker.on("failed")(lambda job, error: heard.append(("failed", job.id, type(error))))
    await stage.queue.enqueue("j", None)
    async with worker:
        await stage.clock.settle()
        await stage.queue.cancel("j", running=True)
        await stage.advance(1.1)
    assert heard == [("cancelled", "j"), ("failed", "j", JobCancelled)]


async def test_a_worker_counts_its_attempts_by_how_they_ended(stage: Stage) -> None:
    handler = Flaky(stage, ValueError("one"), Reject("never"))
    for job_id in ("a", "b", "c"):
        await stage.queue.enqueue(job_id, None, backoff=NO_JITTER)
    worker = Worker(stage.queue, handler)
    async with worker:
        await stage.advance(10)
    tally = worker.tally
    assert (tally.completed, tally.failed, tally.retried) == (2, 1, 1)
    assert worker.changed(concurrency=2).tally.completed == 0
