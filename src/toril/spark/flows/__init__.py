"""Flows of data between queues and tables: ingest, archive, replay, export."""

from typing import TYPE_CHECKING

from toril.spark.lazy import lend

if TYPE_CHECKING:
    from toril.spark.flows.archive import ArchiveRun, archive, read_archive
    from toril.spark.flows.export import ExportRun, export, result_table
    from toril.spark.flows.ingest import IngestRun, Shape, ingest
    from toril.spark.flows.replay import Candidate, ReplayRun, replay

_HOMES = {
    "ArchiveRun": "archive",
    "Candidate": "replay",
    "ExportRun": "export",
    "IngestRun": "ingest",
    "ReplayRun": "replay",
    "Shape": "ingest",
    "archive": "archive",
    "export": "export",
    "ingest": "ingest",
    "read_archive": "archive",
    "replay": "replay",
    "result_table": "export",
}

__all__ = [
    "ArchiveRun",
    "Candidate",
    "ExportRun",
    "IngestRun",
    "ReplayRun",
    "Shape",
    "archive",
    "export",
    "ingest",
    "read_archive",
    "replay",
    "result_table",
]

__getattr__ = lend(__name__, _HOMES)
