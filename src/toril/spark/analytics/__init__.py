"""What a queue did, as tables: bronze (events), silver (jobs and attempts), gold (figures)."""

from typing import TYPE_CHECKING

from toril.spark.lazy import lend

if TYPE_CHECKING:
    from toril.spark.analytics.bronze import BronzeRun, bronze, read_bronze
    from toril.spark.analytics.gold import Gold, gold, write_gold

_HOMES = {
    "BronzeRun": "bronze",
    "bronze": "bronze",
    "read_bronze": "bronze",
    "Gold": "gold",
    "gold": "gold",
    "write_gold": "gold",
}

__all__ = ["BronzeRun", "Gold", "bronze", "gold", "read_bronze", "write_gold"]

__getattr__ = lend(__name__, _HOMES)
