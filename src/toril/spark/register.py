"""Make toril's sources known to a Spark session."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from toril.spark.session import check_installed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

_SOURCES: Final = {
    "toril.spark.events_source": "EventsSource",
    "toril.spark.jobs_source": "JobsSource",
}


def register(spark: SparkSession) -> None:
    """Let a session read and write `toril_events` and `toril_jobs`; repeating is harmless."""
    check_installed()
    for home, name in _SOURCES.items():
        if find_spec(home) is not None:
            source = getattr(import_module(home), name)
            spark.dataSource.register(_placed(source, spark))


def _placed(source: type[DataSource], spark: SparkSession) -> type[DataSource]:
    """Tell a source what only the driver knows: it plans in a process of its own."""
    context = spark.sparkContext
    known = {"master": context.master, "slots": context.defaultParallelism}
    return type(source.__name__, (source,), known)
