"""What a queue did, as tables: bronze (events), silver (jobs and attempts), gold (figures)."""

from typing import TYPE_CHECKING

from toril.spark.lazy import lend

if TYPE_CHECKING:
    from toril.spark.analytics.bronze import BronzeRun, bronze, read_bronze
    from toril.spark.analytics.gold import Gold, gold, write_gold
    from toril.spark.analytics.pipeline import Analysis, analyze
    from toril.spark.analytics.reconcile import reconcile
    from toril.spark.analytics.silver import (
        Silver,
        read_silver,
        silver_attempts,
        silver_jobs,
        update_silver,
    )

_HOMES = {
    "Analysis": "pipeline",
    "BronzeRun": "bronze",
    "Gold": "gold",
    "Silver": "silver",
    "analyze": "pipeline",
    "bronze": "bronze",
    "gold": "gold",
    "read_bronze": "bronze",
    "read_silver": "silver",
    "reconcile": "reconcile",
    "silver_attempts": "silver",
    "silver_jobs": "silver",
    "update_silver": "silver",
    "write_gold": "gold",
}

__all__ = [
    "Analysis",
    "BronzeRun",
    "Gold",
    "Silver",
    "analyze",
    "bronze",
    "gold",
    "read_bronze",
    "read_silver",
    "reconcile",
    "silver_attempts",
    "silver_jobs",
    "update_silver",
    "write_gold",
]

__getattr__ = lend(__name__, _HOMES)
