"""Tell which entries of a page are retries, as `events.lua` does, but on this side of the wire.

Lua turns every entry into tables twice, which costs the server six times as much as handing the
entries out. Programs that read millions of events therefore judge for themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

FAR: Final = 500
"""Events further back than this are not looked at, wherever a page begins."""

SILENT: Final = frozenset({b"progress", b"duplicated", b"deduplicated", b"debounced"})

Fields = dict[bytes, bytes]
Entry = tuple[bytes, Sequence[bytes]]


def fields_of(entry: Entry) -> Fields:
    """Read the fields of one entry."""
    flat = entry[1]
    return dict(zip(flat[::2], flat[1::2], strict=False))


def candidates(page: Sequence[Fields]) -> list[int]:
    """Name the entries that may tell a retry."""
    return [
        at
        for at, fields in enumerate(page)
        if (kind := fields.get(b"event")) == b"delayed"
        or (kind == b"waiting" and fields.get(b"prev") == b"active")
    ]


def judge(
    page: Sequence[Fields],
    doubtful: Sequence[int],
    following: Fields | None,
    is_oldest: bool,
    look_back: Callable[[], Sequence[Fields]],
) -> set[int]:
    """Choose from `doubtful`, none of which toril itself put back, those that tell a retry.

    `following` is the entry after the page, `is_oldest` whether the page begins with the oldest
    entry there is, and `look_back` gives the `FAR` entries before the page, newest first.
    """
    retried: set[int] = set()
    unknown: dict[bytes, int] = {}
    last: dict[bytes, tuple[bytes, int]] = {}
    asked = set(doubtful)
    late = doubtful[-1] if doubtful else -1
    for at, fields in enumerate(page[: late + 1]):
        kind, job_id = fields.get(b"event", b""), fields.get(b"jobId")
        if at in asked and kind == b"waiting":
            after = page[at + 1] if at + 1 < len(page) else following
            if not _stalls(after, job_id):
                retried.add(at)
        elif at in asked and job_id is not None:
            if job_id in last:
                before, place = last[job_id]
                if before == b"active" or at - place > FAR:
                    retried.add(at)
            elif at or not is_oldest:  # of the oldest event, `added` may have been cut off
                retried.add(at)
                unknown[job_id] = at
        if job_id is not None and kind and kind not in SILENT:
            last[job_id] = kind, at
    if unknown:
        _look_further(look_back(), unknown, retried)
    return retried


def _look_further(past: Sequence[Fields], unknown: dict[bytes, int], retried: set[int]) -> None:
    for place, fields in enumerate(past, 1):
        kind, job_id = fields.get(b"event", b""), fields.get(b"jobId")
        if job_id in unknown and kind and kind not in SILENT:
            at = unknown.pop(job_id)
            if kind != b"active" and at + place <= FAR:
                retried.discard(at)


def _stalls(after: Fields | None, job_id: bytes | None) -> bool:
    return after is not None and after.get(b"event") == b"stalled" and after.get(b"jobId") == job_id
