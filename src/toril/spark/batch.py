"""Work jobs in batches on the driver: claim, let a DataFrame function transform, settle."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Unpack, assert_never

from toril.engine.execute import refusal
from toril.errors import InvalidOption, InvalidPayload
from toril.ids import check_name
from toril.options import whole
from toril.outcome import Completed, Failed, Failure, Outcome, Postponed, Released, Retried
from toril.queue import Queue
from toril.retry import Again
from toril.serde import check_size
from toril.spark.background import Background
from toril.spark.batch_claims import Claims
from toril.spark.batch_frame import Verdict, check_frame, make_frame, read_rows
from toril.spark.fleet import refuse_unknown
from toril.spark.fleet_handle import StopWhen
from toril.spark.target import target_of
from toril.storage.protocol import Claimed
from toril.text import describe_error, printable
from toril.worker_options import CommonOverrides, WorkerOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BatchFunction = Callable[["DataFrame"], "DataFrame"]

SOURCE: Final = "spark_batch"
_LOG: Final = logging.getLogger("toril.spark.batch")
_REASON: Final = 2_000
_STACK: Final = 4_000
"""What is kept of an error that hits every job of a batch, and is stored with each."""
_NOT_FOR_BATCHES: Final = {
    "concurrency": "a batch is worked as one; use max_jobs=",
    "shutdown_timeout": "stop() ends after the batch under way",
    "on_lease_lost": "a batch is not interrupted; what was lost is counted",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """What a run did. `lost`: not recorded, because the lease had lapsed or the job was gone."""

    queue: str
    batches: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    lost: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        lost = f", {self.lost:,} lost" if self.lost else ""
        return (
            f"batches on '{self.queue}': {self.completed:,} completed, {self.failed:,} failed,"
            f" {self.retried:,} retried{lost} in {self.batches:,} batches, {self.seconds:.1f} s"
        )


class SparkBatch:
    """A DataFrame function that works the jobs of a queue.

    The function gets a DataFrame with the columns id, name, data, attempt, max_attempts and
    created_at, and returns one with `id`, `result` (or `returnvalue`) and, if a row may fail,
    `error`. `data` is JSON text, or a struct where `data_schema` describes it. Called, it is the
    function itself.
    """

    def __init__(
        self,
        queue: str,
        function: BatchFunction,
        *,
        max_jobs: int = 2000,
        data_schema: str | None = None,
        url: str | None = None,
        url_env: str | None = None,
        password_file: str | None = None,
        on_progress: Callable[[BatchResult], object] | None = None,
        **options: Unpack[CommonOverrides],
    ) -> None:
        self.queue = check_name("queue", queue)
        if not callable(function):
            raise InvalidOption(f"{SOURCE}: {function!r} is no function of a DataFrame")
        self.function = function
        self.max_jobs = whole("max_jobs", max_jobs, 1, 100_000)
        self.data_schema = data_schema
        self.target = target_of(SOURCE, url, url_env, password_file)
        refuse_unknown(SOURCE, options, tuple(CommonOverrides.__annotations__), _NOT_FOR_BATCHES)
        self.options = WorkerOptions.of({"lease": 60, **options})
        self._policy = self.options.policy()
        self._on_progress = on_progress
        self._stopping = threading.Event()
        self._subject = f"{SOURCE} function '{getattr(function, '__name__', function)}'"

    def __repr__(self) -> str:
        return f"<SparkBatch {self.queue!r}, {self.max_jobs} jobs at most>"

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Call the function, as a test would."""
        return self.function(frame)

    def stop(self) -> None:
        """Let `run` end after the batch it is at; may be called from any thread."""
        self._stopping.set()

    def run(
        self, spark: SparkSession, *, stop_when: StopWhen = "drained", max_batches: int = 0
    ) -> BatchResult:
        """Work batch by batch until the queue is drained (None: until `stop`).

        `max_batches` ends it earlier. An exception of the function costs each job of its batch an
        attempt. A result that is no answer (unknown or repeated ids, missing columns) costs none:
        the jobs are handed back, and `InvalidInput` is raised.
        """
        if stop_when not in (None, "drained"):
            raise InvalidOption(f"stop_when={stop_when!r}: must be 'drained' or None")
        whole("max_batches", max_batches, 0)
        self._stopping.clear()
        queue: Queue[Any, Any] = Queue(self.queue, self.target.resolve())
        background = Background(f"toril-batch-{self.queue}")
        try:
            claims = Claims(queue, self.options)
            background.call(claims.open())
            try:
                return self._loop(spark, queue, claims, background, stop_when, max_batches)
            finally:
                background.call(claims.close())
        finally:
            background.close()

    def _loop(
        self,
        spark: SparkSession,
        queue: Queue[Any, Any],
        claims: Claims,
        background: Background,
        stop_when: StopWhen,
        max_batches: int,
    ) -> BatchResult:
        begun = time.monotonic()
        result = BatchResult(queue=self.queue)
        while not self._stopping.is_set() and not (max_batches and result.batches >= max_batches):
            jobs = background.call(claims.take(self.max_jobs))
            if jobs:
                outcomes = self._work(spark, queue, jobs)
                settled = background.call(claims.settle(outcomes))
                result = _add(result, settled, time.monotonic() - begun)
                self._report(result)
            elif stop_when == "drained" and background.call(claims.drained()):
                break
            else:
                background.call(claims.idle())
        return replace(result, seconds=time.monotonic() - begun)

    def _report(self, result: BatchResult) -> None:
        _LOG.info("%s", result)
        if self._on_progress is not None:
            self._on_progress(result)

    # -- one batch -------------------------------------------------------------------------

    def _work(
        self, spark: SparkSession, queue: Queue[Any, Any], jobs: Sequence[Claimed]
    ) -> Sequence[Outcome]:
        refused = {one.lease: outcome for one in jobs if (outcome := _unfit(one))}
        fit = {one.spec.id: one for one in jobs if one.lease not in refused}
        if not fit:
            return list(refused.values())
        try:
            frame = make_frame(spark, list(fit.values()), self.options.attempts, self.data_schema)
            made = self.function(frame)
        except Exception as error:
            return [*refused.values(), *self._raised(fit.values(), error)]
        answer = check_frame(self._subject, made)
        try:
            rows = [row.asDict(recursive=True) for row in answer.collect()]
        except Exception as error:
            return [*refused.values(), *self._raised(fit.values(), error)]
        verdicts = read_rows(self._subject, rows, fit.keys())
        judged = [self._judge(queue, one, verdicts.get(job_id)) for job_id, one in fit.items()]
        return [*refused.values(), *judged]

    def _raised(self, jobs: Iterable[Claimed], error: Exception) -> Sequence[Outcome]:
        """Charge each job of the batch with an attempt."""
        kind, reason, stack = describe_error(error, _REASON)
        failure = Failure(kind=kind, reason=reason, stack=stack[-_STACK:])
        _LOG.error("batch on '%s': %s raised %s", self.queue, self._subject, printable(failure))
        return [self._failed(one, error, failure) for one in jobs]

    def _judge(self, queue: Queue[Any, Any], claimed: Claimed, verdict: Verdict | None) -> Outcome:
        if verdict is None:
            reason = f"{self._subject} returned no row for this job"
            return Failed(lease=claimed.lease, failure=Failure(kind="RowMissing", reason=reason))
        if verdict.error is not None:
            failure = Failure(kind="RowError", reason=verdict.error)
            return self._failed(claimed, RuntimeError(verdict.error), failure)
        try:
            result = queue.result_serde.dumps(verdict.value)
            check_size("result", len(result), queue.defaults.size_limit)
        except InvalidPayload as error:
            failure = Failure(kind="InvalidPayload", reason=str(error))
            return Failed(lease=claimed.lease, failure=failure)
        return Completed(lease=claimed.lease, result=result)

    def _failed(self, claimed: Claimed, error: Exception, failure: Failure) -> Outcome:
        terms, lease = claimed.spec.terms, claimed.lease
        try:
            verdict = self._policy.judge(
                error,
                attempt=lease.attempt,
                attempts=terms.attempts,
                backoff=terms.backoff,
                spread=random.random(),
            )
        except Exception as trouble:  # a classifier or strategy of the user's own
            kind, reason, stack = describe_error(trouble, _REASON)
            own = Failure(kind=kind, reason=reason, stack=stack[-_STACK:])
            return Failed(lease=lease, failure=own)
        if isinstance(verdict, Again):
            return Retried(lease=lease, failure=failure, delay_ms=verdict.delay_ms)
        return Failed(lease=lease, failure=failure, exhausted=verdict.exhausted)


