"""Write the worker's log: one record per event, structured fields, safe text."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping, Sequence
from typing import Any, Final, TypeAlias

from toril.outcome import Failure
from toril.retry import ErrorCategory
from toril.storage.protocol import Claimed
from toril.text import printable

_REASON: Final = 600
"""How much of a reason is told; messages of toril's own fit in."""

Logger: TypeAlias = "logging.Logger | logging.LoggerAdapter[logging.Logger]"


class Journal:
    """Log through stdlib `logging`; every record carries the queue and the worker id.

    Payloads and results appear at DEBUG only.
    """

    def __init__(self, logger: Logger | None, queue: str, worker_id: str) -> None:
        self._logger: Logger = logger or logging.getLogger("toril.worker")
        self._base: dict[str, object] = {"queue": queue, "worker_id": worker_id}

    @property
    def tells_all(self) -> bool:
        """Whether it tells of each start and each end, not of trouble alone."""
        return self._logger.isEnabledFor(logging.INFO)

    def _write(self, level: int, event: str, message: str, **fields: object) -> None:
        if self._logger.isEnabledFor(level):
            self._emit(level, message, {**self._base, "event": event, **fields})

    def _emit(
        self,
        level: int,
        message: str,
        extra: dict[str, object],
        error: BaseException | None = None,
    ) -> None:
        logger = self._logger
        kwargs: MutableMapping[str, Any] = {"extra": extra, "exc_info": error}
        while isinstance(logger, logging.LoggerAdapter):
            # An adapter's `process` replaces `extra` before 3.13; ours must survive it.
            message, kwargs = logger.process(message, kwargs)
            kwargs["extra"] = extra = {**extra, **(kwargs.get("extra") or {})}
            logger = logger.logger
        logger.log(level, message, **kwargs)

    def _job(
        self, level: int, event: str, claimed: Claimed, message: str, **fields: object
    ) -> None:
        if self._logger.isEnabledFor(level):
            spec = claimed.spec
            text = f"{printable(spec.name, 60)} {printable(spec.id, 60)} {message}"
            self._write(
                level,
                event,
                text,
                job_id=printable(spec.id, 255),
                job_name=printable(spec.name, 255),
                attempt=claimed.lease.attempt,
                **fields,
            )

    def picked_up(self, jobs: Sequence[Claimed]) -> None:
        """Jobs start."""
        if self.tells_all:
            for claimed in jobs:
                self._picked_up(claimed)

    def _picked_up(self, claimed: Claimed) -> None:
        self._job(
            logging.INFO,
            "picked_up",
            claimed,
            f"picked up, attempt {claimed.lease.attempt}, {claimed.age_ms} ms after it was added",
            age_ms=claimed.age_ms,
        )
        if self._logger.isEnabledFor(logging.DEBUG):
            self._job(logging.DEBUG, "payload", claimed, f"data {printable(claimed.spec.payload)}")

    def completed(self, claimed: Claimed, duration_s: float, result: object) -> None:
        """A job completed."""
        if not self._logger.isEnabledFor(logging.INFO):
            return
        self._job(
            logging.INFO,
            "completed",
            claimed,
            f"completed in {duration_s * 1000:.0f} ms",
            duration_s=duration_s,
        )
        if self._logger.isEnabledFor(logging.DEBUG):
            self._job(logging.DEBUG, "result", claimed, f"result {printable(result)}")

    def failed(
        self, claimed: Claimed, failure: Failure, category: ErrorCategory | None, exhausted: bool
    ) -> None:
        """A job failed for good."""
        if not self._logger.isEnabledFor(logging.ERROR):
            return
        text = printable(failure, _REASON)
        tries = claimed.lease.attempt
        last = f" after {tries} attempt{'s' * (tries > 1)}" if exhausted else ""
        self._job(
            logging.ERROR,
            "failed",
            claimed,
            f"failed{last}: {text}",
            error=text,
            category=None if category is None else str(category),
        )

    def retried(self, claimed: Claimed, failure: Failure, delay_ms: int) -> None:
        """An attempt failed, another will follow."""
        if not self._logger.isEnabledFor(logging.WARNING):
            return
        text = printable(failure)
        self._job(
            logging.WARNING,
            "retried",
            claimed,
            f"failed, next attempt in {delay_ms / 1000:g} s: {text}",
            delay_s=delay_ms / 1000,
            error=text,
        )

    def moved(self, claimed: Claimed, what: str) -> None:
        """A job went back in line without counting."""
        self._job(logging.INFO, what, claimed, what)

    def lease_lost(self, claimed: Claimed, why: str) -> None:
        """The job belongs to somebody else now."""
        self._job(logging.WARNING, "lease_lost", claimed, f"lease lost: {why}")

    def gone(self, claimed: Claimed) -> None:
        """The job was removed while it ran."""
        self._job(logging.WARNING, "gone", claimed, "was removed while it ran; result dropped")

    def stalled(self, job_id: str, doomed: bool) -> None:
        """A job whose worker went silent was found."""
        if not self._logger.isEnabledFor(logging.WARNING):
            return
        fate = "failed for good" if doomed else "back in line"
        self._write(
            logging.WARNING,
            "stalled",
            f"job {printable(job_id, 60)} stalled: its lease lapsed; {fate}",
            job_id=printable(job_id, 255),
        )

    def heartbeat_failed(self, error: BaseException, jobs: int) -> None:
        """Leases could not be renewed this time."""
        if not self._logger.isEnabledFor(logging.WARNING):
            return
        text = printable(error)
        self._write(
            logging.WARNING,
            "heartbeat_failed",
            f"could not renew {jobs} leases, trying again: {text}",
            error=text,
        )

    def loop_blocked(
        self, seconds: float, *, task: str = "", line: str = "", others: int = 0, renewed: bool
    ) -> None:
        """The event loop stood still for longer than it should."""
        if not self._logger.isEnabledFor(logging.WARNING):
            return
        subject = f"task '{printable(task, 60)}'" if task else "something"
        place = f" ({line})" if line else ""
        told = f"; {_others(others, renewed)}" if others else ""
        self._write(
            logging.WARNING,
            "loop_blocked",
            f"toril[E10] {subject} blocked the event loop for {seconds:.1f} s{place}{told}."
            " fix: write it as plain def, which runs in a thread, or use asyncio.to_thread(…)",
            duration_s=seconds,
        )

    def reap_skipped(self) -> None:
        """A reap cycle was skipped."""
        self._write(logging.WARNING, "reap_skipped", "reap cycle skipped: the last one still runs")

    def reap_failed(self, error: BaseException) -> None:
        """A look for stalled jobs failed."""
        if self._logger.isEnabledFor(logging.WARNING):
            text = printable(error)
            message = f"could not look for stalled jobs, trying again: {text}"
            self._write(logging.WARNING, "reap_failed", message, error=text)

    def disconnected(self, error: BaseException, tries: int, seconds: float) -> None:
        """The storage does not answer."""
        if not self._logger.isEnabledFor(logging.ERROR):
            return
        text = printable(error)
        self._write(
            logging.ERROR,
            "disconnected",
            f"storage unavailable (try {tries}, {seconds:.1f} s): {text}",
            attempt=tries,
            duration_s=seconds,
            error=text,
        )

    def reconnected(self, tries: int, seconds: float) -> None:
        """The storage answers again."""
        self._write(
            logging.INFO,
            "reconnected",
            f"storage is back after {seconds:.1f} s and {tries} tries",
            attempt=tries,
            duration_s=seconds,
        )

    def trouble(self, message: str, error: BaseException) -> None:
        """Something of the user's or ours raised where nobody could be told otherwise."""
        if self._logger.isEnabledFor(logging.ERROR):
            text = printable(error)
            extra = {**self._base, "event": "error", "error": text}
            self._emit(logging.ERROR, f"{message}: {text}", extra, error)

    def worker(self, event: str, message: str, level: int = logging.INFO) -> None:
        """The worker itself changes its state."""
        if self._logger.isEnabledFor(level):
            self._write(level, event, printable(message, 500))


def _others(count: int, renewed: bool) -> str:
    if count == 1:
        fate = "stood still, its lease was kept" if renewed else "could not renew its lease"
        return f"1 other job {fate}"
    fate = "stood still, their leases were kept" if renewed else "could not renew their leases"
    return f"{count} other jobs {fate}"
