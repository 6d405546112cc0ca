"""What a lease carries of its job, so that settling needs no look at it first."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Final, NamedTuple, TypedDict, cast

from toril.outcome import Lease

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


class Note(TypedDict):
    """What a lease must know of its job when it is settled."""

    made_ms: int
    ats: int
    stc: int
    bare: bool
    """Whether it had no fields but those that every running job has."""
    lifo: bool
    keep_completed: object
    keep_failed: object
    ttl_ms: int | None
    stacks: int | None
    waits: bool
    """Whether its options say that somebody waits for its ending."""
    attempts: int | None
    """Set for a parent that a child fails: Node then goes by the number of its attempts."""


class Fate(NamedTuple):
    """What becomes of completed jobs whose notes have the same tail."""

    plain: bool
    """Whether the batch script knows how to end them."""
    kept: bool
    ttl_ms: int | None
    for_good: bool
    outlives: bool
    """Whether they are kept at least as long as an ending apart from them would be."""
    waits: bool
    bare: bool


def note_tail(
    lifo: bool,
    keep_completed: object,
    keep_failed: object,
    ttl_ms: int | None,
    stacks: int | None,
    waits: bool,
    attempts: int | None = None,
) -> str:
    """Write what notes of jobs with the same options have in common."""
    return _encode([lifo, keep_completed, keep_failed, ttl_ms, stacks, waits, attempts])[1:]


def write_note(made_ms: int, ats: int, stc: int, tail: str, *, bare: bool) -> str:
    """Write a note as a short JSON list."""
    return f"[{made_ms},{ats},{stc},{'true' if bare else 'false'},{tail}"


def read_note(lease: Lease) -> Note:
    """Read a lease's note; a foreign one says as little as possible."""
    try:
        made_ms, ats, stc, tail = lease.note[1:].split(",", 3)
        note = _read_tail(tail).copy()
        note["made_ms"], note["ats"], note["stc"] = int(made_ms), int(ats), int(stc)
    except ValueError:
        return _FOREIGN
    return note


def is_foreign(note: Note) -> bool:
    """Whether a note is none that we wrote."""
    return note is _FOREIGN


def tail_of(lease: Lease) -> str:
    """The part of a lease's note that jobs with the same options share."""
    return lease.note.split(",", 3)[-1]


@lru_cache(maxsize=1024)
def _read_tail(tail: str) -> Note:
    """Read what leases of jobs with the same terms share; ValueError for what is no note."""
    values = json.loads(f"[-1,-1,-1,{tail}")
    return cast("Note", dict(zip(_FOREIGN, values, strict=True)))


_FOREIGN: Final[Note] = {
    "made_ms": -1,
    "ats": -1,
    "stc": -1,
    "bare": False,
    "lifo": False,
    "keep_completed": None,
    "keep_failed": None,
    "ttl_ms": None,
    "stacks": None,
    "waits": True,
    "attempts": None,
}
