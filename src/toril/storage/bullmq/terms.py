"""A job's terms as the options that BullMQ keeps, and back."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any, Final, TypeGuard

from toril.errors import InvalidInput
from toril.job import KEEP_ALL, KEEP_NONE, Dedup, Keep, Terms
from toril.retry import HOUR, Backoff
from toril.storage.bullmq.mending import plain_number

Options = dict[str, Any]

PRIVATE: Final = "toril"
"""The one option that holds what BullMQ has none for."""
_DEFAULT_CAP_MS: Final = int(HOUR * 1000)


@lru_cache(maxsize=1024)
def write_terms(terms: Terms) -> Options:
    """The options that say a job's terms; most jobs of a queue share one set."""
    options: Options = {"attempts": terms.attempts, "kl": terms.keep_logs}
    if terms.delay_ms:
        options["delay"] = terms.delay_ms
    if terms.priority:
        options["priority"] = terms.priority
    if terms.lifo:
        options["lifo"] = True
    if terms.backoff is not None:
        options["backoff"] = _backoff_option(terms.backoff)
    for name, keep in (
        ("removeOnComplete", terms.keep_completed),
        ("removeOnFail", terms.keep_failed),
    ):
        if keep != KEEP_ALL:
            options[name] = keep_option(keep)
    if terms.dedup is not None:
        options["de"] = _dedup_option(terms.dedup)
    private = {
        letter: value
        for letter, value in (
            ("t", terms.timeout_ms),
            ("x", terms.expires_ms),
            ("r", terms.result_ttl_ms),
            ("c", terms.correlation_id),
        )
        if value is not None
    }
    if private:
        options[PRIVATE] = private
    return options


def _backoff_option(backoff: Backoff) -> Options:
    option: Options = {"type": backoff.kind, "delay": backoff.delay_ms}
    if backoff.jitter:
        option["jitter"] = backoff.jitter
    if backoff.max_delay_ms != max(_DEFAULT_CAP_MS, backoff.delay_ms):
        option["maxDelay"] = backoff.max_delay_ms
    return option


def _dedup_option(dedup: Dedup) -> Options:
    option: Options = {"id": dedup.key}
    if dedup.ttl_ms is not None:
        option["ttl"] = dedup.ttl_ms
    if dedup.extend:
        option["extend"] = True
    if dedup.replace:
        option["replace"] = True
    return option


def keep_option(keep: Keep) -> object:
    """How finished jobs are kept, as Node's removeOnComplete says it: true keeps none."""
    if keep.age is None:
        return False if keep.count is None else keep.count or True
    # BullMQ keeps this age in whole seconds; never keep shorter than asked.
    option: Options = {"age": -(-(keep.age_ms or 0) // 1000)}
    if keep.count is not None:
        option["count"] = keep.count
    return option


def keep_jobs(option: object) -> Options:
    """The `keepJobs` of moveToFinished for a job's option; `count` is always there."""
    if option is True:
        return {"count": 0}
    if isinstance(option, int) and not isinstance(option, bool):
        return {"count": option}
    if isinstance(option, dict):
        kept = {name: option[name] for name in ("age", "count") if _is_number(option.get(name))}
        if kept:
            return kept
    return {"count": -1}


def read_terms(priority: int, options: Options, private: Options) -> Terms:
    """Make terms from options; most jobs of a queue share one set."""
    get, own = options.get, private.get
    facts = (
        *(priority, get("delay"), get("lifo"), get("attempts"), _frozen(get("backoff"))),
        *(_frozen(get("removeOnComplete")), _frozen(get("removeOnFail")), _frozen(get("de"))),
        *(get("kl"), own("r"), own("t"), own("x"), own("c")),
    )
    try:
        return _shared_terms(*facts)
    except TypeError:  # a list or an object, where no option of ours has one
        return _shared_terms.__wrapped__(*facts)


def _frozen(option: object) -> object:
    return tuple(option.items()) if isinstance(option, dict) else option


def _thawed(option: object) -> object:
    return dict(option) if isinstance(option, tuple) else option


@lru_cache(maxsize=1024, typed=True)
def _shared_terms(priority: int, *facts: object) -> Terms:
    delay, lifo, attempts, backoff, completed, failed, dedup, kept_logs = facts[:8]
    result_ttl, timeout, expires, correlation = facts[8:]
    return Terms(
        delay_ms=whole(delay),
        priority=priority,
        lifo=bool(lifo),
        attempts=max(1, whole(attempts)),
        backoff=_read_backoff(_thawed(backoff)),
        keep_completed=_read_keep(_thawed(completed)),
        keep_failed=_read_keep(_thawed(failed)),
        result_ttl_ms=some(result_ttl),
        timeout_ms=some(timeout),
        expires_ms=some(expires),
        dedup=_read_dedup(_thawed(dedup)),
        keep_logs=whole(kept_logs) if kept_logs is not None else 1000,
        correlation_id=correlation if isinstance(correlation, str) else None,
    )


def _read_backoff(option: object) -> Backoff | None:
    if _is_number(option):
        option = {"type": "fixed", "delay": option}
    if not isinstance(option, dict) or not isinstance(option.get("type"), str):
        return None
    kind, delay = option["type"], whole(option.get("delay")) / 1000
    cap = option.get("maxDelay")
    jitter = option.get("jitter", 0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a long delay is for its producer to be warned of
            if kind not in ("fixed", "exponential"):
                return Backoff.custom(kind, delay)
            max_delay = cap / 1000 if _is_number(cap) else None
            return Backoff(kind, delay, max_delay, jitter if _is_number(jitter) else 0.0)
    except InvalidInput:
        return None


def _read_keep(option: object) -> Keep:
    if option is True:
        return KEEP_NONE
    if isinstance(option, int) and not isinstance(option, bool) and option >= 0:
        return Keep(count=option)
    if isinstance(option, dict):
        count, age = option.get("count"), option.get("age")
        return Keep(
            count=int(count) if _is_number(count) and count >= 0 else None,
            age=age if _is_number(age) and age > 0 else None,
        )
    return KEEP_ALL


def _read_dedup(option: object) -> Dedup | None:
    if not isinstance(option, dict) or not isinstance(option.get("id"), str):
        return None
    ttl = option.get("ttl")
    ttl_s = ttl / 1000 if _is_number(ttl) and ttl > 0 else None
    extend = bool(option.get("extend")) and ttl_s is not None
    try:
        return Dedup(option["id"], ttl_s, extend, bool(option.get("replace")))
    except InvalidInput:
        return None


def _is_number(value: object) -> TypeGuard[int | float]:
    return type(value) in (int, float)  # not bool, which is an int too


def whole(value: object) -> int:
    """Read a whole number that is not negative, 0 for anything else."""
    return some(value) or 0


def some(value: object) -> int | None:
    """Read a whole number, None for anything else."""
    number = plain_number(value)
    return None if number is None else max(0, int(number))
