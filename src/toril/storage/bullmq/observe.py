"""Read events, counts and pages of jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, cast

from toril.clock import wait_future
from toril.errors import EventsTrimmed, StorageClosed
from toril.event import Cursor, Event, EventKind
from toril.job import JobRecord, State
from toril.storage.bullmq.keys import PREFIX, queue_of
from toril.storage.bullmq.produce import Produce
from toril.storage.protocol import Counts

_KINDS: Final = {kind.value.encode(): kind for kind in EventKind}
PREVIOUS: Final = {"wait": "waiting", "paused": "waiting"}
_SEEN_AT_ONCE: Final = 1000
PAGE: Final = 250
"""Entries per call: keeps the script under two milliseconds of server time."""

_LAST: Final = (1 << 64) - 1
_BEFORE: Final = 1 << 62
"""Added to the number of a cursor that stands inside an entry, after the retry it tells."""

_RETRIED: Final = ord("1")


class Observe(Produce):
    """The verbs that only look."""

    async def events(
        self,
        queue: str,
        after: Cursor,
        until: Cursor | None = None,
        limit: int = 1000,
        block_ms: int = 0,
    ) -> Sequence[Event]:
        """Read events after one cursor up to another; wait if there are none."""
        found = await self._read_events(queue, after, until, limit)
        if found or block_ms <= 0:
            return found
        news = asyncio.ensure_future(self._news(queue, after, block_ms))
        try:
            await wait_future(self.clock, news, block_ms / 1000)
        finally:
            news.cancel()
        if news.done() and not news.cancelled():
            news.result()
        return await self._read_events(queue, after, until, limit) if self._opened else ()

    async def _news(self, queue: str, after: Cursor, block_ms: int) -> None:
        """Return when there is an event after the cursor, or the storage closes."""
        key = self.keys(queue).of("events")
        block = ("XREAD", "COUNT", 1, "BLOCK", block_ms, "STREAMS", key, stream_id(after))
        with suppress(StorageClosed):
            await self.client.block(key, *block, timeout_s=block_ms / 1000)

    async def _read_events(
        self, queue: str, after: Cursor, until: Cursor | None, limit: int
    ) -> list[Event]:
        last = "+" if until is None else last_id(until)
        stop = None if until is None else whole(until)
        start, after = after, whole(after)
        inside = start != after or until != stop
        found: list[Event] = []
        while True:
            room = min(limit - len(found), PAGE)
            entries, added, length, newest, first, retried = await self.own(
                "events", queue, f"({stream_id(after)}", last, room
            )
            try:
                check_trimmed(queue, after, stop, added - length, added, first, newest)
            except EventsTrimmed:
                if found:  # the next call says so, and how many
                    return found
                raise
            for entry, flag in zip(entries, retried, strict=True):
                told, after = read_entry(after, entry, flag)
                found += told
            if inside:
                found = [
                    event
                    for event in found
                    if event.cursor > start and (until is None or event.cursor <= until)
                ]
            if len(found) >= limit or len(entries) < room:
                return found[:limit]

    async def cursor(self, queue: str) -> Cursor:
        """The place after the newest event."""
        _, added, _, newest, _, _ = await self.own("events", queue, "", "", 0)
        return cursor_of(newest, added)

    async def counts(self, queue: str) -> Counts:
        """Count the jobs by state."""
        (
            wait,
            paused,
            prioritized,
            delayed,
            active,
            completed,
            failed,
            children,
            is_paused,
        ) = await self.own("counts", queue)
        return Counts(
            waiting=wait + paused,
            prioritized=prioritized,
            delayed=delayed,
            active=active,
            completed=completed,
            failed=failed,
            waiting_children=children,
            paused=bool(is_paused),
        )

    async def peek(self, queue: str, state: State, start: int, stop: int) -> Sequence[JobRecord]:
        """Read one page of a state."""
        if stop <= start:
            return ()
        ids = [one.decode() for one in await self.own("peek", queue, state.value, start, stop)]
        records = await self.get(queue, ids)
        return [record for record in records if record is not None and record.state is state]

    async def queues(self) -> Sequence[str]:
        """Name the queues that hold anything; BullMQ keeps no list, so all keys are looked at."""
        names: set[str] = set()
        pattern = f"{self.address.prefix or PREFIX}:*:meta"
        for node in await self.client.pick_nodes():
            cursor = b"0"
            while True:
                args = ("SCAN", cursor, "MATCH", pattern, "COUNT", _SEEN_AT_ONCE, "TYPE", "hash")
                cursor, keys = cast("list[Any]", await self.client.call_at(node, *args))
                names |= {queue_of(self.address, key.decode()) or "" for key in keys}
                if cursor == b"0":
                    break
        return sorted(names - {""})


def stream_id(cursor: Cursor) -> str:
    """The id of the entry a cursor stands after."""
    return f"{cursor.major}-{cursor.minor}"


def cursor_of(raw_id: bytes, part: int) -> Cursor:
    """The cursor after an entry: its id, and the running number of the entry."""
    major, _, minor = raw_id.partition(b"-")
    return Cursor(int(major), int(minor), part)


def after_retry(raw_id: bytes, number: int) -> Cursor:
    """The cursor between a retry and the entry, the `number`th, that it was read from.

    Reading on from there brings the entry again, of which only the event itself is new.
    """
    return before(raw_id, number - 1 + _BEFORE)


def whole(cursor: Cursor) -> Cursor:
    """The cursor before the entry that a cursor may stand in."""
    return replace(cursor, part=cursor.part - _BEFORE) if cursor.part >= _BEFORE else cursor


def last_id(until: Cursor) -> str:
    """The id of the last entry to be read for a cursor."""
    if until.part < _BEFORE:
        return stream_id(until)
    if until.minor == _LAST:
        return f"{until.major + 1}-0"
    return f"{until.major}-{until.minor + 1}"


def number_of(cursor: Cursor) -> int:
    """The running number of the entry that an event was read from."""
    return cursor.part - _BEFORE + 1 if cursor.part >= _BEFORE else cursor.part


def check_trimmed(
    queue: str,
    after: Cursor,
    until: Cursor | None,
    dropped: int,
    added: int,
    first: bytes,
    newest: bytes,
) -> None:
    """Raise `EventsTrimmed` if events after the cursor are gone.

    `dropped` counts the entries that fell off since the stream began. A stream that was deleted
    and began anew counts from one again; its older cursors are known by their numbers.
    """
    if until is not None and until <= after:
        return
    oldest = cursor_of(first, 0)
    here = (after.major, after.minor)
    reborn = after.part > added or (
        after.part > dropped
        and added > dropped
        and (oldest.major, oldest.minor) > here
        and after.part == added
    )
    stop = dropped if until is None else min(dropped, until.part)
    gone = stop - after.part
    if gone <= 0 and not reborn:
        return
    resume = before(first, dropped) if added > dropped else cursor_of(newest, dropped)
    if until is not None and until.part <= dropped and not reborn:
        resume = max(resume, until)
    count = max(1, gone)
    raise EventsTrimmed(
        f"{count:,} events after {after} of queue {queue!r} are gone; read on from {resume},"
        " or keep more with events_kept=",
        count=count,
        resume=resume,
    )


def before(raw_id: bytes, part: int) -> Cursor:
    """The last place before an entry."""
    at = cursor_of(raw_id, part)
    if at.minor:
        return Cursor(at.major, at.minor - 1, part)
    return Cursor(max(0, at.major - 1), _LAST, part)


def read_entry(
    after: Cursor, entry: tuple[bytes, Sequence[bytes]], retried: int
) -> tuple[list[Event], Cursor]:
    """Read the events that an entry tells, and the cursor after it."""
    raw_id, flat = entry
    cursor = cursor_of(raw_id, after.part + 1)
    event = read_event(cursor, flat)
    if event is None:
        return [], cursor
    if retried != _RETRIED:
        return [event], cursor
    retry = Event(
        kind=EventKind.RETRYING,
        cursor=after_retry(raw_id, cursor.part),
        time_ms=event.time_ms,
        job_id=event.job_id,
        delay_ms=event.delay_ms or 0,
    )
    return [retry, event], cursor


def read_event(cursor: Cursor, flat: Sequence[bytes]) -> Event | None:
    """Read one entry; None for an event of somebody's own."""
    parts = iter(flat)
    fields = dict(zip(parts, parts, strict=False))
    kind = _KINDS.get(fields.get(b"event", b""))
    if kind is None:
        return None
    result = fields.get(b"returnvalue")
    delay = _number(fields.get(b"delay"))
    prev = _text(fields.get(b"prev"))
    return Event(
        kind=kind,
        cursor=cursor,
        time_ms=cursor.major,
        job_id=_text(fields.get(b"jobId")),
        job_name=_text(fields.get(b"name")),
        attempt=_number(fields.get(b"attemptsMade")),
        prev=prev if prev is None else PREVIOUS.get(prev, prev),
        reason=_text(fields.get(b"failedReason")),
        delay_ms=None if delay is None else max(0, delay - cursor.major),
        result_size=None if result is None else len(result),
        progress=_text(fields.get(b"data")) if kind is EventKind.PROGRESS else None,
        dedup_id=_text(fields.get(b"deduplicationId") or fields.get(b"debounceId")),
        other_id=_text(fields.get(b"deduplicatedJobId")),
        count=_number(fields.get(b"count")),
    )


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode(errors="replace")


def _number(raw: bytes | None) -> int | None:
    try:
        return None if raw is None else int(float(raw))
    except ValueError:
        return None
