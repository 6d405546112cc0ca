"""Queues as tables and streams of Spark: read, write, analyse, and work jobs on executors."""

from typing import TYPE_CHECKING

from toril.spark.lazy import lend

if TYPE_CHECKING:
    from toril.spark.batch import BatchResult, SparkBatch, spark_batch
    from toril.spark.fleet import SparkWorkerFleet
    from toril.spark.fleet_count import FleetProgress, FleetResult, TaskCount
    from toril.spark.fleet_handle import FleetHandle
    from toril.spark.jobs_save import write_jobs
    from toril.spark.register import register
    from toril.spark.report.page import write_report
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
    "register": "register",
    "spark_batch": "batch",
    "write_jobs": "jobs_save",
    "write_report": "report.page",
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
    "register",
    "spark_batch",
    "write_jobs",
    "write_report",
]

__getattr__ = lend(__name__, _HOMES)
