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
from toril.storage.columns import EventColumns, Span

PAGE: Final = 2000
"""Entries per call: keeps XRANGE under two milliseconds of server time."""

LATEST: Final = 1 << 62
"""The time of a cursor that is only a number to stop at."""

_KINDS: Final = {kind.value.encode(): kind.value for kind in EventKind}


@dataclass(frozen=True, slots=True)
class Entries:
    """Some entries, their fields, and which of them tell a retry."""

    entries: Sequence[Entry]
    fields: Sequence[Fields]
    retried: Collection[int]


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


def append_entry(
    columns: EventColumns, number: int, raw_id: bytes, fields: Fields, retried: bool
) -> None:
    """Append the events that one entry tells."""
    kind = _KINDS.get(fields.get(b"event", b""))
    if kind is None:  # an event of somebody's own
        return
    time_ms = int(raw_id.partition(b"-")[0])
    job_id = _text(fields.get(b"jobId"))
    delay = fields.get(b"delay")
    delay_ms = None if delay is None or (due := _number(delay)) is None else max(0, due - time_ms)
    if retried:
        _append(columns, number, "retrying", time_ms, job_id, delay_ms=delay_ms or 0)
    if len(fields) == 2 and job_id is not None:
        _append(columns, number, kind, time_ms, job_id)
        return
    prev = _text(fields.get(b"prev"))
    result = fields.get(b"returnvalue")
    _append(
        columns,
        number,
        kind,
        time_ms,
        job_id,
        job_name=_text(fields.get(b"name")),
        attempt=_number(fields.get(b"attemptsMade")),
        prev=prev if prev is None else PREVIOUS.get(prev, prev),
        reason=_text(fields.get(b"failedReason")),
        delay_ms=delay_ms,
        result_size=None if result is None else len(result),
        progress=_text(fields.get(b"data")) if kind == "progress" else None,
        dedup_id=_text(fields.get(b"deduplicationId") or fields.get(b"debounceId")),
        other_id=_text(fields.get(b"deduplicatedJobId")),
        count=_number(fields.get(b"count")),
    )


def _append(
    columns: EventColumns,
    number: int,
    kind: str,
    time_ms: int,
    job_id: str | None,
    *,
    job_name: str | None = None,
    attempt: int | None = None,
    prev: str | None = None,
    reason: str | None = None,
    delay_ms: int | None = None,
    result_size: int | None = None,
    progress: str | None = None,
    dedup_id: str | None = None,
    other_id: str | None = None,
    count: int | None = None,
) -> None:
    columns["number"].append(number)
    columns["kind"].append(kind)
    columns["time_ms"].append(time_ms)
    columns["job_id"].append(job_id)
    columns["job_name"].append(job_name)
    columns["attempt"].append(attempt)
    columns["worker_id"].append(None)
    columns["prev"].append(prev)
    columns["reason"].append(reason)
    columns["delay_ms"].append(delay_ms)
    columns["duration_ms"].append(None)
    columns["result_size"].append(result_size)
    columns["progress"].append(progress)
    columns["dedup_id"].append(dedup_id)
    columns["other_id"].append(other_id)
    columns["count"].append(count)


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode(errors="replace")


def _number(raw: bytes | None) -> int | None:
    try:
        return None if raw is None else int(float(raw))
    except ValueError:
        return None
