"""Validate every option a user can give, before anything is sent."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, Final, TypedDict, cast

from toril.errors import InvalidOption
from toril.ids import check_name
from toril.job import KEEP_ALL, KEEP_NONE, Dedup, Keep, Terms
from toril.retry import (
    DEFAULT_BACKOFF,
    Backoff,
    Seconds,
    doubt_milliseconds,
    to_ms,
    to_seconds,
)
from toril.text import suggest

MAX_PRIORITY: Final = 2_097_151
"""Largest priority the BullMQ wire orders correctly (2**21 - 1)."""

SIZE_LIMIT: Final = 10 * 1024 * 1024

KeepRule = bool | int | timedelta | Keep
"""True keeps all, False none, a number that many, a timedelta that long, `Keep` both."""


class Unset(Enum):
    """Tell "not given" from None."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


def whole(what: str, value: object, least: int, most: int | None = None) -> int:
    """Read a whole number between two bounds; refuse floats, bools and text."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOption(f"{what}={value!r}: must be a whole number, not {_type(value)}")
    if value < least or (most is not None and value > most):
        allowed = f"{least}..{most}" if most is not None else f"{least} or more"
        raise InvalidOption(f"{what}={value!r}: allowed {allowed}")
    return value


def _priority(value: object) -> int:
    try:
        return whole("priority", value, 0, MAX_PRIORITY)
    except InvalidOption as error:
        raise InvalidOption(f"{error}; 1 = most urgent, 0 = none") from None


def _flag(what: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidOption(f"{what}={value!r}: must be True or False, not {_type(value)}")
    return value


def _type(value: object) -> str:
    return type(value).__name__


def _keep(what: str, rule: object) -> Keep:
    match rule:
        case True:
            return KEEP_ALL
        case False:
            return KEEP_NONE
        case Keep():
            return rule
        case int():
            return Keep(count=whole(what, rule, 0))
        case timedelta():
            return Keep(age=to_seconds(what, rule, above=True))
    raise InvalidOption(
        f"{what}={rule!r}: give True, False, a number of jobs, a timedelta, or Keep(count=, age=)"
    )


def _optional_ms(what: str, value: object) -> int | None:
    return None if value is None else to_ms(to_seconds(what, value, above=True))


def _backoff(value: object) -> Backoff | None:
    match value:
        case None | Backoff():
            return value
        case int() | float() | timedelta() if not isinstance(value, bool):
            return Backoff("fixed", value)
    raise InvalidOption(f"backoff={value!r}: give Backoff(kind, delay), seconds, or None")


def _dedup(value: object) -> Dedup | None:
    match value:
        case None | Dedup():
            return value
        case str():
            return Dedup(value)
    raise InvalidOption(f"dedup={value!r}: give a key or Dedup(key, ttl=…)")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """How one job is queued, tried and kept. Durations are seconds or `timedelta`."""

    delay: Seconds = 0
    priority: int = 0
    lifo: bool = False
    attempts: int = 3
    backoff: Backoff | Seconds | None = DEFAULT_BACKOFF
    keep_completed: KeepRule = True
    keep_failed: KeepRule = True
    result_ttl: Seconds | Unset | None = UNSET
    timeout: Seconds | None = None
    expires_in: Seconds | None = None
    dedup: Dedup | str | None = None
    keep_logs: int = 1000
    size_limit: int = SIZE_LIMIT
    correlation_id: str | None = None

    def __post_init__(self) -> None:
        try:
            self.terms()
            whole("size_limit", self.size_limit, 1)
        except InvalidOption as error:
            raise InvalidOption(f"toril[E12] {error}") from None
        doubt_milliseconds("delay", self.delay)

    def terms(self, result_ttl: Seconds | None = None) -> Terms:
        """Check every option and turn it into what storages understand.

        `result_ttl` stands in where the option was not given.
        """
        ttl = result_ttl if self.result_ttl is UNSET else self.result_ttl
        return Terms(
            delay_ms=to_ms(to_seconds("delay", self.delay)),
            priority=_priority(self.priority),
            lifo=_flag("lifo", self.lifo),
            attempts=whole("attempts", self.attempts, 1),
            backoff=_backoff(self.backoff),
            keep_completed=_keep("keep_completed", self.keep_completed),
            keep_failed=_keep("keep_failed", self.keep_failed),
            result_ttl_ms=_optional_ms("result_ttl", ttl),
            timeout_ms=_optional_ms("timeout", self.timeout),
            expires_ms=_optional_ms("expires_in", self.expires_in),
            dedup=_dedup(self.dedup),
            keep_logs=whole("keep_logs", self.keep_logs, 0),
            correlation_id=(
                None
                if self.correlation_id is None
                else check_name("correlation", self.correlation_id)
            ),
        )

    def override(self, changes: Mapping[str, object]) -> JobOptions:
        """Return a copy with some options replaced; unknown names are refused."""
        if not changes:
            return self
        for name in changes:
            if name not in OPTION_NAMES:
                raise InvalidOption(
                    f"unknown job option {name!r}.{suggest(name, OPTION_NAMES)} "
                    f"Known: {', '.join(OPTION_NAMES)}"
                )
        return dataclasses.replace(self, **cast("dict[str, Any]", changes))


OPTION_NAMES: Final = tuple(field.name for field in dataclasses.fields(JobOptions))


class WaitOverrides(TypedDict, total=False):
    """The options of one job, as keyword arguments beside a `timeout` of the caller's own."""

    delay: Seconds
    priority: int
    lifo: bool
    attempts: int
    backoff: Backoff | Seconds | None
    keep_completed: KeepRule
    keep_failed: KeepRule
    result_ttl: Seconds | None
    expires_in: Seconds | None
    dedup: Dedup | str | None
    keep_logs: int
    size_limit: int
    correlation_id: str | None


class JobOverrides(WaitOverrides, total=False):
    """The options of one job, as keyword arguments."""

    timeout: Seconds | None


def options_size(terms: Terms) -> int:
    """How many bytes a job's options take beside its data."""
    return len(json.dumps(dataclasses.asdict(terms), default=str))
