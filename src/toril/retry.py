"""Decide, purely, whether a failed attempt is tried again, and when."""

from __future__ import annotations

import asyncio
import errno
import socket
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from toril.errors import (
    InvalidInput,
    InvalidOption,
    PermanentError,
    SerdeError,
    TorilWarning,
    TransientError,
    restore,
)
from toril.text import suggest
from toril.whence import caller_depth

Seconds = float | timedelta
"""A public duration: seconds, or a `timedelta`."""

HOUR: Final = 3600.0
_DAY: Final = 86_400
_WEEK: Final = 7 * _DAY
_YEAR: Final = 366 * _DAY
LONGEST: Final = 100 * 366 * 24 * HOUR

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def to_seconds(what: str, value: object, *, least: float = 0.0, above: bool = False) -> float:
    """Read a public duration; refuse what is not one, or lies below `least`."""
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except OverflowError:  # an integer too large for a float
            seconds = float("inf")
    else:
        raise InvalidOption(
            f"{what}={value!r}: {type(value).__name__} is not a duration; "
            "give seconds or a timedelta"
        )
    if not seconds < float("inf"):  # NaN compares false too
        raise InvalidOption(f"{what}={value!r}: a duration must be finite")
    if seconds > LONGEST:
        raise InvalidOption(f"{what}={value!r}: longer than a hundred years; toril takes seconds")
    if seconds < least or (above and seconds == least):
        bound = "more than" if above else "at least"
        raise InvalidOption(f"{what}={value!r}: must be {bound} {least:g} s")
    return seconds


def doubt_milliseconds(what: str, value: object) -> bool:
    """Warn of a duration that looks as if it were meant in milliseconds; tell whether it did.

    Whole thousands, unless they are half hours, whole days beyond a week, and below a year.
    """
    if type(value) is not int or value < 1000 or value % 1000:
        return False
    if not value % 1800 and (value <= _WEEK or not value % _DAY) and value <= _YEAR:
        return False
    _warn(
        f"{what}={value}: toril takes seconds or timedelta; did you mean {value // 1000} s?"
        f" {value} s is {_in_words(value)}"
    )
    return True


def _warn(text: str) -> None:
    warnings.warn(f"toril[E12] {text}", TorilWarning, stacklevel=caller_depth())


def _in_words(seconds: int) -> str:
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    parts = ((days, "d"), (hour, "h"), (minute, "min"), (second, "s"))
    found = [f"{number} {unit}" for number, unit in parts if number]
    return " ".join(found[:2])


def to_ms(seconds: float) -> int:
    """Round seconds to whole milliseconds, never down to zero from above it."""
    ms = round(seconds * 1000)
    return 1 if ms == 0 and seconds > 0 else ms


