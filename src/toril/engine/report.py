"""Tell logs, metrics and hooks what became of an attempt, once it is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, assert_never, cast

from toril.engine.hand import Run
from toril.engine.journal import Journal
from toril.errors import JobCancelled, JobFailed, RetriesExhausted
from toril.hooks import Hooks
from toril.job import In
from toril.metrics import (
    Ended,
    FailureReason,
    JobMetrics,
    JobsProcessed,
    MetricsCollector,
    NoMetrics,
)
from toril.outcome import (
    CANCELLED,
    DONE,
    Answer,
    AnswerKind,
    Completed,
    Failed,
    Outcome,
    Postponed,
    Released,
    Retried,
)
from toril.retry import Classify, ErrorCategory

# Asked for every job: to take a member out of its enum costs as much as a call.
_DONE: Final = AnswerKind.DONE
_REFUSED: Final = AnswerKind.REFUSED
_EXHAUSTED: Final[FailureReason] = "transient_exhausted"
_PERMANENT: Final[FailureReason] = "permanent"


class Tally:
    """Attempts whose ends were recorded, by how they ended; cancelled ones count as failed."""

    __slots__ = ("completed", "failed", "retried")

    def __init__(self) -> None:
        self.completed = 0
        self.failed = 0
        self.retried = 0


class Reporter(Generic[In]):
    """The last station of an attempt."""

    def __init__(
        self,
        *,
        queue: str,
        journal: Journal,
        metrics: MetricsCollector,
        hooks: Hooks,
        classify: Classify,
        tally: Tally,
    ) -> None:
        self._tally = tally
        self._queue = queue
        self._journal = journal
        self._metrics = metrics
        self._counting = type(metrics) is not NoMetrics
        self._jobs = metrics if isinstance(metrics, JobMetrics) else None
        self._hooks = hooks
        self._classify = classify

    def settled(
        self, ended: Sequence[tuple[Run[In], Outcome]], answers: Sequence[Answer], repeated: bool
    ) -> Sequence[tuple[Run[In], Outcome, str]]:
        """Report the storage's answers to outcomes; give back what it refused, and why."""
        refused: list[tuple[Run[In], Outcome, str]] = []
        unheard = not (self._counting or self._journal.tells_all or "completed" in self._hooks)
        for (run, outcome), answer in zip(ended, answers, strict=True):
            if unheard and answer is DONE and outcome.__class__ is Completed:
                self._tally.completed += 1
            elif answer.kind is _REFUSED:
                refused.append((run, outcome, answer.reason))
            else:
                self._settled(run, outcome, answer, repeated)
        return refused

    def _settled(self, run: Run[In], outcome: Outcome, answer: Answer, repeated: bool) -> None:
        if answer.kind is _DONE:
            self._recorded(run, outcome)
        elif answer.kind is AnswerKind.LOST:
            self.lost(run, "its result was not recorded; raise lease= or unblock the loop")
        elif answer.kind is AnswerKind.GONE and not repeated:
            self._journal.gone(run.claimed)
        else:
            # Gone on a repeated call: recorded by the first one and not kept.
            self._recorded(run, outcome)

    def lost(self, run: Run[In], why: str) -> None:
        """Report that the job belongs to somebody else."""
        run.context.lost = True
        self._journal.lease_lost(run.claimed, why)

    def _recorded(self, run: Run[In], outcome: Outcome) -> None:
        match outcome:
            case Completed():
                self._completed(run)
            case Failed():
                self._failed(run, outcome)
            case Retried():
                self._retried(run, outcome)
            case Postponed():
                self._journal.moved(run.claimed, "postponed")
            case Released():
                self._journal.moved(run.claimed, "released")
            case _:
                assert_never(outcome)

    def _completed(self, run: Run[In]) -> None:
        self._tally.completed += 1
        if self._counting:
            self._count(run, "completed")
        self._journal.completed(run.claimed, run.seconds, run.result)
        if "completed" in self._hooks:
            self._hooks.emit("completed", run.context, run.result)

    def _failed(self, run: Run[In], outcome: Failed) -> None:
        self._tally.failed += 1
        self._count(run, "failed", outcome)
        self._journal.failed(run.claimed, outcome.failure, self._category(run), outcome.exhausted)
        if outcome.failure.kind == CANCELLED:
            self._hooks.emit("cancelled", run.context)
        if "failed" in self._hooks:
            self._hooks.emit("failed", run.context, self._error(run, outcome))

    def _retried(self, run: Run[In], outcome: Retried) -> None:
        self._tally.retried += 1
        self._count(run, "retried")
        self._journal.retried(run.claimed, outcome.failure, outcome.delay_ms)
        self._hooks.emit("retrying", run.context, run.error, outcome.delay_ms / 1000)

    def _count(self, run: Run[In], status: JobsProcessed, failed: Failed | None = None) -> None:
        self._metrics.increment_jobs_processed(self._queue, status)
        self._metrics.observe_job_duration(self._queue, run.seconds)
        if self._jobs is None:
            return
        claimed, ended, reason = run.claimed, cast("Ended", status), None
        if failed is not None and failed.failure.kind == CANCELLED:
            ended = "cancelled"
        elif failed is not None:
            reason = _EXHAUSTED if failed.exhausted else _PERMANENT
        first = claimed.started == 1
        waited = max(0, claimed.age_ms - claimed.spec.terms.delay_ms) / 1000 if first else None
        self._jobs.job_ended(
            self._queue,
            claimed.spec.name,
            ended,
            seconds=run.seconds,
            waited=waited,
            reason=reason,
        )

    def _category(self, run: Run[In]) -> ErrorCategory | None:
        try:
            return None if run.error is None else self._classify(run.error)
        except Exception:  # the user's own; its failure was reported when it mattered
            return None

    def _error(self, run: Run[In], outcome: Failed) -> JobFailed | JobCancelled:
        """Build what a `failed` hook gets: the error as users of `enqueue_and_wait` see it."""
        job_id, failure = run.claimed.spec.id, outcome.failure
        error: JobFailed | JobCancelled
        if failure.kind == CANCELLED:
            error = JobCancelled(f"job {job_id!r} was cancelled", job_id=job_id)
        elif outcome.exhausted:
            attempts = run.claimed.lease.attempt
            error = RetriesExhausted(
                failure.told(job_id, f"failed after {attempts} attempts"),
                job_id=job_id,
                original_error=failure,
                payload=run.context.data,
                attempts=attempts,
            )
        else:
            error = JobFailed(failure.told(job_id), job_id=job_id, original_error=failure)
        error.__cause__ = run.error
        return error
