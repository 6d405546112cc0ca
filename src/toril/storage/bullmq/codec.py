"""Turn our values into the fields and options of a BullMQ job, and back.

Options travel as MessagePack, text only: a bin value makes the script die. Lua prints them as
JSON, with 14 digits and no difference between [] and {}. What BullMQ has no option for lies
under the one private key `toril`. Whatever Node wrote is read without complaint: an option we
cannot make sense of is as good as none.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypedDict, TypeGuard, cast

import msgpack

from toril.errors import InvalidInput
from toril.job import KEEP_ALL, KEEP_NONE, Dedup, JobRecord, JobSpec, Keep, State, Terms
from toril.outcome import CANCELLED, Failure, Lease
from toril.retry import HOUR, Backoff
from toril.storage.protocol import Claimed

Fields = Mapping[bytes, bytes]
Options = dict[str, Any]

STATES: Final = {state.value.encode(): state for state in State}
STALLED_TEXT: Final = b"job stalled more than allowable limit"
CANCELLED_TEXT: Final = b"cancelled while it ran; its worker is gone"
KIND: Final = "toril-kind"
_PRIVATE: Final = "toril"
_DEFAULT_CAP_MS: Final = int(HOUR * 1000)


class Note(TypedDict):
    """What a lease must know of its job when it is settled."""

    made_ms: int
    ats: int
    stc: int
    lifo: bool
    keep_completed: object
    keep_failed: object
    ttl_ms: int | None
    stacks: int | None
    attempts: int | None
    """Set for a parent that a child fails: Node then goes by the number of its attempts."""


def pack(value: object) -> bytes:
    """Pack plain data, text as text; what is not UTF-8 is escaped, so that Node can read it."""
    return cast("bytes", msgpack.packb(value, use_bin_type=True, unicode_errors="backslashreplace"))


def clean(text: str) -> str:
    """Escape what UTF-8 cannot hold."""
    return text.encode(errors="backslashreplace").decode()


def dumps(value: object) -> str:
    """Write JSON as Node does."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def fields_of(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    """Read a hash as scripts return it."""
    parts = iter(flat)
    return dict(zip(parts, parts, strict=True))


# -- jobs on their way in ----------------------------------------------------------------------


def options_of(spec: JobSpec) -> Options:
    """The options of a job as Node would pack them."""
    options: Options = {**_shared_options(spec.terms), "jobId": spec.id}
    private = dict(cast("Options", options.get(_PRIVATE, {})))
    if spec.origin:
        private["o"] = spec.origin
    if spec.reply:
        private["w"] = 1
    if private:
        options[_PRIVATE] = private
    return options


@lru_cache(maxsize=1024)
def _shared_options(terms: Terms) -> Options:
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
        options[_PRIVATE] = private
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


def check_payload(what: str, payload: bytes) -> str:
    """Refuse data that Node could not read."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        raise InvalidInput(
            f"{what}: {len(payload):,} bytes that are not UTF-8; the BullMQ wire holds JSON text"
        ) from None


# -- jobs on their way out ---------------------------------------------------------------------


def read_options(fields: Fields) -> Options:
    """Decode a job's options; none if they are not what they should be."""
    try:
        options = json.loads(fields.get(b"opts", b"{}"))
    except ValueError:
        return {}
    return options if isinstance(options, dict) else {}


def read_spec(job_id: str, fields: Fields, options: Options) -> JobSpec:
    """Make a spec from a job's hash."""
    private = _dict(options.get(_PRIVATE))
    origin = private.get("o")
    return JobSpec(
        id=job_id,
        name=_text(fields.get(b"name", b"")),
        payload=fields.get(b"data", b"{}"),
        terms=_read_terms(fields, options, private),
        origin=origin if isinstance(origin, str) else "",
        reply=bool(private.get("w")) or b"toril-w" in fields,
    )


def _read_terms(fields: Fields, options: Options, private: Options) -> Terms:
    correlation = private.get("c")
    return Terms(
        delay_ms=_whole(options.get("delay")),
        priority=number(fields, b"priority"),
        lifo=bool(options.get("lifo")),
        attempts=max(1, _whole(options.get("attempts"))),
        backoff=_read_backoff(options.get("backoff")),
        keep_completed=_read_keep(options.get("removeOnComplete")),
        keep_failed=_read_keep(options.get("removeOnFail")),
        result_ttl_ms=_some(private.get("r")),
        timeout_ms=_some(private.get("t")),
        expires_ms=_some(private.get("x")),
        dedup=_read_dedup(options.get("de")),
        keep_logs=_whole(options.get("kl", 1000)),
        correlation_id=correlation if isinstance(correlation, str) else None,
    )


def _read_backoff(option: object) -> Backoff | None:
    if _is_number(option):
        option = {"type": "fixed", "delay": option}
    if not isinstance(option, dict) or not isinstance(option.get("type"), str):
        return None
    kind, delay = option["type"], _whole(option.get("delay")) / 1000
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


