"""Read one piece of a queue's events on an executor, straight into Arrow."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from toril.errors import EventsTrimmed, StorageError
from toril.event import Cursor
from toril.spark.events_options import NAME
from toril.spark.events_plan import Gap, Piece
from toril.spark.schema import EVENTS, GAP, arrow_schema
from toril.spark.target import Target
from toril.storage.columns import Bulk

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS: Final = 16_000
"""Rows per Arrow batch, about: small ones cost Spark more than they save memory."""

_MICROS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a task reads; crosses to the executors, so it holds no connection and no secret."""

    target: Target
    columns: tuple[str, ...]
    fetch_size: int
    fail_on_loss: bool

    def read(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """Give the events of a piece; fewer than planned is an error, or a row for the gap."""
        if piece.gap is not None:
            yield self._gap_row(piece.queue, piece.gap)
        if piece.planned <= 0:
            return
        bulk = self.target.open()
        try:
            yield from self._read(bulk, piece)
        finally:
            bulk.close()

    def _read(self, bulk: Bulk, piece: Piece) -> Iterator[pa.RecordBatch]:
        at, left = piece.after.cursor, piece.planned
        rows: dict[str, list[Any]] = {}
        while left > 0:
            try:
                page = bulk.read_page(
                    piece.queue, at, piece.until.cursor, min(self.fetch_size, left)
                )
            except EventsTrimmed as error:
                yield from self._flush(piece.queue, rows)
                at, gap = self._jump(bulk, piece, at, left, error)
                left -= gap.count or 0
                yield self._gap_row(piece.queue, gap)
                continue
            if not page.seen:
                break
            at, left = page.reached, left - page.seen
            for name, values in cast("dict[str, list[Any]]", page.columns).items():
                rows.setdefault(name, []).extend(values)
            if len(rows["number"]) >= _ROWS:
                yield from self._flush(piece.queue, rows)
        yield from self._flush(piece.queue, rows)
        if left:
            self._refuse(piece, left)
            yield self._gap_row(piece.queue, _gap_now(piece.until.n, left))

    def _jump(
        self, bulk: Bulk, piece: Piece, at: Cursor, left: int, error: EventsTrimmed
    ) -> tuple[Cursor, Gap]:
        """Go to where events are again, or to the end of the piece if that comes first."""
        here = piece.until.n - left
        gone = bulk.number(error.resume) - here
        if not 0 < gone <= left:
            gone = left
        self._refuse(piece, gone)
        return error.resume, _gap_now(here + gone, gone)

    def _refuse(self, piece: Piece, missing: int) -> None:
        if self.fail_on_loss:
            raise StorageError(
                f"{NAME}: queue '{piece.queue}': {missing:,} of {piece.planned:,} planned events"
                f" after number {piece.after.n:,} were gone when they were read; read on with"
                " failOnDataLoss=false, which writes a row for the gap, and keep more"
                " with events_kept="
            )

    def _flush(self, queue: str, rows: dict[str, list[Any]]) -> Iterator[pa.RecordBatch]:
        if rows and rows["number"]:
            yield to_arrow(queue, rows, self.columns)
        rows.clear()

    def _gap_row(self, queue: str, gap: Gap) -> pa.RecordBatch:
        row: dict[str, list[Any]] = {
            "number": [gap.n],
            "kind": [GAP],
            "time_ms": [gap.time_ms],
            "count": [gap.count],
            "reason": ["reset" if gap.count is None else "trimmed"],
        }
        return to_arrow(queue, row, self.columns)


def to_arrow(queue: str, rows: Mapping[str, list[Any]], columns: tuple[str, ...]) -> pa.RecordBatch:
    """Make an Arrow batch of the chosen columns; those that are not there are null."""
    import pyarrow as pa

    schema = arrow_schema({name: EVENTS[name] for name in columns})
    count = len(rows["number"])
    arrays: list[pa.Array] = []
    for field in schema:
        if field.name == "queue":
            arrays.append(pa.repeat(pa.scalar(queue), count))
        elif field.name == "time":
            arrays.append(_times(rows["time_ms"], field.type))
        elif field.name in rows:
            arrays.append(_array(rows[field.name], field.type))
        else:
            arrays.append(pa.nulls(count, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _times(values: list[int], kind: pa.DataType) -> pa.Array:
    """Make timestamps of milliseconds; Arrow's own cast to a finer unit takes twice as long."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.multiply_checked(pa.array(values, pa.int64()), _MICROS).view(kind)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Make one column; most are the same from end to end, many of them null."""
    import pyarrow as pa

    one = values[0]
    # The ends and the middle are looked at first: to compare all of a column that differs is waste.
    if one == values[-1] == values[len(values) // 2] and values.count(one) == len(values):
        return pa.repeat(pa.scalar(one, kind), len(values))
    return pa.array(values, kind)


def _gap_now(n: int, count: int) -> Gap:
    return Gap(n, count, time.time_ns() // 1_000_000)
