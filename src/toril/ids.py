"""Make ids and check names, before anything is sent.

Names end up in keys, log lines, URLs and terminals of several languages, so one validator
decides for all storages, also for those that could store more.
"""

from __future__ import annotations

import os
import re
import socket
import time
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from toril.errors import InvalidInput, InvalidName
from toril.serde import encode_json
from toril.text import printable, type_name

NAME_LIMIT: Final = 255

RESERVED_IDS: Final = frozenset(
    {
        "active",
        "wait",
        "waiting-children",
        "paused",
        "completed",
        "failed",
        "delayed",
        "repeat",
        "stalled",
        "limiter",
        "prioritized",
        "id",
        "stalled-check",
        "meta",
        "pc",
        "events",
        "marker",
        "de",
        "metrics",
        "metrics:completed",
        "metrics:failed",
        "dn",
        "toril-ttl",
        "toril-workers",
        "toril-cancel",
        "toril-back",
        "toril-stream",
    }
)
"""Suffixes of the queue's own keys: a job of that id would overwrite them."""

_CROCKFORD: Final = "0123456789abcdefghjkmnpqrstvwxyz"
# Two characters a lookup: ten bits.
_PAIRS: Final = tuple(high + low for high in _CROCKFORD for low in _CROCKFORD)


def ulid(now_ms: int | None = None) -> str:
    """Make a job id: 48 bits of time, 80 random bits, 26 characters in lower case.

    Two ids of the same millisecond are in no order.
    """
    if now_ms is None:
        now_ms = time.time_ns() // 1_000_000
    elif not 0 <= now_ms < 1 << 48:
        raise InvalidInput(f"now_ms={now_ms} is outside 0..{(1 << 48) - 1}; pass unix milliseconds")
    noise = int.from_bytes(os.urandom(10), "big")
    high, low = noise >> 40, noise & 0xFFFFFFFFFF
    pairs = _PAIRS
    return (
        f"{pairs[now_ms >> 40]}{pairs[now_ms >> 30 & 1023]}{pairs[now_ms >> 20 & 1023]}"
        f"{pairs[now_ms >> 10 & 1023]}{pairs[now_ms & 1023]}"
        f"{pairs[high >> 30]}{pairs[high >> 20 & 1023]}{pairs[high >> 10 & 1023]}"
        f"{pairs[high & 1023]}"
        f"{pairs[low >> 30]}{pairs[low >> 20 & 1023]}{pairs[low >> 10 & 1023]}{pairs[low & 1023]}"
    )


def ulids(count: int) -> list[str]:
    """Make many job ids at once, each after the one before: one draw of noise, then a count.

    They share 60 random bits, enough to differ from everybody else's of the same millisecond.
    """
    pairs = _PAIRS
    found: list[str] = []
    while len(found) < count:
        stem = ulid()[:22]
        for high in pairs:
            head = stem + high
            found += [head + low for low in pairs[: count - len(found)]]
            if len(found) == count:
                break
    return found


_VARIANTS: Final = {f"{digit:x}": "89ab"[digit % 4] for digit in range(16)}


def token() -> str:
    """Make a lease token that nobody else makes or guesses."""
    # Version 4 by hand: `uuid` costs more at import than all else here.
    digits = os.urandom(16).hex()
    variant = _VARIANTS[digits[16]]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def worker_id() -> str:
    """Make a worker id that tells host and process."""
    host = re.sub(r"[^0-9A-Za-z._-]+", "-", socket.gethostname())[:128] or "host"
    return f"{host}-{os.getpid()}-{os.urandom(3).hex()}"


def content_id(data: object) -> str:
    """Derive an id from JSON data: equal data, equal id, in whatever order the keys come.

    Equal means equal as JSON text: a tuple is a list, but 1 and 1.0 differ.
    """
    import hashlib  # few need it, everybody would wait for it

    # The letter keeps a digest of digits only from being taken for a counter's id.
    return "c" + hashlib.sha256(encode_json(data, sort_keys=True)).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    subject: str
    banned: str = ""
    dots: bool = False
    reserved: frozenset[str] = frozenset()
    integers: bool = True
    # Most names are plain ASCII and need no further look.
    plain: re.Pattern[str]


_PRINTABLE_ASCII: Final = r"[ -~]{1,255}"
_NO_COLON: Final = r"[ -9;-~]{1,255}"
_NOT_DOTS: Final = r"(?!\.{1,2}\Z)"
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]*")

