"""Columns in and out of BullMQ queues, blocking: what Spark's executors use."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

from toril.errors import InvalidOption
from toril.event import Cursor
from toril.ids import check_ids, check_name
from toril.job import DEFAULT_TERMS, State, Terms
from toril.resp.client import Settings
from toril.resp.replies import Argument
from toril.resp.sync import SyncClient
from toril.resp.url import Address, parse_url
from toril.storage.bullmq import codec
from toril.storage.bullmq.bulk_write import BulkWriter, Rows
from toril.storage.bullmq.keys import (
    PREFIX,
    Keys,
    check_tagging,
    check_twins,
    keys_of,
    queue_of,
    twins_of,
)
from toril.storage.bullmq.link import CHUNK
from toril.storage.bullmq.observe import cursor_of, number_of, whole
from toril.storage.bullmq.official import own, scripts
from toril.storage.bullmq.produce import read_found
from toril.storage.bullmq.scan import LINES, scan
from toril.storage.bullmq.scripts import USED
from toril.storage.bullmq.stream import LATEST, PAGE, Stream, to_columns
from toril.storage.columns import (
    Columns,
    EventColumns,
    EventPage,
    JobColumns,
    Slice,
    Span,
    Written,
    append_job,
    check_bounds,
    check_columns,
    check_rows,
    gather,
    no_events,
    no_jobs,
    spread,
)
from toril.storage.columns_walk import cut_line, cut_sorted

_SEEN_AT_ONCE: Final = 1000
_FIRST_TIME: Final = 1_000_000_000_000
"""Stream ids are times in ms, all later than this; a smaller number is that of an event."""


class BullmqBulk:
    """The `Bulk` facet of BullMQ queues; crosses a process border as its URL.

    `number` counts the entries of a queue's stream from 1; a retry and the `waiting` or `delayed`
    it was read from share theirs. `Cursor(number)` is a place to read on from, too;
    where it is not the last one read here, it is looked for among the events that are kept.
    """

    def __init__(
        self, url: str | Address, settings: Settings | None = None, *, batch: bool = True
    ) -> None:
        self.address = parse_url(url) if isinstance(url, str) else url
        if self.address.layout != "bullmq":
            raise InvalidOption(f"{self.address.safe}: not a BullMQ URL; write 'bullmq+redis://…'")
        check_tagging(self.address)
        self._client = SyncClient(self.address, settings)
        self._client.learn(*(scripts()[name] for name in USED))
        self.batch = batch
        """Whether plain jobs go through our batch script; the official ones do the rest."""
        self._known: set[str] = set()
        self._last: dict[str, Cursor] = {}

    def __repr__(self) -> str:
        return f"BullmqBulk({self.address.safe!r})"

    def close(self) -> None:
        """Let the connection go."""
        self._client.close()

    def queues(self) -> list[str]:
        """Name the queues that hold anything; BullMQ keeps no list, so all keys are looked at."""
        names: set[str] = set()
        pattern = f"{self.address.prefix or PREFIX}:*:meta"
        for node in self._client.pick_nodes():
            cursor = b"0"
            while True:
                args = ("SCAN", cursor, "MATCH", pattern, "COUNT", _SEEN_AT_ONCE, "TYPE", "hash")
                cursor, keys = cast("list[Any]", self._client.call_at(node, *args))
                names |= {queue_of(self.address, key.decode()) or "" for key in keys}
                if cursor == b"0":
                    break
        return sorted(names - {""})

    def span(self, queue: str) -> Span:
        """Tell which events there are."""
        return self._stream(queue).span()

    def number(self, cursor: Cursor) -> int:
        """The running number of the last entry before a place."""
        return _number_of(cursor)

    def advance(self, queue: str, after: Cursor, count: int) -> Cursor:
        """Find the place `count` entries further, by walking over them."""
        return self._stream(queue).walk(whole(self._locate(queue, after)), count)

    def read_events(
        self, queue: str, after: Cursor, until: Cursor | None = None, limit: int = 2000
    ) -> EventColumns:
        """Read up to `limit` events, or one more to have both of a number."""
        page = self.read_page(queue, after, until, limit)
        while page.seen and not page.columns["number"]:  # nothing but events of somebody's own
            page = self.read_page(queue, page.reached, until, limit)
        return page.columns

    def read_page(
        self, queue: str, after: Cursor, until: Cursor | None = None, limit: int = 2000
    ) -> EventPage:
        """Read up to `limit` events, or one more to have both of a number."""
        start = self._locate(queue, after)
        place = whole(start)
        stop = None if until is None else _number_of(until)
        bound = None if until is None or stop is None else _bound(until, stop)
        count = min(limit, PAGE) if stop is None else min(limit, PAGE, stop - place.part)
        if count <= 0:
            return EventPage(columns=no_events(), reached=place, seen=0)
        found = self._stream(queue).read(place, bound, count)
        if start != place:  # inside the first entry, whose retry is told already
            found = replace(found, retried=set(found.retried) - {0})
        found = found.cut(limit)
        reached = place
        if found.entries:
            reached = cursor_of(found.entries[-1][0], place.part + len(found.entries))
        self._last[queue] = reached
        columns = to_columns(found, place.part + 1)
        return EventPage(columns=columns, reached=reached, seen=reached.part - place.part)

    def _locate(self, queue: str, cursor: Cursor) -> Cursor:
        """Find the whole cursor of one that is a number only."""
        number = cursor.major
        if cursor.minor or cursor.part or number >= _FIRST_TIME or not number:
            return cursor
        known = self._last.get(queue)
        if known is not None and known.part == number:
            return known
        span = self.span(queue)
        if number <= span.first.part:
            return Cursor(0, 0, number)
        start = known if known is not None and span.first.part < known.part < number else span.first
        return self._stream(queue).walk(start, number - start.part)

    def _stream(self, queue: str) -> Stream:
        return Stream(self._client, keys_of(self.address, queue), queue)

    def read_jobs(self, queue: str, state: State, start: int, stop: int) -> JobColumns:
        """Read jobs of one state."""
        columns = no_jobs()
        for first in range(start, stop, CHUNK):
            last = min(first + CHUNK, stop)
            page = [one.decode() for one in self._run("peek", queue, state.value, first, last)]
            for job_id, found in zip(page, self._run("get", queue, *page), strict=True):
                record = read_found(job_id, found)
                if record is not None and record.state is state:
                    append_job(columns, record)
            if len(page) < last - first:
                break
        return columns

    def counts(self, queue: str) -> Mapping[State, int]:
        """Count the jobs by state."""
        wait, paused, prioritized, delayed, active, completed, failed, children, _ = self._run(
            "counts", queue
        )
        return {
            State.WAITING: wait + paused,
            State.PRIORITIZED: prioritized,
            State.DELAYED: delayed,
            State.ACTIVE: active,
            State.COMPLETED: completed,
            State.FAILED: failed,
            State.WAITING_CHILDREN: children,
        }

    def cut_jobs(
        self,
        queue: str,
        state: State,
        parts: int,
        since_ms: int | None = None,
        until_ms: int | None = None,
    ) -> Sequence[Slice]:
        """Cut a state: the sorted ones by score, the lines by a hash of the ids."""
        check_bounds(state, since_ms, until_ms)
        if state in LINES:
            return cut_line(state, parts, self.counts(queue)[state])
        keys = keys_of(self.address, queue)
        call = partial(self._client.call, keys.base)
        return cut_sorted(call, keys.of(state.value), state, parts, since_ms, until_ms)

    def scan_jobs(
        self, queue: str, cut: Slice, columns: Collection[str], limit: int = 2000
    ) -> Iterator[Columns]:
        """Read a slice, only the columns asked for."""
        check_columns(columns)
        return gather(scan(partial(self._run, "scan", queue), cut, columns), columns, limit)

    def write_jobs(
        self,
        queue: str,
        ids: Sequence[str],
        payloads: Sequence[bytes],
        names: Sequence[str] | str = "job",
        terms: Sequence[Terms] | Terms = DEFAULT_TERMS,
        origin: str = "",
    ) -> Written:
        """Store jobs; an id that is there already is left alone."""
        check_rows(ids, payloads=payloads, names=names, terms=terms)
        check_ids(ids)
        for job_id, payload in zip(ids, payloads, strict=True):
            if not payload.isascii():
                codec.check_payload(f"data of job {job_id!r}", payload)
        rows = Rows(
            ids=ids,
            payloads=payloads,
            names=spread(names, len(ids)),
            terms=spread(terms, len(ids)),
            origin=origin,
        )
        return BulkWriter(self._client, self._meet(queue), self._now, self.batch).write(rows)

    def _meet(self, queue: str) -> Keys:
        keys = keys_of(self.address, check_name("queue", queue))
        if queue not in self._known and self.address.hash_tag is None and "{" not in queue:
            untagged, lean = map(self._client.exists, twins_of(self.address, queue))
            check_twins(self.address, queue, untagged, lean)
        self._known.add(queue)
        return keys

    def _now(self) -> int:
        seconds, micros = cast("list[bytes]", self._client.call("", "TIME"))
        return int(seconds) * 1000 + int(micros) // 1000

    def _run(self, name: str, queue: str, *args: Argument) -> Any:
        base = keys_of(self.address, queue).base
        return self._client.run(own(name), base, 0, *args)


def _number_of(cursor: Cursor) -> int:
    return number_of(cursor) if cursor.major >= _FIRST_TIME else cursor.major


def _bound(until: Cursor, number: int) -> Cursor:
    """Where to stop: at an entry if the cursor names one, else at a number alone."""
    named = until.part and until == whole(until)
    return until if named else Cursor(LATEST, 0, number)
