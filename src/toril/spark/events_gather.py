"""Gather pages of events until they fill an Arrow batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from toril.event import Cursor
from toril.spark.events_arrow import from_columns, from_runs
from toril.storage.columns import Bulk
from toril.storage.runs import EventRuns, ReadsRuns, reads_runs

if TYPE_CHECKING:
    import pyarrow as pa


class Gathered(Protocol):
    """Events that were read and not handed on yet."""

    def __len__(self) -> int: ...

    def read(self, queue: str, after: Cursor, until: Cursor, limit: int) -> tuple[Cursor, int]:
        """Read a page; tell the place after it and how many numbers it has, as `EventPage` does."""
        ...

    def take(self, queue: str, columns: tuple[str, ...]) -> pa.RecordBatch:
        """Hand them on as an Arrow batch; there must be some."""
        ...


def gather(bulk: Bulk) -> Gathered:
    """Begin, in the cheapest way that a storage has."""
    in_runs = reads_runs(bulk)
    return _InColumns(bulk) if in_runs is None else _InRuns(in_runs)


class _InRuns:
    def __init__(self, bulk: ReadsRuns) -> None:
        self._bulk = bulk
        self._runs = EventRuns()

    def __len__(self) -> int:
        return len(self._runs)

    def read(self, queue: str, after: Cursor, until: Cursor, limit: int) -> tuple[Cursor, int]:
        before = len(self._runs)
        reached = self._bulk.read_runs(queue, after, until, limit, self._runs)
        return reached, len(self._runs) - before

    def take(self, queue: str, columns: tuple[str, ...]) -> pa.RecordBatch:
        batch = from_runs(queue, self._runs, columns)
        self._runs.clear()
        return batch


class _InColumns:
    def __init__(self, bulk: Bulk) -> None:
        self._bulk = bulk
        self._rows: dict[str, list[Any]] = {"number": []}

    def __len__(self) -> int:
        return len(self._rows["number"])

    def read(self, queue: str, after: Cursor, until: Cursor, limit: int) -> tuple[Cursor, int]:
        page = self._bulk.read_page(queue, after, until, limit)
        for name, values in cast("dict[str, list[Any]]", page.columns).items():
            self._rows.setdefault(name, []).extend(values)
        return page.reached, page.seen

    def take(self, queue: str, columns: tuple[str, ...]) -> pa.RecordBatch:
        batch = from_columns(queue, self._rows, columns)
        self._rows = {"number": []}
        return batch
