"""Read one piece of a queue's events on an executor, straight into Arrow."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from toril.errors import EventsTrimmed, StorageError
from toril.event import Cursor
from toril.spark.events_arrow import from_columns
from toril.spark.events_gather import gather
from toril.spark.events_options import NAME
from toril.spark.events_plan import Gap, Piece
from toril.spark.schema import GAP
from toril.spark.target import Target
from toril.storage.columns import Bulk

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS: Final = 16_000
"""Rows per Arrow batch, about: small ones cost Spark more than they save memory."""


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
        gathered = gather(bulk)
        while left > 0:
            try:
                wanted = min(self.fetch_size, left)
                at, seen = gathered.read(piece.queue, at, piece.until.cursor, wanted)
            except EventsTrimmed as error:
                if gathered:
                    yield gathered.take(piece.queue, self.columns)
                at, gap = self._jump(bulk, piece, at, left, error)
                left -= gap.count or 0
                yield self._gap_row(piece.queue, gap)
                continue
            if not seen:
                break
            left -= seen
            if len(gathered) >= _ROWS:
                yield gathered.take(piece.queue, self.columns)
        if gathered:
            yield gathered.take(piece.queue, self.columns)
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

    def _gap_row(self, queue: str, gap: Gap) -> pa.RecordBatch:
        row: dict[str, list[Any]] = {
            "number": [gap.n],
            "kind": [GAP],
            "time_ms": [gap.time_ms],
            "count": [gap.count],
            "reason": ["reset" if gap.count is None else "trimmed"],
        }
        return from_columns(queue, row, self.columns)


def _gap_now(n: int, count: int) -> Gap:
    return Gap(n, count, time.time_ns() // 1_000_000)
