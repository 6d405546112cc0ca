"""Columns in and out of the lean layout, blocking: what Spark's executors use.

No event loop and no object per row: packed events are sliced into columns, records are
appended field by field.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, cast

from toril.event import Cursor
from toril.ids import check_ids, check_name
from toril.job import DEFAULT_TERMS, State, Terms
from toril.resp.client import Settings
from toril.resp.sync import SyncClient
from toril.resp.url import Address, parse_url
from toril.storage.columns import (
    SELDOM,
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
)
from toril.storage.columns_walk import cut_line, cut_sorted
from toril.storage.redis import codec
from toril.storage.redis.intake import pack_rows
from toril.storage.redis.layout import (
    CHUNK,
    LAYOUT,
    PREFIX,
    base_of,
    check_layout,
    check_trimmed,
    check_twin,
    twins_of,
)
from toril.storage.redis.runs import append_entry
from toril.storage.redis.scan import SETS, scan
from toril.storage.redis.scripts import script
from toril.storage.runs import EventRuns

_IN_FLIGHT: Final = 8
"""Calls sent before the first is answered."""

_FIELDS: Final = {kind.value: fields for kind, fields in codec.FREE_FIELDS.items()}


class RedisBulk:
    """The `Bulk` facet of the lean layout; crosses a process border as its URL."""

    def __init__(self, url: str | Address, settings: Settings | None = None) -> None:
        self.address = parse_url(url) if isinstance(url, str) else url
        self._client = SyncClient(self.address, settings)
        self._registered: set[str] = set()

    def __repr__(self) -> str:
        return f"RedisBulk({self.address.safe!r})"

    def close(self) -> None:
        """Let the connection go."""
        self._client.close()

    def queues(self) -> list[str]:
        """Name the queues that hold anything."""
        names = f"{self.address.prefix or PREFIX}:queues"
        found = cast("list[bytes]", self._client.call(names, "SMEMBERS", names))
        return sorted(name.decode() for name in found)

    def number(self, cursor: Cursor) -> int:
        """The running number of the last event before a place."""
        return cursor.major

    def advance(self, queue: str, after: Cursor, count: int) -> Cursor:
        """Find the place `count` events further: numbers have no holes here."""
        last = self._last(base_of(self.address.prefix, queue))
        return Cursor(min(after.major + count, last))

    def span(self, queue: str) -> Span:
        """Tell which events there are."""
        base = base_of(self.address.prefix, queue)
        last = self._last(base)
        entries = cast(
            "list[list[Any]]",
            self._client.call(base, "XRANGE", base + "events", "-", "+", "COUNT", 1),
        )
        first = last
        if entries:
            raw_id, (_, blob) = entries[0]
            first = codec.unpack_entry(raw_id, blob)[0] - 1
        return Span(first=Cursor(first), last=Cursor(last))

    def _last(self, base: str) -> int:
        found = cast("bytes | None", self._client.call(base, "HGET", base + "meta", "e"))
        return int(found or 0)

    def read_events(
        self, queue: str, after: Cursor, until: Cursor | None = None, limit: int = 2000
    ) -> EventColumns:
        """Read up to `limit` events."""
        columns = no_events()
        entries, stop = self._entries(queue, after.major, until, limit)
        for entry in entries:
            append_columns(columns, entry, after.major, stop)
        return columns

    def read_runs(
        self, queue: str, after: Cursor, until: Cursor | None, limit: int, into: EventRuns
    ) -> Cursor:
        """Append up to `limit` events without taking them apart."""
        entries, stop = self._entries(queue, after.major, until, limit)
        for entry in entries:
            append_entry(into, entry, after.major, stop)
        return Cursor(into.last) if entries else after

    def _entries(
        self, queue: str, after: int, until: Cursor | None, limit: int
    ) -> tuple[list[codec.Entry], int]:
        """The entries of the stream that hold the next events, and the number of the last event."""
        base = base_of(self.address.prefix, queue)
        key, start = base + "events", f"({after}"
        # An entry's number is that of its last event, and one may hold hundreds: what is asked
        # for by number is no more than what is wanted. How far they go comes first: one that is
        # added in between must not count as trimmed.
        replies = self._client.pipeline(
            base,
            [
                ("HGET", base + "meta", "e"),
                ("XRANGE", key, start, after + limit, "COUNT", limit),
            ],
        )
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        found, raw = cast("list[Any]", replies)
        last = int(found or 0)
        stop = last if until is None else min(until.major, last)
        if after >= stop:
            return [], after
        if not raw:  # what is wanted ends in the middle of one
            raw = self._client.call(base, "XRANGE", key, start, "+", "COUNT", 1)
        entries = [codec.unpack_entry(raw_id, blob) for raw_id, (_, blob) in raw]
        check_trimmed(queue, after, entries[0][0] if entries else last + 1, stop)
        return entries, min(stop, after + limit)

    def read_page(
        self, queue: str, after: Cursor, until: Cursor | None = None, limit: int = 2000
    ) -> EventPage:
        """Read up to `limit` events and the place to go on from."""
        columns = self.read_events(queue, after, until, limit)
        numbers = columns["number"]
        reached = Cursor(numbers[-1]) if numbers else after
        return EventPage(columns=columns, reached=reached, seen=len(numbers))

    def read_jobs(self, queue: str, state: State, start: int, stop: int) -> JobColumns:
        """Read jobs of one state."""
        columns = no_jobs()
        if state is State.WAITING_CHILDREN:
            return columns
        base = base_of(self.address.prefix, queue)
        letter = codec.LETTERS[state]
        for first in range(start, stop, CHUNK):
            last = min(first + CHUNK, stop)
            page = cast(
                "list[bytes]", self._client.run(script("peek"), base, 0, letter, first, last, 0)
            )
            ids = [one.decode() for one in page]
            reply = cast("Sequence[Any]", self._client.run(script("get"), base, 0, *ids))
            for record in codec.read_records(ids, reply):
                if record is not None:
                    append_job(columns, record)
            if len(page) < last - first:
                break
        return columns

    def counts(self, queue: str) -> Mapping[State, int]:
        """Count the jobs by state."""
        base = base_of(self.address.prefix, queue)
        found = cast("list[int]", self._client.run(script("counts"), base, 0))
        return {**dict(zip(codec.LETTERS, found, strict=False)), State.WAITING_CHILDREN: 0}

    def cut_jobs(
        self,
        queue: str,
        state: State,
        parts: int,
        since_ms: int | None = None,
        until_ms: int | None = None,
    ) -> Sequence[Slice]:
        """Cut a state: the sorted ones by score, the plain line by a hash of the ids."""
        check_bounds(state, since_ms, until_ms)
        if state is State.WAITING_CHILDREN:
            return ()
        base = base_of(self.address.prefix, queue)
        if state is State.WAITING:
            return cut_line(state, parts, self.counts(queue)[state])
        if state is State.ACTIVE:  # its scores are the ends of leases, which are prolonged
            return (Slice(state=state, count=self.counts(queue)[state]),)
        call = partial(self._client.call, base)
        return cut_sorted(call, base + SETS[state], state, parts, since_ms, until_ms)

    def scan_jobs(
        self, queue: str, cut: Slice, columns: Collection[str], limit: int = 2000
    ) -> Iterator[Columns]:
        """Read a slice, only the columns asked for."""
        check_columns(columns)
        pages = scan(self._client, base_of(self.address.prefix, queue), cut, columns)
        return gather(pages, columns, limit)

    def write_jobs(
        self,
        queue: str,
        ids: Sequence[str],
        payloads: Sequence[bytes],
        names: Sequence[str] | str = "job",
        terms: Sequence[Terms] | Terms = DEFAULT_TERMS,
        origin: str = "",
    ) -> Written:
        """Store jobs; an id that is there already is left alone. Several calls are in flight."""
        check_ids(ids)
        check_rows(ids, payloads=payloads, names=names, terms=terms)
        self._register(check_name("queue", queue))
        base = base_of(self.address.prefix, queue)
        enqueue = script("enqueue")
        self._client.learn(enqueue)
        answers: list[bytes] = []
        calls = pack_rows(ids, payloads, names, terms, origin)
        while some := list(islice(calls, _IN_FLIGHT)):
            commands = [("EVALSHA", enqueue.sha, 1, base, 0, *args) for args in some]
            for reply in self._client.pipeline(base, commands):
                answers += self._answers(queue, reply)
        return _written(ids, answers)

    def _answers(self, queue: str, reply: object) -> list[bytes]:
        if isinstance(reply, Exception):
            raise reply
        found = codec.read_answers(reply)
        if found[-1] == b"?":  # everything was deleted, the list of queues too
            self._registered.discard(queue)
            self._register(queue)
            found.pop()
        return found

    def _register(self, queue: str) -> None:
        if queue in self._registered:
            return
        for twin in twins_of(self.address, queue):
            check_twin(self.address, queue, twin, self._client.exists(twin))
        base, url = base_of(self.address.prefix, queue), self.address.safe
        self._client.call(base, "HSETNX", base + "meta", "layout", LAYOUT)
        found = cast("bytes | None", self._client.call(base, "HGET", base + "meta", "layout"))
        check_layout(found, queue, url)
        names = f"{self.address.prefix or PREFIX}:queues"
        self._client.call(names, "SADD", names, queue)
        self._registered.add(queue)


def append_columns(columns: EventColumns, entry: codec.Entry, after: int, stop: int) -> None:
    """Append the events of one stream entry that lie after one number and up to another."""
    first, time_ms, packed = entry
    flat = codec.flatten(packed)
    count = len(flat) // 8
    low, high = max(0, after + 1 - first), min(count, stop + 1 - first)
    if low >= high:
        return
    flat = flat[8 * low : 8 * high]
    kinds = flat[0::8]
    columns["number"] += range(first + low, first + high)
    columns["kind"] += kinds
    columns["time_ms"] += [time_ms] * len(kinds)
    columns["job_id"] += _or_none(flat[1::8])
    columns["attempt"] += [None if one is False else one for one in flat[2::8]]
    columns["job_name"] += _or_none(flat[3::8])
    columns["worker_id"] += [codec.worker_of(one) for one in flat[4::8]]
    columns["prev"] += _or_none(flat[5::8])
    _append_free(columns, kinds, flat[6::8], flat[7::8])


def _append_free(
    columns: EventColumns, kinds: Sequence[str], xs: Sequence[Any], ys: Sequence[Any]
) -> None:
    """Sort the two free fields of each event into the columns they mean."""
    rows = cast("dict[str, list[Any]]", columns)
    at = len(rows[SELDOM[0]])
    for name in SELDOM:
        rows[name] += [None] * len(kinds)
    for row, kind in enumerate(kinds, at):
        if kind in _FIELDS:
            x_name, y_name = _FIELDS[kind]
            x, y = xs[row - at], ys[row - at]
            if x_name and x is not False:
                rows[x_name][row] = x
            if y_name and y is not False:
                rows[y_name][row] = y


def _or_none(values: Iterable[Any]) -> list[Any]:
    return [one or None for one in values]


def _written(ids: Sequence[str], answers: Sequence[bytes]) -> Written:
    left = [at for at, answer in enumerate(answers) if answer[:1] != b"+"]
    return Written(
        created=len(ids) - len(left),
        duplicates=len(left),
        first_duplicate=ids[left[0]] if left else None,
    )