_RULES: Final = {
    "queue": _Rule(
        subject="queue name",
        banned=":{}",
        plain=re.compile(_NOT_DOTS + r"[ -9;-z|~]{1,255}"),
    ),
    "job": _Rule(
        subject="job id",
        banned=":",
        reserved=RESERVED_IDS,
        integers=False,
        plain=re.compile(_NOT_DOTS + rf"(?!(?:{_INTEGER.pattern})\Z)" + _NO_COLON),
    ),
    "dedup": _Rule(subject="dedup id", banned=":", plain=re.compile(_NOT_DOTS + _NO_COLON)),
    "worker": _Rule(subject="worker id", plain=re.compile(_NOT_DOTS + _PRINTABLE_ASCII)),
    "correlation": _Rule(subject="correlation id", dots=True, plain=re.compile(_PRINTABLE_ASCII)),
    "handler": _Rule(subject="job name", dots=True, plain=re.compile(_PRINTABLE_ASCII)),
}

_INVISIBLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def check_name(kind: str, value: object) -> str:
    """Return a queue, job, dedup, worker or handler name that is safe everywhere.

    Raises InvalidName otherwise. `job` is for ids that callers choose; a counter's ids and the
    names of the storage's own keys are refused.
    """
    rule = _RULES.get(kind)
    if rule is None:
        raise InvalidInput(f"unknown kind of name {kind!r}; one of {', '.join(_RULES)}")
    if type(value) is str and rule.plain.fullmatch(value) and value not in rule.reserved:
        return value
    if not isinstance(value, str):
        raise InvalidName(_not_text(rule, value))
    # An enum member or another subclass may print as something else than it is.
    text = str.__str__(value)
    fault = (
        _size_fault(text)
        or _character_fault(rule, text)
        or _form_fault(text)
        or _taken_fault(rule, text)
    )
    if fault:
        raise InvalidName(f"{rule.subject} '{printable(text, 60)}' {fault}")
    return text


_PLAIN_IDS: Final = re.compile(rf"(?:(?!\.{{1,2}}\n|(?:{_INTEGER.pattern})\n){_NO_COLON}\n)*")


def check_ids(ids: Sequence[str]) -> None:
    """Check job ids as `check_name` does; thousands of plain ones in a fifth of the time."""
    if not _are_plain(ids):
        for job_id in ids:
            check_name("job", job_id)


def _are_plain(ids: Sequence[str]) -> bool:
    try:
        lines = "\n".join([*ids, ""])
    except TypeError:
        return False
    plain = lines.count("\n") == len(ids) and _PLAIN_IDS.fullmatch(lines) is not None
    return plain and RESERVED_IDS.isdisjoint(ids)


def _not_text(rule: _Rule, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        way_out = "use str" if rule.integers else f"use str with a prefix, e.g. 'job-{abs(value)}'"
    elif isinstance(value, (bytes, bytearray)):
        way_out = "use str: .decode() it first"
    else:
        way_out = "use str"
    kind = type_name(type(value))
    return f"{rule.subject} {printable(value, 60)} is of type {kind}; {way_out}"


def _size_fault(text: str) -> str:
    if not text:
        return f"is empty; give it 1 to {NAME_LIMIT} bytes"
    # Surrogates count as they would if they were allowed; they get their own message.
    size = len(text) if len(text) > NAME_LIMIT else len(text.encode(errors="surrogatepass"))
    if size <= NAME_LIMIT:
        return ""
    at_least = "at least " if len(text) > NAME_LIMIT and not text.isascii() else ""
    return (
        f"takes {at_least}{size:,} bytes as UTF-8; the limit is {NAME_LIMIT}:"
        " shorten it, or use content_id()"
    )


def _character_fault(rule: _Rule, text: str) -> str:
    for index, character in enumerate(text):
        if character in rule.banned:
            return f"holds {character!r} at index {index}, which separates keys; use '-' instead"
        if _INVISIBLE.match(character):
            what = _name_of(character)
            return f"holds the {what} U+{ord(character):04X} at index {index}; remove it"
    return ""


def _name_of(character: str) -> str:
    match unicodedata.category(character):
        case "Cs":
            return "lone surrogate"
        case "Cc":
            return "control character"
        case "Zl" | "Zp":
            return "line separator"
        case _:
            return "bidi control"


def _form_fault(text: str) -> str:
    if unicodedata.is_normalized("NFC", text):
        return ""
    return "is not in Unicode form NFC; pass unicodedata.normalize('NFC', name)"


def _taken_fault(rule: _Rule, text: str) -> str:
    if text in rule.reserved:
        return f"is reserved by the storage layout; choose another, e.g. 'job-{text}'"
    if not rule.integers and _INTEGER.fullmatch(text):
        prefixed = f"job-{text.lstrip('-')}"
        return (
            "is an integer, and those belong to the queue's own counter;"
            f" add a prefix, e.g. '{printable(prefixed, 60)}'"
        )
    if not rule.dots and text in {".", ".."}:
        return "is a path step; choose another"
    return ""
