"""The options of a job in both languages."""

from __future__ import annotations

from typing import Any, TypedDict

from toril.job import Dedup, Keep, Terms
from toril.retry import Backoff


class TermsGiven(TypedDict, total=False):
    """The options a scenario may give."""

    delay_ms: int
    priority: int
    lifo: bool
    attempts: int
    backoff: Backoff | None
    keep_completed: Keep
    keep_failed: Keep
    dedup: Dedup | None
    keep_logs: int


def terms_of(given: TermsGiven) -> Terms:
    """What toril's storages are given."""
    return Terms(**given)


def node_options(terms: Terms) -> dict[str, Any]:
    """What Node is given for the same: only what a user would write."""
    options: dict[str, Any] = {"attempts": terms.attempts, "keepLogs": terms.keep_logs}
    if terms.delay_ms:
        options["delay"] = terms.delay_ms
    if terms.priority:
        options["priority"] = terms.priority
    if terms.lifo:
        options["lifo"] = True
    if terms.backoff is not None:
        options["backoff"] = _backoff(terms.backoff)
    if terms.keep_completed != Keep():
        options["removeOnComplete"] = _keep(terms.keep_completed)
    if terms.keep_failed != Keep():
        options["removeOnFail"] = _keep(terms.keep_failed)
    if terms.dedup is not None:
        options["deduplication"] = _dedup(terms.dedup)
    return options


def _backoff(backoff: Backoff) -> dict[str, Any]:
    return {"type": backoff.kind, "delay": backoff.delay_ms}


def _keep(keep: Keep) -> bool | int | dict[str, int]:
    if keep.age_ms is None:
        assert keep.count is not None
        return True if keep.count == 0 else keep.count
    bounds = {"age": keep.age_ms // 1000}
    return bounds if keep.count is None else {**bounds, "count": keep.count}


def _dedup(dedup: Dedup) -> dict[str, Any]:
    options: dict[str, Any] = {"id": dedup.key}
    if dedup.ttl_ms is not None:
        options["ttl"] = dedup.ttl_ms
    if dedup.extend:
        options["extend"] = True
    if dedup.replace:
        options["replace"] = True
    return options
