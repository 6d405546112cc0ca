"""Turn our values into the fields and options of a BullMQ job, and back.

Options travel as MessagePack, text only: a bin value makes the script die. Lua prints them as
JSON, with 14 digits and no difference between [] and {}. What BullMQ has no option for lies
under the one private key `toril`. Whatever Node wrote is read without complaint: an option we
cannot make sense of is as good as none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgpack

from toril.errors import InvalidInput
from toril.job import JobRecord, JobSpec, State
from toril.outcome import CANCELLED, Failure, Lease
from toril.quick import new_lease, new_spec
from toril.storage.bullmq.leases import write_note
from toril.storage.bullmq.mending import BROKEN, fault_of
from toril.storage.bullmq.sheets import Sheet, Sheets, loads, read_sheet
from toril.storage.bullmq.terms import PRIVATE, Options, write_terms
from toril.storage.protocol import Claimed
from toril.storage.quick import new_claimed

Fields = Mapping[bytes, bytes]

STATES: Final = {state.value.encode(): state for state in State}
STALLED_TEXT: Final = b"job stalled more than allowable limit"
CANCELLED_TEXT: Final = b"cancelled while it ran; its worker is gone"
KIND: Final = "toril-kind"
BROKEN_KIND: Final = "SerdeError"
BARE: Final = (b"name", b"data", b"opts", b"timestamp", b"priority")
"""The fields that `finish.lua` gives of a bare job, in its order."""
_RUNNING: Final = frozenset({*BARE, b"delay", b"processedOn", b"pb", b"ats"})
"""The fields that every running job has."""


def pack(value: object) -> bytes:
    """Pack plain data, text as text; what is not UTF-8 is escaped, so that Node can read it."""
    return cast("bytes", msgpack.packb(value, use_bin_type=True, unicode_errors="backslashreplace"))


def pack_texts(values: Sequence[str | bytes]) -> bytes:
    """Pack many texts into one for a script of our own, bytes as they are."""
    return cast("bytes", msgpack.packb(values, use_bin_type=False))


def unpack_texts(packed: bytes) -> list[Any]:
    """Unpack what a script of our own packed; texts are bytes, hashes lists of them."""
    return cast("list[Any]", msgpack.unpackb(packed, raw=True))


def clean(text: str) -> str:
    """Escape what UTF-8 cannot hold."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


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
    options: Options = {**write_terms(spec.terms)}
    if spec.id:
        options["jobId"] = spec.id
    private = dict(cast("Options", options.get(PRIVATE, {})))
    if spec.origin:
        private["o"] = spec.origin
    if spec.reply:
        private["w"] = 1
    if private:
        options[PRIVATE] = private
    return options


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
    return _dict(loads(fields.get(b"opts", b"{}")))


def _sheet_of(job_id: str, fields: Fields) -> tuple[Sheet, str]:
    return read_sheet(job_id, fields.get(b"opts", b"{}"), number(fields, b"priority"))


def read_spec(job_id: str, fields: Fields) -> JobSpec:
    """Make a spec from a job's hash."""
    return _spec(job_id, fields, *_sheet_of(job_id, fields))


def _spec(job_id: str, fields: Fields, sheet: Sheet, origin: str) -> JobSpec:
    return JobSpec(
        id=job_id,
        name=_text(fields.get(b"name", b"")),
        payload=fields.get(b"data", b"{}"),
        terms=sheet.terms,
        origin=origin,
        reply=sheet.reply or b"toril-w" in fields,
    )


def read_claimed(job_id: str, fields: Fields, token: str, now_ms: int) -> Claimed:
    """Make a job in hand from its hash."""
    sheet, origin = _sheet_of(job_id, fields)
    made = attempts_made(fields)
    started, stalls = number(fields, b"ats"), number(fields, b"stc")
    created = number(fields, b"timestamp")
    bare = fields.keys() == _RUNNING
    note = write_note(created, started, stalls, _tail(fields, sheet), bare=bare)
    return Claimed(
        spec=_spec(job_id, fields, sheet, origin),
        lease=Lease(job_id=job_id, token=token, attempt=made + 1, note=note),
        created_ms=created,
        age_ms=max(0, now_ms - created),
        started=started,
        attempts_made=made,
        stalls=stalls,
        doom=_read_doom(fields, sheet),
    )


def read_bare(parts: Sequence[bytes], sheets: Sheets, token: str, now_ms: int) -> Claimed | None:
    """Make a job in hand from its id and the fields `BARE`; None for one that is not sound."""
    raw_id, name, data, opts, timestamp, priority = parts
    if not (timestamp.isdigit() and priority.isdigit()):
        return None
    job_id = raw_id.decode()
    sheet, origin = sheets.read(raw_id, opts, priority)
    if sheet.fault is not None:
        return None
    created = int(timestamp)
    return new_claimed(
        spec=new_spec(
            id=job_id,
            name=_text(name),
            payload=data,
            terms=sheet.terms,
            origin=origin,
            reply=sheet.reply,
        ),
        lease=new_lease(
            job_id=job_id,
            token=token,
            attempt=1,
            note=write_note(created, 1, 0, sheet.tail, bare=True),
        ),
        created_ms=created,
        age_ms=max(0, now_ms - created),
        started=1,
        attempts_made=0,
        stalls=0,
        doom=None,
    )


def _tail(fields: Fields, sheet: Sheet) -> str:
    if b"defa" not in fields or not _is_childs_fault(fields):
        return sheet.tail
    head, _, _ = sheet.tail.rpartition(",")
    return f"{head},{sheet.attempts}]"


def _is_childs_fault(fields: Fields) -> bool:
    return fields.get(b"defa", b"").startswith(b"child ")


def _read_doom(fields: Fields, sheet: Sheet) -> Failure | None:
    reason = fields.get(b"defa")
    if b"data" not in fields:
        return Failure(kind="JobMissing", reason="only its id was in line; its data is gone")
    if reason is None:
        fault = fault_of(fields) or sheet.fault
        return None if fault is None else Failure(kind=BROKEN_KIND, reason=fault)
    text = _text(reason)
    if text.startswith(BROKEN):
        return Failure(kind=BROKEN_KIND, reason=text)
    kind = "ChildFailed" if _is_childs_fault(fields) else "JobStalled"
    return Failure(kind=CANCELLED if reason == CANCELLED_TEXT else kind, reason=text)


def read_record(job_id: str, fields: Fields, state: State, due_ms: int | None) -> JobRecord:
    """Make a stored job from its hash."""
    completed = state is State.COMPLETED
    worker = fields.get(b"pb")
    return JobRecord(
        spec=read_spec(job_id, fields),
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
    raw = fields.get(name)
    if raw is None:
        return 0
    try:
        return int(raw) if raw.isdigit() else int(float(raw))
    except (ValueError, OverflowError):  # not a number, or not a finite one
        return 0


def _dict(value: object) -> Options:
    return value if isinstance(value, dict) else {}


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
