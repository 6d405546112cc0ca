"""Read jobs on executors: columns of the store become columns of Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, cast

from pyspark.sql.datasource import DataSourceReader, InputPartition

from toril.job import FINISHED
from toril.spark.jobs_plan import JobsPlan, Share
from toril.spark.schema import arrow_schema
from toril.storage.columns import Columns
from toril.storage.columns_walk import pick

if TYPE_CHECKING:
    import pyarrow as pa

_SOURCES: Final = {
    "data": "payload",
    "result_bytes": "result",
    "created_at": "created_ms",
    "due_at": "due_ms",
    "processed_at": "processed_ms",
    "finished_at": "finished_ms",
}
"""The store's column behind one of the table's, if it has another name."""
_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""
_AS_TEXT: Final = frozenset({"data", "progress", "result"})
"""Columns of text that the store has as bytes."""


class JobsPartition(InputPartition):
    """What one task reads."""

    def __init__(self, shares: Sequence[Share]) -> None:
        super().__init__(None)
        self.shares = shares


class JobsReader(DataSourceReader):
    """Reads without taking: no job changes."""

    def __init__(self, plan: JobsPlan) -> None:
        self.plan = plan

    def partitions(self) -> Sequence[JobsPartition]:
        """Cut the jobs there are now, on the driver."""
        bulk = self.plan.target.open()
        try:
            return [JobsPartition(shares) for shares in self.plan.cut(bulk)]
        finally:
            bulk.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's jobs, on an executor."""
        bulk = self.plan.target.open()
        try:
            for share in cast("JobsPartition", partition).shares:
                wanted = self._wanted(share)
                for columns in bulk.scan_jobs(share.queue, share.cut, wanted, self.plan.fetch_size):
                    yield to_arrow(self._within(share, columns), share.queue, self.plan.columns)
        finally:
            bulk.close()

    def _wanted(self, share: Share) -> list[str]:
        names = {_SOURCES.get(name, name) for name in self.plan.columns if name != "queue"}
        if self._is_bounded_by_creation(share):
            names.add("created_ms")
        return sorted(names | {"id"})

    def _is_bounded_by_creation(self, share: Share) -> bool:
        bounded = self.plan.since_ms is not None or self.plan.until_ms is not None
        return bounded and share.cut.state not in FINISHED

    def _within(self, share: Share, columns: Columns) -> Columns:
        """Leave out unfinished jobs that were added before or after the bounds."""
        if not self._is_bounded_by_creation(share):
            return columns
        low = self.plan.since_ms or 0
        high = self.plan.until_ms
        keep = [
            low <= time and (high is None or time < high)
            for time in cast("list[int]", columns["created_ms"])
        ]
        return pick(columns, keep)


def to_arrow(columns: Columns, queue: str, chosen: dict[str, str]) -> pa.RecordBatch:
    """Make a batch of exactly the columns chosen, in their order."""
    import pyarrow as pa

    schema = arrow_schema(chosen)
    count = len(columns["id"])
    arrays = []
    for field in schema:
        values = columns.get(_SOURCES.get(field.name, field.name), [])
        if field.name == "queue":
            arrays.append(pa.repeat(queue, count))
        elif field.name in _AS_TEXT:
            arrays.append(_text(values))
        else:
            arrays.append(_array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: list[object], kind: pa.DataType) -> pa.Array:
    """Make a column; numbers that Node may store and the column cannot hold are bent to fit."""
    import pyarrow as pa

    is_time = pa.types.is_timestamp(kind)
    stored = pa.timestamp("ms", tz="UTC") if is_time else kind
    try:
        return pa.array(values, stored).cast(kind)
    except (pa.ArrowInvalid, OverflowError):
        most = _LAST_MS if is_time else (1 << kind.bit_width - 1) - 1
        bent = [None if one is None else min(cast("int", one), most) for one in values]
        return pa.array(bent, stored).cast(kind)


def _text(values: list[object]) -> pa.Array:
    """Bytes as text; null where they are none."""
    import pyarrow as pa

    try:
        return pa.array(values, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_decoded(value) for value in values], pa.string())


def _decoded(value: object) -> object:
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return None