class Wish(Exception):
    """What a handler raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        return restore, (type(self), self.args), self.__dict__


class Retry(Wish):
    """End this attempt and try again after `after` seconds (default: the job's backoff)."""

    def __init__(self, after: Seconds | None = None, reason: str = "retry asked by handler"):
        super().__init__(reason)
        self.after_ms = None if after is None else to_ms(to_seconds("Retry(after)", after))
        self.reason = reason


class Reject(Wish):
    """Fail the job for good, whatever attempts remain."""

    def __init__(self, reason: str = "rejected by handler"):
        super().__init__(reason)
        self.reason = reason


class Postpone(Wish):
    """Put the job back until a later time; the attempt is not counted."""

    def __init__(self, until: Seconds | datetime):
        super().__init__(f"postponed until {until}")
        if isinstance(until, datetime) and until.utcoffset() is None:
            raise InvalidOption(
                f"toril[E12] Postpone(until={until!r}): naive datetime; add a time zone"
            )
        self.until_ms: int | None = None
        self.delay_ms: int | None = None
        if isinstance(until, datetime):
            # Not by timestamp(): its float is often a hair short of the millisecond.
            self.until_ms = (until - _EPOCH) // _MILLISECOND
        else:
            self.delay_ms = to_ms(to_seconds("Postpone(until)", until))


class ErrorCategory(StrEnum):
    """Whether trying again can help."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"


Classify = Callable[[BaseException], ErrorCategory]

# 408 Request Timeout, 425 Too Early, 429 Too Many Requests: the client may simply come back.
_PASSING_4XX: Final = frozenset({408, 425, 429})
_PASSING_ERRNO: Final = frozenset(
    getattr(errno, name)
    for name in (
        "EAGAIN", "EBUSY", "ECONNABORTED", "ECONNREFUSED", "ECONNRESET", "EHOSTDOWN",
        "EHOSTUNREACH", "EINTR", "EMFILE", "ENETDOWN", "ENETRESET", "ENETUNREACH", "ENFILE",
        "ENOBUFS", "ENOMEM", "ENOSPC", "ENOTCONN", "EPIPE", "ETIMEDOUT",
    )
    if hasattr(errno, name)
)  # fmt: skip
_TRANSIENT_TYPES: Final = (
    TransientError,
    ConnectionError,
    TimeoutError,
    socket.gaierror,
    MemoryError,
    asyncio.CancelledError,
)


def _attribute(holder: object, name: str) -> object:
    try:
        return getattr(holder, name, None)
    except Exception:  # a property of somebody else's error
        return None


def _status_code(error: BaseException) -> int | None:
    """Find an HTTP status the way requests, httpx and aiohttp carry it."""
    for holder in (error, _attribute(error, "response")):
        for attribute in ("status_code", "status"):
            code = _attribute(holder, attribute)
            if isinstance(code, int) and not isinstance(code, bool) and 100 <= code <= 599:
                return code
    return None


def _known_category(error: BaseException, depth: int = 8) -> ErrorCategory | None:
    match error:
        case TransientError():
            return ErrorCategory.TRANSIENT
        case PermanentError() | Reject() | SerdeError() | InvalidInput():
            return ErrorCategory.PERMANENT
        case BaseExceptionGroup():
            found = {_known_category(inner, depth) for inner in error.exceptions}
            if ErrorCategory.PERMANENT in found:
                return ErrorCategory.PERMANENT
            return ErrorCategory.TRANSIENT if found == {ErrorCategory.TRANSIENT} else None
    code = _status_code(error)
    if code is not None and code >= 400:
        passing = code >= 500 or code in _PASSING_4XX
        return ErrorCategory.TRANSIENT if passing else ErrorCategory.PERMANENT
    if isinstance(error, _TRANSIENT_TYPES):
        return ErrorCategory.TRANSIENT
    if isinstance(error, OSError) and error.errno in _PASSING_ERRNO:
        return ErrorCategory.TRANSIENT
    # Libraries wrap: `raise ClientError from ConnectionResetError`.
    cause = error.__cause__
    return _known_category(cause, depth - 1) if cause is not None and depth else None


def categorize_error(
    error: BaseException, *, unknown: ErrorCategory = ErrorCategory.TRANSIENT
) -> ErrorCategory:
    """Tell whether trying again can help; `unknown` is the answer for what nobody knows."""
    return _known_category(error) or unknown


_KINDS: Final = ("fixed", "exponential")


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before the next attempt.

    `fixed` waits `delay` each time, `exponential` doubles it each time. `jitter` spreads the
    wait by that share to both sides; `max_delay` caps the outcome (default: an hour, or `delay`
    if that is longer; the worker's `max_backoff` has the last word). A strategy of your own is
    named with `Backoff.custom("name")` and computed by the worker's `strategies={"name": …}`.
    """

    kind: str = "exponential"
    delay: Seconds = 1.0
    max_delay: Seconds | None = None
    jitter: float = 0.2
    is_custom: bool = False

    def __post_init__(self) -> None:
        if not self.is_custom and self.kind not in _KINDS:
            raise InvalidOption(
                f"backoff {self.kind!r} is unknown; use 'fixed', 'exponential' or "
                f"Backoff.custom({self.kind!r}).{suggest(str(self.kind), _KINDS)}"
            )
        delay = to_seconds("backoff delay", self.delay, above=not self.is_custom)
        given = max(HOUR, delay) if self.max_delay is None else self.max_delay
        cap = to_seconds("backoff max_delay", given, above=True)
        if delay > cap:
            raise InvalidOption(f"backoff delay of {delay:g} s exceeds max_delay of {cap:g} s")
        if not doubt_milliseconds("backoff delay", self.delay) and delay > HOUR:
            _warn(f"backoff delay of {delay:g} s is over one hour; toril takes seconds")
        jitter: object = self.jitter
        if not isinstance(jitter, int | float) or isinstance(jitter, bool) or not 0 <= jitter <= 1:
            raise InvalidOption(f"backoff jitter={self.jitter!r}: must be between 0 and 1")
        object.__setattr__(self, "delay", delay)
        object.__setattr__(self, "max_delay", cap)

    @classmethod
    def custom(
        cls, name: str, delay: Seconds = 0.0, *, max_delay: Seconds | None = None
    ) -> Backoff:
        """Name a strategy that the worker computes."""
        if not isinstance(name, str) or not name or name in _KINDS:
            raise InvalidOption(f"custom backoff {name!r}: give it a name of its own")
        return cls(name, delay, max_delay, 0.0, is_custom=True)

    @property
    def delay_ms(self) -> int:
        """The base delay in milliseconds."""
        return to_ms(to_seconds("backoff delay", self.delay))

    @property
    def max_delay_ms(self) -> int:
        """The cap in milliseconds."""
        return to_ms(to_seconds("backoff max_delay", self.max_delay))

    def wait_ms(self, attempt: int, spread: float = 0.5, cap_ms: int | None = None) -> int:
        """Compute the wait after `attempt` (from 1); `spread` in [0, 1) places it in the jitter."""
        cap = self.max_delay_ms if cap_ms is None else min(self.max_delay_ms, cap_ms)
        base = float(self.delay_ms)
        if self.kind == "exponential":
            # Past 2**62 the cap has long won; a larger shift only makes a huge integer.
            base *= 2 ** min(max(attempt - 1, 0), 62)
        base = min(base, cap)
        # The range is cut at the cap, not the wait: else half of all waits would be the cap.
        low, high = base * (1 - self.jitter), min(base * (1 + self.jitter), cap)
        return round(low + (high - low) * spread)


DEFAULT_BACKOFF: Final = Backoff()

Strategy = Callable[[int, BaseException], Seconds | None]
"""A backoff of the user's own: (attempt, error) in, seconds out, None to give up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Try again after `delay_ms`."""

    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """Fail for good; `exhausted` tells whether the attempts ran out."""

    exhausted: bool
    category: ErrorCategory


Verdict = Again | GiveUp


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """What a worker adds to the job's own terms when an attempt fails."""

    classify: Classify = categorize_error
    attempts: int | None = None
    backoff: Backoff | None = None
    max_backoff_ms: int = int(HOUR * 1000)
    strategies: Mapping[str, Strategy] | None = None

    def judge(
        self,
        error: BaseException,
        *,
        attempt: int,
        attempts: int,
        backoff: Backoff | None,
        spread: float,
    ) -> Verdict:
        """Decide the fate of a job whose attempt number `attempt` ended in `error`."""
        category = self._category(error)
        limit = self.attempts if self.attempts is not None else attempts
        if category is ErrorCategory.PERMANENT:
            return GiveUp(exhausted=False, category=category)
        if attempt >= limit:
            return GiveUp(exhausted=True, category=category)
        if isinstance(error, Retry) and error.after_ms is not None:
            return Again(delay_ms=error.after_ms)
        chosen = self.backoff or backoff
        if chosen is None:
            return Again(delay_ms=0)
        if chosen.is_custom:
            return self._ask_strategy(chosen, attempt, error, category)
        return Again(delay_ms=chosen.wait_ms(attempt, spread, self.max_backoff_ms))

    def _category(self, error: BaseException) -> ErrorCategory:
        if isinstance(error, Retry):
            return ErrorCategory.TRANSIENT
        if isinstance(error, Reject):
            return ErrorCategory.PERMANENT
        answer: object = self.classify(error)
        if answer not in tuple(ErrorCategory):
            raise InvalidOption(f"classify returned {answer!r}; return an ErrorCategory")
        return ErrorCategory(str(answer))

    def _ask_strategy(
        self, backoff: Backoff, attempt: int, error: BaseException, category: ErrorCategory
    ) -> Verdict:
        strategies = self.strategies or {}
        if backoff.kind not in strategies:
            known = ", ".join(sorted(strategies)) or "none"
            raise InvalidOption(
                f"backoff strategy {backoff.kind!r} is not known to this worker (known: {known})."
                f"{suggest(backoff.kind, strategies)} Pass strategies={{{backoff.kind!r}: …}}"
            )
        seconds = strategies[backoff.kind](attempt, error)
        if seconds is None:
            return GiveUp(exhausted=False, category=category)
        wait = to_ms(to_seconds(f"backoff strategy {backoff.kind!r}", seconds))
        return Again(delay_ms=min(wait, backoff.max_delay_ms, self.max_backoff_ms))
