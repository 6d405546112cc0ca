"""Find values in a job's hash that are not what they should be.

Such a job fails at once, for a reason that names the value: what its producer wanted is not
known. Some of these values make an official script die half way, and then the job is in no
container at all; `mend.lua` puts those in order, keeps what was there, and writes down the doom.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

BROKEN: Final = "broken record: "
NO_OBJECT: Final = f"{BROKEN}opts is no JSON object"
_COUNTERS: Final = (b"atm", b"ats", b"stc")
_COUNTER: Final = re.compile(rb"-?\d{1,15}", re.ASCII)
_NUMBER: Final = re.compile(r"\d{1,15}(\.\d{1,15})?", re.ASCII)
_SHOWN: Final = 40


def fault_of(fields: Mapping[bytes, bytes]) -> str | None:
    """Name the first counter that is no number; None if they are sound."""
    for name in _COUNTERS:
        raw = fields.get(name)
        if raw is not None and not _COUNTER.fullmatch(raw):
            return f"{BROKEN}{name.decode()} is no whole number"
    return None


def fault_in(options: object) -> str | None:
    """Name the first option of a type that neither Node nor we can use; None if all are sound."""
    if not isinstance(options, dict):
        return NO_OBJECT
    for name, (is_sound, wanted) in _SOUND.items():
        value = options.get(name)
        if value is not None and not is_sound(value):
            shown = repr(value)
            shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
            return f"{BROKEN}option {name} is {shown}, not {wanted}"
    return None


def plain_number(value: object) -> int | float | None:
    """Read a number, also one written as text, which counts in Node; None for anything else."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return float(value) if "." in value else int(value)
    return value if type(value) in (int, float) else None  # type: ignore[return-value]


def _is_number(value: object) -> bool:
    return plain_number(value) is not None


def _is_backoff(value: object) -> bool:
    if not isinstance(value, dict):
        return _is_number(value)
    kind, delay = value.get("type", ""), value.get("delay", 0)
    return isinstance(kind, str) and _is_number(delay)


def _is_keep(value: object) -> bool:
    return isinstance(value, dict | bool) or _is_number(value)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _is_private(value: object) -> bool:
    return isinstance(value, dict) and all(_is_number(value.get(name, 0)) for name in "txr")


_SOUND: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    **dict.fromkeys(
        ("attempts", "delay", "priority", "kl", "stackTraceLimit"), (_is_number, "a number")
    ),
    "backoff": (_is_backoff, "a number, nor a type and a delay"),
    **dict.fromkeys(
        ("removeOnComplete", "removeOnFail"), (_is_keep, "a boolean, a number or an object")
    ),
    **dict.fromkeys(("de", "repeat"), (_is_object, "an object")),
    "toril": (_is_private, "what toril writes"),
}
