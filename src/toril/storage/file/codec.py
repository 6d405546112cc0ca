"""Turn our values into the columns of a row, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, cast

from toril.errors import SerdeError
from toril.event import Cursor, Event, EventKind
from toril.job import Dedup, Keep, State, Terms
from toril.outcome import Failure
from toril.retry import Backoff

STATES: Final = (
    State.WAITING,
    State.PRIORITIZED,
    State.DELAYED,
    State.ACTIVE,
    State.COMPLETED,
    State.FAILED,
)
WAITING, PRIORITIZED, DELAYED, ACTIVE, COMPLETED, FAILED = range(6)
NUMBERS: Final = {state: number for number, state in enumerate(STATES)}

# kind, job id, job name, attempt, worker id, the fields only some kinds carry
PackedEvent = tuple[str, str | None, str | None, int | None, str | None, dict[str, Any] | None]


_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def pack(value: object) -> str:
    """Write plain data as JSON; pure ASCII, so that no text of a handler can be refused."""
    return _ENCODER.encode(value)


def unpack(text: str) -> Any:
    """Undo `pack`."""
    return json.loads(text)


@lru_cache(maxsize=1024)
def pack_terms(terms: Terms) -> str:
    """Pack a job's terms; most jobs of a queue share one set."""
    backoff, dedup = terms.backoff, terms.dedup
    return pack(
        (
            terms.delay_ms,
            terms.priority,
            terms.lifo,
            terms.attempts,
            backoff
            and (backoff.kind, backoff.delay, backoff.max_delay, backoff.jitter, backoff.is_custom),
            (terms.keep_completed.count, terms.keep_completed.age),
            (terms.keep_failed.count, terms.keep_failed.age),
            terms.result_ttl_ms,
            terms.timeout_ms,
            terms.expires_ms,
            dedup and (dedup.key, dedup.ttl, dedup.extend, dedup.replace),
            terms.keep_logs,
            terms.correlation_id,
        )
    )


@lru_cache(maxsize=1024)
def unpack_terms(text: str) -> Terms:
    """Undo `pack_terms`; raise SerdeError for bytes that it did not make."""
    try:
        fields = unpack(text)
        delay, priority, lifo, attempts, backoff, completed, failed = fields[:7]
        result_ttl, timeout, expires, dedup, keep_logs, correlation_id = fields[7:]
        return Terms(
            delay_ms=delay,
            priority=priority,
            lifo=lifo,
            attempts=attempts,
            backoff=Backoff(*backoff) if backoff else None,
            keep_completed=Keep(*completed),
            keep_failed=Keep(*failed),
            result_ttl_ms=result_ttl,
            timeout_ms=timeout,
            expires_ms=expires,
            dedup=Dedup(*dedup) if dedup else None,
            keep_logs=keep_logs,
            correlation_id=correlation_id,
        )
    except Exception as error:  # whatever lies there, it is not ours
        raise SerdeError(f"stored job options are unreadable: {error}") from error


def pack_failure(failure: Failure) -> str:
    """Pack a failure."""
    return pack((failure.kind, failure.reason, failure.stack))


def unpack_failure(text: str | None) -> Failure | None:
    """Undo `pack_failure`."""
    if text is None:
        return None
    kind, reason, stack = unpack(text)
    return Failure(kind=kind, reason=reason, stack=stack)


def unpack_stacks(text: str | None) -> tuple[str, ...]:
    """Read the stacks of a job's failures, oldest first."""
    return () if text is None else tuple(unpack(text))


def read_events(last: int, time_ms: int, body: str) -> Iterator[Event]:
    """Read the events of one row."""
    packed = cast("Sequence[PackedEvent]", unpack(body))
    number = last - len(packed)
    for kind, job_id, job_name, attempt, worker_id, extras in packed:
        number += 1
        yield Event(
            kind=EventKind(kind),
            cursor=Cursor(number),
            time_ms=time_ms,
            job_id=job_id,
            job_name=job_name,
            attempt=attempt,
            worker_id=worker_id,
            **(extras or {}),
        )
