"""Queues as tables and streams of Spark: read, write, analyse, and work jobs on executors."""

from typing import TYPE_CHECKING

from toril.spark.lazy import lend

if TYPE_CHECKING:
    from toril.spark.jobs_save import write_jobs
    from toril.spark.register import register
    from toril.spark.session import open_session

_HOMES = {
    "open_session": "session",
    "register": "register",
    "write_jobs": "jobs_save",
}

__all__ = ["open_session", "register", "write_jobs"]

__getattr__ = lend(__name__, _HOMES)
