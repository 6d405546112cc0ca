"""Queues as tables and streams of Spark: read, write, analyse, and work jobs on executors."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toril.spark.batch import BatchResult, SparkBatch, spark_batch
    from toril.spark.fleet import SparkWorkerFleet
    from toril.spark.fleet_count import FleetProgress, FleetResult, TaskCount
    from toril.spark.fleet_handle import FleetHandle
    from toril.spark.session import open_session

_HOMES = {
    "BatchResult": "batch",
    "FleetHandle": "fleet_handle",
    "FleetProgress": "fleet_count",
    "FleetResult": "fleet_count",
    "SparkBatch": "batch",
    "SparkWorkerFleet": "fleet",
    "TaskCount": "fleet_count",
    "open_session": "session",
    "spark_batch": "batch",
}

__all__ = [
    "BatchResult",
    "FleetHandle",
    "FleetProgress",
    "FleetResult",
    "SparkBatch",
    "SparkWorkerFleet",
    "TaskCount",
    "open_session",
    "spark_batch",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
