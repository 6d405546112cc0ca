"""`toril_events`: the events of queues as a table and as a stream of Spark."""

# ruff: noqa: N802  (the names are Spark's)

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from toril.spark.events_offsets import Mark, Offsets, Place, read_marks, write_marks
from toril.spark.events_options import NAME, EventsOptions
from toril.spark.events_plan import Piece, Planner
from toril.spark.events_read import Reading
from toril.spark.planner import end_in_order, put_off
from toril.spark.schema import EVENTS, choose, ddl

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from toril.storage.columns import Bulk


class EventsSource(DataSource):
    """Events by queue; see `toril.spark.register`, which says where Spark runs."""

    master = "local"
    slots = 1

    def __init__(self, options: Mapping[str, str]) -> None:
        self.settings = EventsOptions.read(options)
        self.settings.target.check_reach(self.master)

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return NAME

    def schema(self) -> str:
        """All columns."""
        return ddl(EVENTS)

    def reader(self, schema: StructType) -> EventsReader:
        """Read once."""
        self.settings.check_batch()
        return EventsReader(self.settings, self._reading(schema), self.slots)

    def streamReader(self, schema: StructType) -> EventsStreamReader:
        """Read on and on."""
        self.settings.check_stream()
        return EventsStreamReader(self.settings, self._reading(schema), self.slots)

    def _reading(self, schema: StructType) -> Reading:
        return Reading(
            target=self.settings.target,
            columns=tuple(choose(NAME, schema, EVENTS)),
            fetch_size=self.settings.fetch_size,
            fail_on_loss=self.settings.fail_on_loss,
        )


class EventsReader(DataSourceReader):
    """Plans on the driver, reads on executors."""

    def __init__(self, options: EventsOptions, reading: Reading, slots: int) -> None:
        self._options = options
        self._reading = reading
        self._slots = slots

    def partitions(self) -> Sequence[InputPartition]:
        """Divide what there is now between the starting and the ending offsets."""
        bulk = self._options.target.open()
        try:
            planner = Planner(self._options, bulk, self._slots)
            start = planner.initial()
            return planner.pieces(start, planner.plan(start, caps=planner.last()))
        finally:
            bulk.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a piece; where there is none, Spark gives a partition of its own."""
        return self._reading.read(partition) if isinstance(partition, Piece) else iter(())


class EventsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in one process beside the driver, reads on executors."""

    _bulk: Bulk | None = None

    def __init__(self, options: EventsOptions, reading: Reading, slots: int) -> None:
        self._options = options
        self._reading = reading
        self._slots = slots
        self._caps: dict[str, Place] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave the connection behind: executors make their own."""
        own = ("_bulk", "_planner")
        return {key: value for key, value in self.__dict__.items() if key not in own}

    @cached_property
    def _planner(self) -> Planner:
        end_in_order()
        with put_off():
            self._bulk = self._options.target.open()
        return Planner(self._options, self._bulk, self._slots)

    def initialOffset(self) -> Offsets:
        """Where a query without a checkpoint begins."""
        return write_marks(self._planner.initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        """What `maxRowsPerTrigger` says."""
        most = self._options.max_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Where the next batch ends; where it starts, if there is nothing to read."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        marks = read_marks(start)
        planned = self._planner.plan(marks, most, self._caps)
        # Spark compares offsets by their text.
        return start if planned == marks else write_marks(planned)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note how far the events go now: a query with `availableNow` ends there."""
        self._caps = self._planner.ends()

    def reportLatestOffset(self) -> Offsets:
        """How far the events go, whatever is read of them: the progress then shows the lag."""
        ends = self._planner.ends()
        return write_marks({queue: Mark(place=place) for queue, place in ends.items()})

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Divide a batch into pieces."""
        return self._planner.pieces(read_marks(start), read_marks(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a piece."""
        assert isinstance(partition, Piece)
        return self._reading.read(partition)

    def commit(self, end: Offsets) -> None:
        """Nothing to do: reading takes nothing away."""

    def stop(self) -> None:
        """Let the planner's connection go."""
        with put_off():
            if self._bulk is not None:
                self._bulk.close()
