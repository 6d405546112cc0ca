"""Validate what a worker can be told."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypedDict

from toril.engine.journal import Logger
from toril.errors import InvalidOption, TorilWarning
from toril.ids import check_name, worker_id
from toril.metrics import MetricsCollector
from toril.options import whole
from toril.retry import (
    HOUR,
    Backoff,
    Classify,
    ErrorCategory,
    RetryPolicy,
    Seconds,
    Strategy,
    categorize_error,
    to_ms,
    to_seconds,
)
from toril.storage.protocol import Rate
from toril.text import suggest

OnLeaseLost = Literal["signal", "cancel"]


@dataclass(frozen=True, slots=True)
class Limiter:
    """At most `max` job starts per `duration`, over all workers of the queue."""

    max: int
    duration: Seconds

    def rate(self) -> Rate:
        """Check it and turn it into what storages understand."""
        return Rate(
            max=whole("limiter max", self.max, 1),
            duration_ms=to_ms(to_seconds("limiter duration", self.duration, above=True)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How a worker works. Durations are seconds or `timedelta`.

    `lease`: how long a job stays with a worker that went silent. `heartbeat`: the longest gap
    between renewals (default: half the lease; cancel requests make it one second at most).
    `attempts` and `backoff` override what the jobs say. `max_reconnect_attempts` 0 is without
    end. `shutdown_timeout` 0 hands running jobs back at once. `strict_progress`: handlers report
    progress as whole numbers from 0 to 100, not as any JSON.
    """

    concurrency: int = 1
    lease: Seconds = 30
    heartbeat: Seconds | None = None
    reap_interval: Seconds = 30
    max_stalls: int = 1
    attempts: int | None = None
    backoff: Backoff | None = None
    max_backoff: Seconds = HOUR
    strategies: Mapping[str, Strategy] | None = None
    limiter: Limiter | None = None
    classify: Classify | None = None
    unknown: Literal["transient", "permanent"] = "transient"
    name: str | None = None
    worker_id: str = ""
    shutdown_timeout: Seconds = 30
    block_timeout: Seconds = 5
    max_reconnect_attempts: int = 0
    on_lease_lost: OnLeaseLost = "signal"
    strict_progress: bool = False
    logger: Logger | None = None
    metrics: MetricsCollector | None = None

    def __post_init__(self) -> None:
        whole("concurrency", self.concurrency, 1)
        whole("max_stalls", self.max_stalls, 0)
        whole("max_reconnect_attempts", self.max_reconnect_attempts, 0)
        if self.attempts is not None:
            whole("attempts", self.attempts, 1)
        for what in ("lease", "reap_interval", "block_timeout", "max_backoff"):
            to_seconds(what, getattr(self, what), above=True)
        to_seconds("shutdown_timeout", self.shutdown_timeout)
        self._check_heartbeat()
        self._check_retries()
        if self.limiter is not None:
            if not isinstance(self.limiter, Limiter):
                raise InvalidOption(f"limiter={self.limiter!r}: give Limiter(max, duration)")
            self.limiter.rate()
        _one_of("on_lease_lost", self.on_lease_lost, ("signal", "cancel"))
        _one_of("unknown", self.unknown, ("transient", "permanent"))
        strict: object = self.strict_progress
        if not isinstance(strict, bool):
            raise InvalidOption(f"strict_progress={strict!r}: must be True or False")
        given: object = self.worker_id
        made = worker_id() if given is None or given == "" else check_name("worker", given)
        object.__setattr__(self, "worker_id", made)
        if self.name is not None:
            check_name("worker", self.name)

    def _check_heartbeat(self) -> None:
        if self.heartbeat is None:
            return
        beat = to_seconds("heartbeat", self.heartbeat, above=True)
        lease = self.lease_ms / 1000
        if beat > lease / 2:
            warnings.warn(
                f"heartbeat of {beat:g} s is over half the lease of {lease:g} s: one missed beat "
                f"loses the job; use {lease / 2:g} or less",
                TorilWarning,
                stacklevel=6,  # whoever made the Worker
            )

    def _check_retries(self) -> None:
        if self.backoff is not None:
            if not isinstance(self.backoff, Backoff):
                raise InvalidOption(f"backoff={self.backoff!r}: give Backoff(kind, delay)")
            delay = to_seconds("backoff delay", self.backoff.delay)
            most = to_seconds("max_backoff", self.max_backoff)
            if delay > most:
                raise InvalidOption(
                    f"backoff delay of {delay:g} s exceeds max_backoff of {most:g} s"
                )
        if self.classify is not None and not callable(self.classify):
            raise InvalidOption(f"classify={self.classify!r}: give a function of the error")
        strategies: object = {} if self.strategies is None else self.strategies
        if not isinstance(strategies, Mapping) or not all(map(callable, strategies.values())):
            raise InvalidOption(
                f"strategies={strategies!r}: map names to functions of (attempt, error)"
            )

    @property
    def lease_ms(self) -> int:
        """The lease in milliseconds."""
        return to_ms(to_seconds("lease", self.lease))

    @property
    def heartbeat_s(self) -> float:
        """The longest gap between renewals."""
        return self.lease_ms / 2000 if self.heartbeat is None else to_seconds("", self.heartbeat)

    def policy(self) -> RetryPolicy:
        """Make the retry policy these options describe."""
        return RetryPolicy(
            classify=self.classify or self._categorize,
            attempts=self.attempts,
            backoff=self.backoff,
            max_backoff_ms=to_ms(to_seconds("max_backoff", self.max_backoff)),
            strategies=self.strategies,
        )

    def _categorize(self, error: BaseException) -> ErrorCategory:
        return categorize_error(error, unknown=ErrorCategory(self.unknown))

    @classmethod
    def of(cls, given: Mapping[str, object]) -> WorkerOptions:
        """Make options from keyword arguments; unknown names are refused."""
        for name in given:
            if name not in OPTION_NAMES:
                raise InvalidOption(
                    f"unknown worker option {name!r}.{suggest(name, OPTION_NAMES)} "
                    f"Known: {', '.join(OPTION_NAMES)}"
                )
        return cls(**given)  # type: ignore[arg-type]

    def changed(self, given: Mapping[str, object]) -> WorkerOptions:
        """Give a copy with some options replaced."""
        kept = {name: getattr(self, name) for name in OPTION_NAMES}
        return WorkerOptions.of({**kept, **given})


def _one_of(what: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        choices = " or ".join(repr(choice) for choice in allowed)
        raise InvalidOption(f"{what}={value!r}: must be {choices}")


OPTION_NAMES: Final = tuple(field.name for field in dataclasses.fields(WorkerOptions))


class CommonOverrides(TypedDict, total=False):
    """The options that hold however jobs are worked: one by one, or as batches of Spark."""

    lease: Seconds
    heartbeat: Seconds | None
    reap_interval: Seconds
    max_stalls: int
    attempts: int | None
    backoff: Backoff | None
    max_backoff: Seconds
    strategies: Mapping[str, Strategy] | None
    limiter: Limiter | None
    classify: Classify | None
    unknown: Literal["transient", "permanent"]
    name: str | None
    max_reconnect_attempts: int


class TravellingOverrides(CommonOverrides, total=False):
    """The options that hold for a worker on any machine."""

    shutdown_timeout: Seconds
    block_timeout: Seconds
    on_lease_lost: OnLeaseLost
    strict_progress: bool


class WorkerOverrides(TravellingOverrides, total=False):
    """The options of a worker, as keyword arguments."""

    concurrency: int
    worker_id: str
    logger: Logger | None
    metrics: MetricsCollector | None
