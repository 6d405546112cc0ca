"""Read the entries of a queue's stream, blocking, straight into columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from toril.event import Cursor, EventKind
from toril.resp.replies import Argument
from toril.resp.sync import SyncClient
from toril.storage.bullmq.keys import Keys
from toril.storage.bullmq.link import check_reply
from toril.storage.bullmq.observe import PREVIOUS, before, check_trimmed, cursor_of, stream_id
from toril.storage.bullmq.official import own
from toril.storage.bullmq.retries import FAR, Entry, Fields, candidates, fields_of, judge
from toril.storage.columns import EventColumns, Span, no_events

PAGE: Final = 2000
"""Entries per call: keeps XRANGE under two milliseconds of server time."""

LATEST: Final = 1 << 62
"""The time of a cursor that is only a number to stop at."""

_KINDS: Final = {kind.value.encode(): kind.value for kind in EventKind}
_TEXTS: Final = {
    "job_id": b"jobId",
    "job_name": b"name",
    "prev": b"prev",
    "reason": b"failedReason",
    "dedup_id": b"deduplicationId",
    "other_id": b"deduplicatedJobId",
}
_NUMBERS: Final = {"attempt": b"attemptsMade", "delay_ms": b"delay", "count": b"count"}
_UNTOLD: Final = (
    "job_name",
    "attempt",
    "prev",
    "reason",
    "result_size",
    "progress",
    "dedup_id",
    "other_id",
    "count",
)
"""What the event a retry was read from tells, and the retry does not."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Some entries, their fields, and which of them tell a retry."""

    entries: Sequence[Entry]
    fields: Sequence[Fields]
    retried: Collection[int]

    def cut(self, rows: int) -> Entries:
        """Keep the first entries that tell at least so many events, both of a retry."""
        if not self.retried or len(self.entries) + len(self.retried) <= rows:
            return self
        told = 0
        for at in range(len(self.entries)):
            if told >= rows:
                return Entries(self.entries[:at], self.fields[:at], self.retried)
            told += 1 + (at in self.retried)
        return self


class Stream:
    """The events of one queue; nothing read here is missing entries that were trimmed."""

    def __init__(self, client: SyncClient, keys: Keys, queue: str) -> None:
        self._client = client
        self._keys = keys
        self._queue = queue
        self._look = own("events")
        client.learn(self._look)

    def span(self) -> Span:
        """Tell which events there are."""
        _, added, length, newest, first, _ = self._ask()[-1]
        last = cursor_of(newest, added)
        return Span(first=before(first, added - length) if length else last, last=last)

    def walk(self, after: Cursor, count: int) -> Cursor:
        """Find the place `count` entries further, or the last one there is."""
        stop = after.part + count
        while after.part < stop:
            entries = self._range(after, None, min(PAGE, stop - after.part))[0]
            if not entries:
                break
            after = cursor_of(entries[-1][0], after.part + len(entries))
        return after

    def read(self, after: Cursor, until: Cursor | None, count: int) -> Entries:
        """Read up to `count` entries after a place and tell the retries among them."""
        entries, oldest = self._range(after, until, count)
        page = [fields_of(entry) for entry in entries]
        doubtful = candidates(page)
        if not doubtful:
            return Entries(entries, page, ())
        marks: list[Argument] = ["ZMSCORE", self._keys.of("toril-back")]
        marks += (entries[at][0] for at in doubtful)
        key = self._keys.of("events")
        next_one = ("XRANGE", key, b"(" + entries[-1][0], "+", "COUNT", 1)
        scores, following, info = self._ask(marks, next_one)
        self._check(after, until, info)
        doubtful = [at for at, score in zip(doubtful, scores, strict=True) if score is None]

        def look_back() -> list[Fields]:
            start = b"(" + entries[0][0]
            past, _ = self._ask(("XREVRANGE", key, start, "-", "COUNT", FAR))
            return [fields_of(entry) for entry in past]

        coming = fields_of(following[0]) if following else None
        retried = judge(page, doubtful, coming, oldest == entries[0][0], look_back)
        return Entries(entries, page, retried)

    def _range(self, after: Cursor, until: Cursor | None, count: int) -> tuple[list[Entry], bytes]:
        """Read entries, and the id of the oldest one there is."""
        last = "+" if until is None or until.major >= LATEST else stream_id(until)
        start = f"({stream_id(after)}"
        # What there is comes after what was read: if nothing is gone then, nothing was missed.
        entries, info = self._ask(("XRANGE", self._keys.of("events"), start, last, "COUNT", count))
        self._check(after, until, info)
        return entries, info[4]

    def _check(self, after: Cursor, until: Cursor | None, info: Sequence[Any]) -> None:
        _, added, length, newest, first, _ = info
        check_trimmed(self._queue, after, until, added - length, added, first, newest)

    def _ask(self, *commands: Sequence[Argument]) -> list[Any]:
        """Send commands and, after them, the question what there is."""
        base = self._keys.base
        info = ("EVALSHA", self._look.sha, 1, base, 0, "", "", 0)
        replies = self._client.pipeline(base, [*commands, info])
        for reply in replies:
            check_reply(reply)
        return cast("list[Any]", replies)