def read_claimed(job_id: str, fields: Fields, token: str, now_ms: int) -> Claimed:
    """Make a job in hand from its hash."""
    options = read_options(fields)
    spec = read_spec(job_id, fields, options)
    made = attempts_made(fields)
    started, stalls = number(fields, b"ats"), number(fields, b"stc")
    created = number(fields, b"timestamp")
    note: Note = {
        "made_ms": created,
        "ats": started,
        "stc": stalls,
        "lifo": spec.terms.lifo,
        "keep_completed": options.get("removeOnComplete"),
        "keep_failed": options.get("removeOnFail"),
        "ttl_ms": spec.terms.result_ttl_ms,
        "stacks": _some(options.get("stackTraceLimit")),
        "attempts": _whole(options.get("attempts")) if _is_childs_fault(fields) else None,
    }
    return Claimed(
        spec=spec,
        lease=Lease(job_id=job_id, token=token, attempt=made + 1, note=write_note(note)),
        created_ms=created,
        age_ms=max(0, now_ms - created),
        started=started,
        attempts_made=made,
        stalls=stalls,
        doom=_read_doom(fields),
    )


def write_note(note: Note) -> str:
    """Write a note as a short JSON list."""
    return dumps(list(note.values()))


def read_note(lease: Lease) -> Note:
    """Read a lease's note; a foreign one says as little as possible."""
    try:
        values = json.loads(lease.note)
        names = Note.__annotations__
        if isinstance(values, list) and len(values) == len(names):
            return cast("Note", dict(zip(names, values, strict=True)))
    except ValueError:
        pass
    return {
        "made_ms": -1,
        "ats": -1,
        "stc": -1,
        "lifo": False,
        "keep_completed": None,
        "keep_failed": None,
        "ttl_ms": None,
        "stacks": None,
        "attempts": None,
    }


def _is_childs_fault(fields: Fields) -> bool:
    return fields.get(b"defa", b"").startswith(b"child ")


def _read_doom(fields: Fields) -> Failure | None:
    reason = fields.get(b"defa")
    if reason is None:
        return None
    kind = "ChildFailed" if _is_childs_fault(fields) else "JobStalled"
    return Failure(kind=CANCELLED if reason == CANCELLED_TEXT else kind, reason=_text(reason))


def read_record(job_id: str, fields: Fields, state: State, due_ms: int | None) -> JobRecord:
    """Make a stored job from its hash."""
    options = read_options(fields)
    completed = state is State.COMPLETED
    worker = fields.get(b"pb")
    return JobRecord(
        spec=read_spec(job_id, fields, options),
        state=state,
        created_ms=number(fields, b"timestamp"),
        due_ms=due_ms if state is State.DELAYED else None,
        attempts_made=attempts_made(fields),
        attempts_started=number(fields, b"ats"),
        stalls=number(fields, b"stc"),
        processed_ms=number(fields, b"processedOn") or None,
        finished_ms=number(fields, b"finishedOn") or None,
        worker_id=None if worker is None else _text(worker),
        progress=fields.get(b"progress"),
        result=fields.get(b"returnvalue") if completed else None,
        failure=None if completed else read_failure(fields),
        stacktrace=read_stacks(fields.get(b"stacktrace")),
    )


def read_failure(fields: Fields) -> Failure | None:
    """Read why a job failed last."""
    reason = fields.get(b"failedReason")
    if reason is None:
        return None
    kind = fields.get(KIND.encode())
    text = _text(reason)
    if kind is None and text[:1] == text[-1:] == '"' and len(text) > 1:
        text = _unquote(text)
    stacks = read_stacks(fields.get(b"stacktrace"))
    return Failure(
        kind="Error" if kind is None else _text(kind),
        reason=text,
        stack=stacks[-1] if stacks else "",
    )


def _unquote(text: str) -> str:
    """Undo what the official Python client does to the last failure's reason."""
    try:
        return str(json.loads(text))
    except ValueError:
        return text


def read_stacks(raw: bytes | None) -> tuple[str, ...]:
    """Read the stack traces of a job, oldest first."""
    try:
        stacks = json.loads(raw or b"[]")
    except ValueError:
        return ()
    return tuple(one for one in stacks if isinstance(one, str) and one) if stacks else ()


def add_stack(raw: bytes | None, failure: Failure, limit: int | None) -> str:
    """Append a stack trace to those of a job, as JSON."""
    stacks = [*read_stacks(raw), *([clean(failure.stack)] if failure.stack else [])]
    if limit is not None:
        stacks = stacks[-limit:] if limit > 0 else []
    return dumps(stacks)


def attempts_made(fields: Fields) -> int:
    """How many attempts ended; older jobs have the long name."""
    return number(fields, b"atm") or number(fields, b"attemptsMade")


def number(fields: Fields, name: bytes) -> int:
    """Read a whole number, 0 where there is none."""
    try:
        return int(float(fields.get(name, b"0")))
    except ValueError:
        return 0


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(value: object) -> int:
    return max(0, int(value)) if _is_number(value) else 0


def _some(value: object) -> int | None:
    return _whole(value) if _is_number(value) else None


def _dict(value: object) -> Options:
    return value if isinstance(value, dict) else {}


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
