"""Turn our values into what the scripts store, and back.

Bytes are MessagePack throughout: Lua packs records and events, we pack specs and failures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final, assert_never, cast

import msgpack

from toril.errors import SerdeError
from toril.event import Cursor, Event, EventKind
from toril.job import Dedup, JobRecord, JobSpec, Keep, State, Terms
from toril.outcome import (
    CANCELLED,
    Answer,
    Completed,
    Failed,
    Failure,
    Outcome,
    Postponed,
    Released,
    Retried,
)
from toril.outcome import DONE as _DONE
from toril.outcome import GONE as _GONE
from toril.outcome import LOST as _LOST
from toril.quick import new_lease, new_spec
from toril.retry import Backoff
from toril.storage.protocol import Batch, Claimed, Ending, EndingKind
from toril.storage.quick import new_claimed

Packed = Sequence[Any]

STATES: Final = {
    "w": State.WAITING,
    "p": State.PRIORITIZED,
    "d": State.DELAYED,
    "a": State.ACTIVE,
    "c": State.COMPLETED,
    "f": State.FAILED,
}
LETTERS: Final = {state: letter for letter, state in STATES.items()}
WAITING: Final = b"+w"
"""What is answered for a new job in the plain line."""
ANSWERS: Final[Mapping[str, Answer]] = {"D": _DONE, "L": _LOST, "G": _GONE}
_KINDS: Final = {Failed: "f", Retried: "r", Postponed: "p", Released: "l"}
_ENDINGS: Final = {
    "c": EndingKind.COMPLETED,
    "f": EndingKind.FAILED,
    "x": EndingKind.CANCELLED,
    "g": EndingKind.GONE,
}


def pack(value: object) -> bytes:
    """Pack plain data."""
    return cast("bytes", msgpack.packb(value))


def unpack(payload: bytes) -> Packed:
    """Unpack an array that Lua or we packed; text that is not UTF-8 comes back as bytes."""
    found: Packed = msgpack.unpackb(payload, strict_map_key=False, unicode_errors="replace")
    return found


# -- what was asked of a job ---------------------------------------------------------------------


@lru_cache(maxsize=1024)
def pack_terms(terms: Terms) -> bytes:
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
def unpack_terms(blob: bytes) -> Terms:
    """Undo `pack_terms`."""
    fields = unpack(blob)
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


def pack_spec(spec: JobSpec) -> bytes:
    """Pack what only clients read of a job."""
    return pack((spec.name, spec.payload, pack_terms(spec.terms), spec.origin))


def unpack_spec(job_id: str, blob: bytes | None) -> JobSpec:
    """Undo `pack_spec`; raise SerdeError for bytes that it did not make."""
    try:
        name, payload, terms, origin = unpack(cast("bytes", blob))
        known = unpack_terms(terms)
        if not isinstance(name, str) or not isinstance(payload, bytes):
            raise TypeError(f"name and payload are {type(name)} and {type(payload)}")
    except Exception as error:  # whatever lies there, it is not ours
        fate = "missing" if blob is None else "unreadable"
        raise SerdeError(f"job {job_id!r}: its stored name, data and options are {fate}") from error
    return new_spec(id=job_id, name=name, payload=payload, terms=known, origin=origin)


def _spec(job_id: str, blob: bytes | None) -> tuple[JobSpec, Failure | None]:
    """Read a spec, or make one that holds the place of the unreadable, and say why."""
    try:
        return unpack_spec(job_id, blob), None
    except SerdeError as error:
        failure = Failure(kind="SerdeError", reason=str(error))
        return JobSpec(id=job_id, name="unreadable", payload=blob or b""), failure


def pack_failure(failure: Failure) -> bytes:
    """Pack one failure, to be joined to those before it."""
    return pack((failure.kind, failure.reason, failure.stack))


def _failure(blob: bytes | None) -> tuple[Failure | None, tuple[str, ...]]:
    if blob is None:
        return None, ()
    kind, reason, *stacks = unpack(blob)
    stack = stacks[-1] if stacks else ""
    return Failure(kind=kind, reason=reason, stack=stack), tuple(stacks)


def read_answers(reply: Any) -> list[bytes]:
    """Read what `enqueue.lua` returned: an answer per job, or how many there are, all alike."""
    return [WAITING] * reply if isinstance(reply, int) else cast("list[bytes]", reply)


# -- ends of attempts --------------------------------------------------------------------------


def pack_outcomes(outcomes: Sequence[Outcome]) -> bytes:
    """Pack outcomes for `settle.lua`: one argument, since each costs the server.

    Completed jobs of one claim, the usual case, share a row.
    """
    rows: list[object] = [len({one.lease.job_id for one in outcomes}) == len(outcomes)]
    row: list[object] = []
    token = note = ""
    for outcome in outcomes:
        lease = outcome.lease
        if not isinstance(outcome, Completed):
            started = int(lease.note or 0)
            kind = _KINDS[type(outcome)]
            rows.append([kind, lease.token, started, lease.job_id, *_details(outcome)])
            row = []
            continue
        if not row or lease.token != token or lease.note != note:
            token, note = lease.token, lease.note
            row = ["c", token, int(note or 0)]
            rows.append(row)
        row += (lease.job_id, outcome.result)
    return cast("bytes", msgpack.packb(rows, use_bin_type=False))


def _details(outcome: Failed | Retried | Postponed | Released) -> tuple[object, object]:
    match outcome:
        case Failed():
            return pack_failure(outcome.failure), int(outcome.exhausted)
        case Retried():
            return pack_failure(outcome.failure), outcome.delay_ms
        case Postponed():
            delay = "" if outcome.delay_ms is None else outcome.delay_ms
            return delay, "" if outcome.until_ms is None else outcome.until_ms
        case Released():
            return "", ""
        case _:
            assert_never(outcome)


# -- jobs on their way out ---------------------------------------------------------------------


def read_batch(claim_token: str, reply: Packed) -> Batch:
    """Read what a claim returned."""
    limited, next_in, now, ids, blobs, facts = reply
    jobs: list[Claimed] = []
    last: JobSpec | None = None
    frame: tuple[bytes, bytes] | None = None
    entries = zip(ids, blobs, strict=True)
    for count, created, made, started, stalls in zip(*[iter(facts)] * 5, strict=True):
        attempt, note, age = made + 1, str(started), max(0, now - created)
        for raw_id, blob in islice(entries, count):
            job_id, doom = raw_id.decode(), None
            payload = _between(blob, *frame) if frame is not None else None
            if last is not None and payload is not None:
                spec = new_spec(
                    id=job_id, name=last.name, payload=payload, terms=last.terms, origin=last.origin
                )
            else:
                spec, doom = _spec(job_id, blob)
                # Jobs handed in together differ in their payloads only.
                twins = last is not None and last.origin == spec.origin and doom is None
                frame = _around(blob, spec) if twins else None
                last = spec
            lease = new_lease(job_id=job_id, token=claim_token, attempt=attempt, note=note)
            jobs.append(
                new_claimed(
                    spec=spec,
                    lease=lease,
                    created_ms=created,
                    age_ms=age,
                    started=started,
                    attempts_made=made,
                    stalls=stalls,
                    doom=doom,
                )
            )
    return Batch(jobs=jobs, limited_for_ms=limited, next_in_ms=None if next_in < 0 else next_in)


def _around(blob: bytes, spec: JobSpec) -> tuple[bytes, bytes] | None:
    """Cut off what stands before and after the payload in a packed spec.

    None unless the name takes up to 31 bytes and the payload up to 255, as most do.
    """
    at, size = 2 + len(spec.name.encode()), len(spec.payload)
    if size > 255 or blob[at : at + 2] != bytes((0xC4, size)):
        return None
    return blob[:at], blob[at + 2 + size :]


def _between(blob: bytes | None, start: bytes, end: bytes) -> bytes | None:
    """Take the payload, of up to 255 bytes, from between two parts; None if it is not there."""
    if blob is None or not blob.startswith(start) or not blob.endswith(end):
        return None
    at, size = len(start), len(blob) - len(start) - len(end) - 2
    if not 0 <= size < 256 or blob[at] != 0xC4 or blob[at + 1] != size:
        return None
    return blob[at + 2 : at + 2 + size]


def read_records(ids: Sequence[str], reply: Packed) -> Iterator[JobRecord | None]:
    """Read what `get.lua` returned."""
    for number, job_id in enumerate(ids):
        raw, blob, result, progress = reply[4 * number : 4 * number + 4]
        yield None if raw is None else _record(job_id, raw, blob, result, progress)


def _record(
    job_id: str, raw: bytes, blob: bytes | None, result: bytes | None, progress: bytes | None
) -> JobRecord:
    state, _, created, made, started, stalls, _, _, worker, since, processed, *rest = unpack(raw)
    extra = rest[-1]
    done = STATES[state]
    completed = done is State.COMPLETED
    failure, stacks = _failure(None if completed or not (made or stalls) else result)
    return JobRecord(
        spec=_spec(job_id, blob)[0],
        state=done,
        created_ms=created,
        due_ms=(extra or {}).get("d"),
        attempts_made=made,
        attempts_started=started,
        stalls=stalls,
        processed_ms=processed or None,
        finished_ms=since if done in (State.COMPLETED, State.FAILED) else None,
        worker_id=worker_of(worker),
        progress=progress,
        result=result if completed else None,
        failure=failure,
        stacktrace=stacks,
    )


def worker_of(member: str | bool) -> str | None:
    """Take the id from a worker's entry, which may hold a name as well."""
    return str(member).partition("\n")[0] if member else None