def to_columns(found: Entries, first: int) -> EventColumns:
    """Make columns of entries, the first of which has the number `first`."""
    kinds = [_KINDS.get(one.get(b"event", b"")) for one in found.fields]
    times = [int(raw_id.partition(b"-")[0]) for raw_id, _ in found.entries]
    rows = cast("dict[str, list[Any]]", no_events())
    rows["number"] = list(range(first, first + len(kinds)))
    rows["kind"], rows["time_ms"] = kinds, times
    present = set().union(*found.fields)
    for name, key in _TEXTS.items():
        if key in present:
            rows[name] = [_text(one.get(key)) for one in found.fields]
    for name, key in _NUMBERS.items():
        if key in present:
            rows[name] = [_number(one.get(key)) for one in found.fields]
    _mend(rows, found.fields, present)
    for name, values in rows.items():
        if not values:
            rows[name] = [None] * len(kinds)
    if found.retried or None in kinds:
        rows = _told(rows, kinds, found.retried)
    return cast("EventColumns", rows)


def _mend(rows: dict[str, list[Any]], fields: Sequence[Fields], present: Collection[bytes]) -> None:
    """Turn what the wire says otherwise into what our columns mean."""
    if rows["prev"]:
        rows["prev"] = [PREVIOUS.get(one, one) for one in rows["prev"]]
    if rows["delay_ms"]:  # the wire tells when a job is due
        pairs = zip(rows["delay_ms"], rows["time_ms"], strict=True)
        rows["delay_ms"] = [None if due is None else max(0, due - time) for due, time in pairs]
    if b"returnvalue" in present:
        results = (one.get(b"returnvalue") for one in fields)
        rows["result_size"] = [None if one is None else len(one) for one in results]
    if b"data" in present:
        rows["progress"] = [
            _text(one.get(b"data")) if one.get(b"event") == b"progress" else None for one in fields
        ]
    if b"debounceId" in present:
        olds = [_text(one.get(b"debounceId")) for one in fields]
        pairs = zip(rows["dedup_id"] or olds, olds, strict=True)
        rows["dedup_id"] = [new or old for new, old in pairs]


def _told(
    rows: dict[str, list[Any]], kinds: Sequence[str | None], retried: Collection[int]
) -> dict[str, list[Any]]:
    """Put a retry before each event that tells one; leave out events of somebody's own."""
    order: list[int] = []
    retries: list[int] = []
    for at, kind in enumerate(kinds):
        if kind is None:
            continue
        if at in retried:
            retries.append(len(order))
            order.append(at)
        order.append(at)
    rows = {name: [values[at] for at in order] for name, values in rows.items()}
    for at in retries:
        for name in _UNTOLD:
            rows[name][at] = None
        rows["kind"][at] = "retrying"
        rows["delay_ms"][at] = rows["delay_ms"][at] or 0
    return rows


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode(errors="replace")


def _number(raw: bytes | None) -> int | None:
    try:
        return None if raw is None else int(float(raw))
    except ValueError:
        return None
