"""What a queue did, as tables: bronze (events), silver (jobs and attempts), gold (figures)."""

from typing import TYPE_CHECKING

from toril.spark.lazy import lend

if TYPE_CHECKING:
    from toril.spark.analytics.bronze import BronzeRun, bronze, read_bronze

_HOMES = {
    "BronzeRun": "bronze",
    "bronze": "bronze",
    "read_bronze": "bronze",
}

__all__ = ["BronzeRun", "bronze", "read_bronze"]

__getattr__ = lend(__name__, _HOMES)