def read_ending(job_id: str, letter: str, payload: bytes | None) -> Ending:
    """Read one ending as the scripts tell it."""
    kind = _ENDINGS[letter]
    if kind is EndingKind.COMPLETED:
        return Ending(id=job_id, kind=kind, result=payload)
    if kind is EndingKind.FAILED:
        failure, _ = _failure(payload)
        if failure is not None and failure.kind == CANCELLED:
            kind = EndingKind.CANCELLED
        return Ending(id=job_id, kind=kind, failure=failure)
    return Ending(id=job_id, kind=kind)


def read_message(message: bytes) -> tuple[str, str, bytes | None, str]:
    """Read an ending pushed to a waiting client: id, letter, result or failure, origin."""
    job_id, letter, payload, origin = msgpack.unpackb(message, raw=True)
    ending = None if payload is False else payload
    return job_id.decode(), letter.decode(), ending, origin.decode()


# What the two free fields of an event hold, by its kind.
FREE_FIELDS: Final = {
    EventKind.DELAYED: ("delay_ms", ""),
    EventKind.COMPLETED: ("duration_ms", "result_size"),
    EventKind.FAILED: ("duration_ms", "reason"),
    EventKind.RETRYING: ("delay_ms", "reason"),
    EventKind.PROGRESS: ("", "progress"),
    EventKind.DEDUPLICATED: ("dedup_id", "other_id"),
    EventKind.REMOVED: ("", "reason"),
    EventKind.CLEANED: ("count", ""),
}


