"""Columns in and out of BullMQ queues, blocking: what Spark's executors use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, cast

from toril.errors import InvalidOption
from toril.event import Cursor, Event, EventKind
from toril.ids import check_name
from toril.job import DEFAULT_TERMS, State, Terms
from toril.resp.client import Settings
from toril.resp.replies import Argument
from toril.resp.sync import SyncClient
from toril.resp.url import Address, parse_url
from toril.storage.bullmq import codec
from toril.storage.bullmq.bulk_write import BulkWriter, Rows
from toril.storage.bullmq.keys import Keys, check_tagging, check_twins, keys_of, twins_of
from toril.storage.bullmq.link import CHUNK
from toril.storage.bullmq.observe import (
    before,
    check_trimmed,
    cursor_of,
    number_of,
    read_entry,
    stream_id,
    whole,
)
from toril.storage.bullmq.official import own, scripts
from toril.storage.bullmq.produce import read_found
from toril.storage.bullmq.scan import LINES, scan
from toril.storage.bullmq.scripts import USED
from toril.storage.columns import (
    Columns,
    EventColumns,
    JobColumns,
    Slice,
    Span,
    Written,
    append_job,
    check_bounds,
    check_columns,
    gather,
    no_events,
    no_jobs,
    spread,
)
from toril.storage.columns_walk import cut_line, cut_sorted

_PAGE: Final = 1000
_FIRST_TIME: Final = 1_000_000_000_000
"""Stream ids are times in ms, all later than this; a smaller number is that of an event."""

_LATEST: Final = 1 << 62


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

    def span(self, queue: str) -> Span:
        """Tell which events there are."""
        _, added, length, newest, first, _ = self._run("events", queue, "", "", 0)
        last = cursor_of(newest, added)
        return Span(first=before(first, added - length) if length else last, last=last)

    def read_events(
        self, queue: str, after: Cursor, until: Cursor | None = None, limit: int = 2000
    ) -> EventColumns:
        """Read up to `limit` events, or one more to have both of a number."""
        start = self._locate(queue, after)
        stop = None if until is None else _number_of(until)
        columns = no_events()
        events = iter(self._events(queue, start, stop))
        found = list(islice(events, limit))
        if found and found[-1].kind is EventKind.RETRYING:
            found += islice(events, 1)
        for event in found:
            _append(cast("dict[str, list[object]]", columns), event)
            self._last[queue] = event.cursor
        return columns

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
        return self._walk(queue, start, number)

    def _walk(self, queue: str, start: Cursor, number: int) -> Cursor:
        while start.part < number:
            room = min(_PAGE, number - start.part)
            entries = self._run("events", queue, f"({stream_id(start)}", "+", room)[0]
            if not entries:
                break
            start = cursor_of(entries[-1][0], start.part + len(entries))
        return start

    def _events(self, queue: str, after: Cursor, stop: int | None) -> Iterable[Event]:
        until = None if stop is None else Cursor(_LATEST, 0, stop)
        start, after = after, whole(after)
        while stop is None or after.part < stop:
            entries, added, length, newest, first, retried = self._run(
                "events", queue, f"({stream_id(after)}", "+", _PAGE
            )
            check_trimmed(queue, after, until, added - length, added, first, newest)
            for entry, flag in zip(entries, retried, strict=True):
                told, after = read_entry(after, entry, flag)
                if stop is not None and after.part > stop:
                    return
                yield from (event for event in told if event.cursor > start)
            if len(entries) < _PAGE:
                return

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
        for job_id, payload in zip(ids, payloads, strict=True):
            check_name("job", job_id)
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
            untagged, lean = (
                bool(self._client.call(key, "EXISTS", key)) for key in twins_of(self.address, queue)
            )
            check_twins(self.address, queue, untagged, lean)
        self._known.add(queue)
        return keys

    def _now(self) -> int:
        seconds, micros = cast("list[bytes]", self._client.call("", "TIME"))
        return int(seconds) * 1000 + int(micros) // 1000

    def _run(self, name: str, queue: str, *args: Argument) -> Any:
        base = keys_of(self.address, queue).base
        return self._client.run(own(name), base, self._now(), *args)


def _number_of(cursor: Cursor) -> int:
    return number_of(cursor) if cursor.major >= _FIRST_TIME else cursor.major


def _append(columns: dict[str, list[object]], event: Event) -> None:
    for name, column in columns.items():
        if name == "number":
            column.append(number_of(event.cursor))
        else:
            value = getattr(event, name)
            column.append(value.value if name == "kind" else value)
