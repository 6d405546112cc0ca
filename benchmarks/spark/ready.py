"""A source that reads one batch of events and hands it out again and again.

It costs Spark what events cost it, and next to nothing is read: how fast it is bounds every source
of these columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from toril.spark.events_plan import Piece
from toril.spark.events_source import EventsReader, EventsSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType


class ReadySource(EventsSource):
    """Takes the options of `toril_events`."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "ready_events"

    def reader(self, schema: StructType) -> EventsReader:
        """Read a little."""
        return ReadyReader(self.settings, self._reading(schema), self.slots)


class ReadyReader(EventsReader):
    """Plans as the real one does."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give as many rows as there are events, to within a batch."""
        assert isinstance(partition, Piece)
        batches = super().read(partition)
        first = next(batches)
        for _ in range(round(partition.planned / first.num_rows)):
            yield first