Entry = tuple[int, int, Sequence[Any]]
"""A stream entry: the number of its first event, their time, and eight fields of each, one after
the other. Events alike but for their ids lie there as one: kinds, ids, and the six other fields."""


def unpack_entry(raw_id: bytes, blob: bytes) -> Entry:
    """Unpack an entry of the stream, whose id is the number of its last event."""
    time_ms, packed = unpack(blob)
    count = len(packed) // 8
    for at in range(0, len(packed), 8):
        if type(packed[at]) is list:
            count += len(packed[at]) * len(packed[at + 1]) - 1
    return int(raw_id.partition(b"-")[0]) - count + 1, time_ms, packed


def flatten(packed: Sequence[Any]) -> list[Any]:
    """Take events apart: eight fields of each, one after the other."""
    flat: list[Any] = []
    for at in range(0, len(packed), 8):
        kind = packed[at]
        if type(kind) is list:
            rest = packed[at + 2 : at + 8]
            for job_id in packed[at + 1]:
                for one in kind:
                    flat += (one, job_id, *rest)
        else:
            flat += packed[at : at + 8]
    return flat


def read_entry(raw_id: bytes, blob: bytes) -> Iterator[Event]:
    """Read the events packed into one stream entry, whose id is the number of its last."""
    first, time_ms, packed = unpack_entry(raw_id, blob)
    flat = flatten(packed)
    for number, at in enumerate(range(0, len(flat), 8), first):
        word, job_id, attempt, name, worker, prev, x, y = flat[at : at + 8]
        kind = EventKind(word)
        fields = zip(FREE_FIELDS.get(kind, ()), (x, y), strict=False)
        free = {field: value for field, value in fields if field and value is not False}
        yield Event(
            kind=kind,
            cursor=Cursor(number),
            time_ms=time_ms,
            job_id=job_id or None,
            job_name=name or None,
            attempt=None if attempt is False else attempt,
            worker_id=worker_of(worker),
            prev=prev or None,
            **free,
        )
