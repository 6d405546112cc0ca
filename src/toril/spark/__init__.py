"""Queues as tables and streams of Spark: read, write, analyse, and work jobs on executors."""

from typing import TYPE_CHECKING

from toril.spark.lazy import lend

if TYPE_CHECKING:
    from toril.spark.register import register
    from toril.spark.report.page import write_report
    from toril.spark.session import open_session

_HOMES = {
    "open_session": "session",
    "register": "register",
    "write_report": "report.page",
}

__all__ = ["open_session", "register", "write_report"]

__getattr__ = lend(__name__, _HOMES)