def spark_batch(
    queue: str,
    *,
    max_jobs: int = 2000,
    data_schema: str | None = None,
    url: str | None = None,
    url_env: str | None = None,
    password_file: str | None = None,
    on_progress: Callable[[BatchResult], object] | None = None,
    **options: Unpack[CommonOverrides],
) -> Callable[[BatchFunction], SparkBatch]:
    """Decorate a function of a DataFrame, so that its `run(spark)` works the jobs of a queue."""

    def decorate(function: BatchFunction) -> SparkBatch:
        return SparkBatch(
            queue,
            function,
            max_jobs=max_jobs,
            data_schema=data_schema,
            url=url,
            url_env=url_env,
            password_file=password_file,
            on_progress=on_progress,
            **options,
        )

    return decorate


def _unfit(claimed: Claimed) -> Outcome | None:
    """Fail what must not run, or has no text to show."""
    outcome = refusal(claimed)
    if outcome is not None:
        return outcome
    try:
        claimed.spec.payload.decode()
    except UnicodeDecodeError as error:
        reason = f"payload is not UTF-8 at byte {error.start}; batches take JSON"
        return Failed(lease=claimed.lease, failure=Failure(kind="SerdeError", reason=reason))
    return None


def _add(
    result: BatchResult, settled: Sequence[tuple[Outcome, bool]], seconds: float
) -> BatchResult:
    completed = failed = retried = 0
    for outcome, recorded in settled:
        if not recorded:
            continue
        match outcome:
            case Completed():
                completed += 1
            case Failed():
                failed += 1
            case Retried():
                retried += 1
            case Postponed() | Released():
                pass
            case _:
                assert_never(outcome)
    return replace(
        result,
        batches=result.batches + 1,
        completed=result.completed + completed,
        failed=result.failed + failed,
        retried=result.retried + retried,
        lost=result.lost + sum(not recorded for _, recorded in settled),
        seconds=seconds,
    )
