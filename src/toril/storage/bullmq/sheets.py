"""Read what a job's options say, once for all jobs that share them.

Most jobs of a queue differ in nothing but their id and the origin of their hand-in. With these
two cut out, their options are the same bytes, which need not be decoded again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from toril.job import Terms
from toril.storage.bullmq.leases import note_tail
from toril.storage.bullmq.mending import fault_in
from toril.storage.bullmq.terms import PRIVATE, Options, read_terms, some, whole

try:  # the extra `fast`
    import orjson
except ImportError:
    orjson = None  # type: ignore[assignment]

_MARK: Final = "\x7f"
_RAW_MARK: Final = _MARK.encode()
_LONGEST: Final = 2000
"""Longer options are hardly those of many jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """What options say; `tail` is the part of a lease's note that comes from them."""

    terms: Terms
    origin: str
    reply: bool
    attempts: int
    tail: str
    fault: str | None


class Sheets:
    """Reads the options of jobs one after the other; mostly they are those of the job before."""

    __slots__ = ("_found", "_head", "_priority", "_tail")

    def __init__(self) -> None:
        self._head = self._tail = self._priority = b""
        self._found: tuple[Sheet, str] | None = None

    def read(self, raw_id: bytes, raw: bytes, priority: bytes) -> tuple[Sheet, str]:
        """Read a job's options and priority; give the origin of its hand-in beside them."""
        same = priority == self._priority and raw == self._head + raw_id + self._tail
        if same and self._found is not None:
            return self._found
        found = read_sheet(raw_id.decode(), raw, int(priority))
        head, _, tail = raw.partition(raw_id)
        # An id that stands anywhere else may be a number that counts, or the origin.
        shared = head.endswith(b'"jobId":"') and tail.startswith(b'"') and raw_id not in tail
        self._head, self._tail, self._priority = head, tail, priority
        self._found = found if shared else None
        return found


def read_sheet(job_id: str, raw: bytes, priority: int) -> tuple[Sheet, str]:
    """Read a job's options and priority; give the origin of its hand-in beside them."""
    if len(raw) > _LONGEST or _RAW_MARK in raw:
        return _read(raw, priority)
    raw_id = job_id.encode()
    if raw.count(raw_id) == 2:  # of a job whose id was made for its hand-in
        sheet = _read_shared(raw.replace(raw_id, _RAW_MARK), priority)
        if sheet is not None and sheet.origin == _MARK:
            return sheet, job_id
    key, origin = raw, b""
    start = raw.find(b'"o":"') + 5
    if start > 4:
        stop = raw.find(b'"', start)
        origin = raw[start:stop]
        key = raw[:start] + _RAW_MARK + raw[stop:]
    key = key.replace(b'"jobId":"%b"' % raw_id, b'"jobId":"\x7f"', 1)
    sheet = _read_shared(key, priority)
    if sheet is None or b"\\" in origin:
        return _read(raw, priority)
    return sheet, origin.decode() if sheet.origin == _MARK else sheet.origin


@lru_cache(maxsize=4096)
def _read_shared(key: bytes, priority: int) -> Sheet | None:
    """Read options with marks in them; None if a mark stands for anything but id and origin."""
    options = loads(key)
    if not isinstance(options, dict):
        return None
    private = options.get(PRIVATE)
    known = [options.get("jobId"), private.get("o") if isinstance(private, dict) else None]
    return _sheet(options, priority) if known.count(_MARK) == key.count(_RAW_MARK) else None


def _read(raw: bytes, priority: int) -> tuple[Sheet, str]:
    sheet = _sheet(loads(raw), priority)
    return sheet, sheet.origin


def _sheet(found: object, priority: int) -> Sheet:
    fault = fault_in(found)
    options: Options = found if isinstance(found, dict) else {}
    nested = options.get(PRIVATE)
    private: Options = nested if isinstance(nested, dict) else {}
    terms = read_terms(priority, options, private)
    origin = private.get("o")
    return Sheet(
        terms=terms,
        origin=origin if isinstance(origin, str) else "",
        reply=bool(private.get("w")),
        attempts=whole(options.get("attempts")),
        tail=note_tail(
            *(terms.lifo, options.get("removeOnComplete"), options.get("removeOnFail")),
            *(terms.result_ttl_ms, some(options.get("stackTraceLimit")), bool(private.get("w"))),
        ),
        fault=fault,
    )


def loads(raw: bytes) -> Any:
    """Decode JSON; None for what is none."""
    try:
        return json.loads(raw) if orjson is None else orjson.loads(raw)
    except ValueError:
        pass
    try:  # orjson is stricter
        return json.loads(raw)
    except ValueError:
        return None
