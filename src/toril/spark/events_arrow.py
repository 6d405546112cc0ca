"""Columns and runs of events as Arrow batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

from toril.spark.schema import EVENTS, arrow_schema
from toril.storage.runs import SHARED, EventRuns

if TYPE_CHECKING:
    import pyarrow as pa

_MICROS: Final = 1000


def from_columns(
    queue: str, rows: Mapping[str, list[Any]], columns: tuple[str, ...]
) -> pa.RecordBatch:
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


def from_runs(queue: str, runs: EventRuns, columns: tuple[str, ...]) -> pa.RecordBatch:
    """Make an Arrow batch of the chosen columns; what a run shares is put there by Arrow."""
    import pyarrow as pa

    schema = arrow_schema({name: EVENTS[name] for name in columns})
    spread = _Spread(runs)
    arrays: list[pa.Array] = []
    for field in schema:
        if field.name == "queue":
            arrays.append(pa.repeat(pa.scalar(queue), len(runs)))
        elif field.name == "kind":
            arrays.append(_kinds(runs, field.type))
        elif field.name == "job_id":
            arrays.append(_job_ids(runs, field.type))
        elif field.name == "number":
            arrays.append(spread.numbers())
        elif field.name == "time":
            arrays.append(spread.over(_times(spread.shared["time_ms"], field.type)))
        else:
            arrays.append(spread.over(_array(spread.shared[field.name], field.type)))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Spread:
    """Gives each event what its run has."""

    def __init__(self, runs: EventRuns) -> None:
        self._ends, self._count = runs.ends, len(runs)
        names = ("shift", *SHARED)
        self.shared = dict(zip(names, zip(*runs.shared, strict=True), strict=True))

    def over(self, values: pa.Array) -> pa.Array:
        """Repeat the value of each run as often as it has events."""
        import pyarrow as pa

        if len(values) == self._count:
            return values
        if len(values) == 1 or values.null_count == len(values):
            return pa.repeat(values[0], self._count)
        return values.take(self._runs)

    def numbers(self) -> pa.Array:
        """Tell the numbers of the events."""
        import pyarrow as pa
        import pyarrow.compute as pc

        shifts = _array(self.shared["shift"], pa.int64())
        return pc.add(_places(self._count), self.over(shifts))

    @cached_property
    def _runs(self) -> pa.Array:
        """Tell of each event in which run it is."""
        import pyarrow as pa
        import pyarrow.compute as pc

        ends = pa.array(self._ends, pa.int32())
        runs = pa.array(range(len(self._ends)), pa.int32())
        return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, runs))


def _kinds(runs: EventRuns, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    codes = pa.py_buffer(bytes(runs.codes))
    places = pa.Array.from_buffers(pa.uint8(), len(runs), [None, codes])
    return pa.array(list(runs.kinds), kind).take(places)


def _job_ids(runs: EventRuns, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    jobs = pa.array(runs.job_ids, kind)
    return jobs if runs.width == 1 else jobs.take(_places(len(runs), runs.width))


def _places(count: int, width: int = 1) -> pa.Array:
    """Count up from 0, each number `width` times."""
    return _counted(1 << count.bit_length(), width).slice(0, count)


@lru_cache(maxsize=8)
def _counted(count: int, width: int) -> pa.Array:
    import pyarrow as pa

    return pa.array([place // width for place in range(count)], pa.int64())


def _times(values: Sequence[int], kind: pa.DataType) -> pa.Array:
    """Make timestamps of milliseconds; Arrow's own cast to a finer unit takes twice as long."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.multiply_checked(pa.array(values, pa.int64()), _MICROS).view(kind)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Make one column; most are the same from end to end, many of them null."""
    import pyarrow as pa

    one = values[0]
    # The ends and the middle are looked at first: to compare all of a column that differs is waste.
    if one == values[-1] == values[len(values) // 2] and values.count(one) == len(values):
        return pa.repeat(pa.scalar(one, kind), len(values))
    return pa.array(values, kind)
