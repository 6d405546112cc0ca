"""What a lease carries of its job, so that settling needs no look at it first."""

from __future__ import annotations

import json
from typing import Final, TypedDict, cast

from toril.outcome import Lease

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


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


def write_note(note: Note) -> str:
    """Write a note as a short JSON list."""
    return _encode(list(note.values()))


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
