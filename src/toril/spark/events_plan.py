"""Decide which events the next batch reads, what was lost before it, and how it is divided."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

from pyspark.sql.datasource import InputPartition

from toril.errors import EventsTrimmed, InvalidOption, StorageError
from toril.event import Cursor
from toril.spark.events_offsets import Mark, Place
from toril.spark.events_options import EARLIEST, LATEST, NAME, Edge, EventsOptions
from toril.storage.columns import Bulk

_LEAST_ROWS: Final = 10_000
"""A partition smaller than this costs more to start than it saves."""

_TRIES: Final = 10
_REST: Final = 9
"""How many times as long as it took to list the queues the list is used."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Events that nobody can read any more, up to and including number `n`."""

    n: int
    count: int | None
    time_ms: int


@dataclass(frozen=True)
class Piece(InputPartition):
    """What one task reads: the events of a queue between two places."""

    queue: str
    after: Place
    until: Place
    gap: Gap | None = None

    @property
    def planned(self) -> int:
        """How many numbers lie between the two places."""
        return self.until.n - self.after.n


class Planner:
    """Look at a storage and plan; what it keeps is only worth time."""

    def __init__(self, options: EventsOptions, bulk: Bulk, slots: int) -> None:
        self._options = options
        self._bulk = bulk
        self._slots = slots
        self._listed: list[str] = []
        self._list_until = 0.0

    def queues(self) -> list[str]:
        """Name the queues to read now.

        BullMQ has no list of queues, so looking for them may be dear; it takes a tenth of
        the time at most.
        """
        pattern = self._options.pattern
        if pattern is None:
            return list(self._options.queues)
        began = time.monotonic()
        if began >= self._list_until:
            self._listed = [name for name in self._bulk.queues() if fnmatchcase(name, pattern)]
            ended = time.monotonic()
            self._list_until = ended + _REST * (ended - began)
        return self._listed

    def ends(self) -> dict[str, Place]:
        """The place after the newest event of each queue."""
        return {queue: self._place(self._bulk.span(queue).last) for queue in self.queues()}

    def initial(self) -> dict[str, Mark]:
        """Where a stream begins; a queue that is not named begins with its first event."""
        return {
            queue: Mark(place=place, initial=self._word(self._options.starting, queue) == LATEST)
            for queue, place in self._resolve(self._options.starting).items()
        }

    def last(self) -> dict[str, Place]:
        """Where a batch read ends."""
        given = self._resolve(self._options.ending)
        return {queue: given.get(queue, place) for queue, place in self.ends().items()}

    def plan(
        self,
        start: Mapping[str, Mark],
        limit: int | None = None,
        caps: Mapping[str, Place] | None = None,
    ) -> dict[str, Mark]:
        """Choose where the next batch ends; with nothing to read, where it starts."""
        queues = [queue for queue in self.queues() if caps is None or queue in caps]
        cap = caps or {}
        legs: dict[str, Mark] = {}
        for queue in queues:
            leg = self._leg(queue, start.get(queue), cap.get(queue))
            if leg is not None:
                legs[queue] = leg
        if not any(self._moves(mark, start.get(queue)) for queue, mark in legs.items()):
            return dict(start)
        if limit is not None:
            legs = self._limited(legs, start, limit)
        kept = {queue: Mark(place=mark.place) for queue, mark in start.items()}
        return {**kept, **legs}

    def pieces(self, start: Mapping[str, Mark], end: Mapping[str, Mark]) -> list[Piece]:
        """Divide a batch into what each task reads; the same for the same offsets."""
        whole: list[Piece] = []
        for queue, mark in sorted(end.items()):
            here = start.get(queue)
            begin = _begin(here, mark) or mark.place
            piece = Piece(queue, begin, mark.place, _gap(here, mark))
            if piece.planned > 0 or piece.gap is not None:
                whole.append(piece)
        rows = sum(piece.planned for piece in whole)
        return [part for piece in whole for part in self._divide(piece, rows)]

    def _leg(self, queue: str, here: Mark | None, cap: Place | None) -> Mark | None:
        """The way from where a queue was read to its newest event; None where there is none."""
        span = self._bulk.span(queue)
        first, last = self._place(span.first), self._place(span.last)
        now = time.time_ns() // 1_000_000
        if here is None:
            last = _earlier(last, cap)
            return Mark(place=last, start=first, at_ms=now) if last.n > first.n else None
        if is_reset(here.place, first, last):
            self._refuse_loss(queue, here.place, None)
            return Mark(place=last, start=first, at_ms=now, lost=None)
        last = max(here.place, _earlier(last, cap), key=lambda place: place.n)
        lost = first.n - here.place.n
        if lost <= 0:
            begin = here.place if here.initial else None
            return Mark(place=last, start=begin, at_ms=now if begin else 0)
        self._refuse_loss(queue, here.place, lost)
        last = max(last, first, key=lambda place: place.n)
        return Mark(place=last, start=first, at_ms=now, lost=lost)

    def _refuse_loss(self, queue: str, place: Place, lost: int | None) -> None:
        if not self._options.fail_on_loss:
            return
        fact = (
            f"was deleted or began anew after event {place.n:,}, how many are lost is unknown"
            if lost is None
            else f"has lost {lost:,} events after number {place.n:,} to trimming"
        )
        raise StorageError(
            f"{NAME}: queue '{queue}' {fact}; read on with failOnDataLoss=false, which writes a"
            " row for the gap, and keep more with events_kept= or read more often"
        )

    def _moves(self, mark: Mark, here: Mark | None) -> bool:
        if here is None:
            return True
        return mark.place != here.place or (mark.start is not None and not here.initial)

    def _limited(
        self, legs: Mapping[str, Mark], start: Mapping[str, Mark], limit: int
    ) -> dict[str, Mark]:
        begins = {queue: _begin(start.get(queue), mark) for queue, mark in legs.items()}
        backlog = {
            queue: mark.place.n - begin.n
            for queue, mark in legs.items()
            if (begin := begins[queue]) is not None
        }
        limited: dict[str, Mark] = {}
        for queue, share in shares(backlog, limit).items():
            mark, begin = legs[queue], begins[queue]
            assert begin is not None
            if share < backlog[queue]:
                mark = self._shorten(queue, begin, mark, start.get(queue), share)
            limited[queue] = mark
        return limited

    def _shorten(self, queue: str, begin: Place, mark: Mark, here: Mark | None, share: int) -> Mark:
        """End a leg after `share` events; what is trimmed meanwhile is a loss like another."""
        for _ in range(_TRIES):
            try:
                place = self._place(self._bulk.advance(queue, begin.cursor, share))
            except EventsTrimmed:
                fresh = self._leg(queue, here, mark.place)
                if fresh is None or (following := _begin(here, fresh)) is None:
                    break
                begin, mark = following, fresh
                share = min(share, max(0, mark.place.n - begin.n))
            else:
                return replace(mark, place=place)
        raise StorageError(
            f"{NAME}: queue '{queue}' is trimmed faster than its events can be counted;"
            " keep more with events_kept="
        )

    def _divide(self, piece: Piece, rows: int) -> list[Piece]:
        wanted = self._options.partitions
        most = wanted or self._slots
        count = max(1, round(most * piece.planned / rows)) if rows else 1
        if wanted is None:
            count = max(1, min(count, piece.planned // _LEAST_ROWS))
        parts: list[Piece] = []
        at, gap = piece.after, piece.gap
        for number in range(1, min(count, max(piece.planned, 1))):
            goal = piece.after.n + piece.planned * number // count
            try:
                place = self._place(self._bulk.advance(piece.queue, at.cursor, goal - at.n))
            except EventsTrimmed:  # whoever reads it says so
                break
            if place.n != goal:
                break
            parts.append(Piece(piece.queue, at, place, gap))
            at, gap = place, None
        return [*parts, Piece(piece.queue, at, piece.until, gap)]

    def _place(self, cursor: Cursor) -> Place:
        return Place(cursor, self._bulk.number(cursor))

    def _word(self, edge: Edge, queue: str) -> str | None:
        found = edge if isinstance(edge, str) else edge.get(queue, EARLIEST)
        return found if isinstance(found, str) else None

    def _resolve(self, edge: Edge) -> dict[str, Place]:
        """Turn what the options say into places; queues at `earliest` are left out."""
        if edge == EARLIEST:
            return {}
        found: dict[str, Place] = {}
        for queue in self.queues() if isinstance(edge, str) else edge:
            value = edge if isinstance(edge, str) else edge[queue]
            if value == LATEST:
                found[queue] = self._place(self._bulk.span(queue).last)
            elif isinstance(value, Place):
                self._check(queue, value)
                found[queue] = value
        return found

    def _check(self, queue: str, place: Place) -> None:
        n = self._bulk.number(place.cursor)
        if n != place.n:
            raise InvalidOption(
                f"{NAME}: offset of '{queue}': id '{place.cursor}' has the number {n:,},"
                f" not {place.n:,}; copy offsets whole"
            )


def is_reset(here: Place, first: Place, last: Place) -> bool:
    """Tell whether a stream began anew since somebody stood at `here`.

    Where ids are times, an entry that is still counted must be no older than the oldest one.
    """
    if here.n > last.n or here.cursor > last.cursor:
        return here.n > 0
    spot, oldest = here.cursor, first.cursor
    return here.n > first.n and (spot.major, spot.minor) <= (oldest.major, oldest.minor)


def shares(backlog: Mapping[str, int], limit: int) -> dict[str, int]:
    """Divide a limit by how much each queue has, at least one each while it lasts."""
    total = sum(backlog.values())
    if total <= limit:
        return dict(backlog)
    found = {queue: limit * rows // total for queue, rows in backlog.items()}
    left = limit - sum(found.values())
    needy: Iterable[str] = sorted(backlog, key=lambda queue: (found[queue], -backlog[queue]))
    for queue in needy:
        if left and found[queue] < backlog[queue]:
            found[queue] += 1
            left -= 1
    return found


def _begin(here: Mark | None, mark: Mark) -> Place | None:
    if mark.start is not None:
        return mark.start
    return None if here is None else here.place


def _gap(here: Mark | None, mark: Mark) -> Gap | None:
    if mark.lost is None:
        return Gap(0 if here is None else here.place.n, None, mark.at_ms)
    return Gap(mark.start.n, mark.lost, mark.at_ms) if mark.lost and mark.start else None


def _earlier(place: Place, cap: Place | None) -> Place:
    return place if cap is None or place.n <= cap.n else cap
