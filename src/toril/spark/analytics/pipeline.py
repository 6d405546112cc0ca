"""Go all the way from a queue's events to figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toril.spark.analytics.bronze import BronzeRun, bronze, read_bronze
from toril.spark.analytics.gold import Gold, check_sla, gold
from toril.spark.analytics.lake import Lake
from toril.spark.analytics.reconcile import RECORD, reconcile
from toril.spark.analytics.silver import FOLDER, Silver, update_silver, write
from toril.spark.register import register
from toril.spark.schema import GAP, JOBS, ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HOLES: Final = f"""
SELECT queue, max(IF(kind IN ('{GAP}', 'cleaned'), time, NULL)) AS time
FROM {{events}} WHERE kind IN ('{GAP}', 'cleaned', 'removed') GROUP BY queue
HAVING count_if(kind = '{GAP}') > 0
  OR sum(IF(kind = 'cleaned', count, 0)) > count_if(kind = 'removed')
"""
"""Queues of which events are missing: lost to trimming, or never told, as the wire of BullMQ
tells of a cleaning only how many jobs it took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What one run read, and the tables of the whole lake."""

    bronze: BronzeRun
    silver: Silver
    gold: Gold


def analyze(
    spark: SparkSession,
    lake: str,
    *,
    queues: Sequence[str],
    url: str | None = None,
    url_env: str | None = None,
    password_file: str | None = None,
    sla_ms: int | None = None,
    fail_on_data_loss: bool = True,
    rebuild: bool = False,
) -> Analysis:
    """Read what is new, bring silver up to date, and make gold of all that the lake holds.

    Where events of a queue are missing, its jobs are read from the storage and silver is
    reconciled with them; that is worked out anew each time.
    """
    check_sla(sla_ms)
    run = bronze(
        spark,
        lake,
        queues=queues,
        url=url,
        url_env=url_env,
        password_file=password_file,
        fail_on_data_loss=fail_on_data_loss,
        rebuild=rebuild,
    )
    silver = update_silver(spark, lake, rebuild=rebuild)
    events = read_bronze(spark, lake)
    holes = spark.sql(_HOLES, events=events)
    names = sorted({str(row["queue"]) for row in holes.collect()} & set(queues))
    if names:
        # Written down first: the storage goes on, and every table of gold is to see the same.
        place = Lake(spark, lake)
        records = _read_jobs(spark, names, url, url_env, password_file)
        table = write(records, place.at(FOLDER, "records"))
        gaps = holes.where(holes["queue"].isin(names))
        jobs = reconcile(silver.jobs, table, gaps=gaps)
        silver = Silver(jobs=write(jobs, place.at(FOLDER, "reconciled")), attempts=silver.attempts)
    return Analysis(
        bronze=run, silver=silver, gold=gold(events, silver.jobs, silver.attempts, sla_ms=sla_ms)
    )


def _read_jobs(
    spark: SparkSession,
    queues: Sequence[str],
    url: str | None,
    url_env: str | None,
    password_file: str | None,
) -> DataFrame:
    register(spark)
    given = {
        "queues": ",".join(queues),
        "url": url,
        "urlEnv": url_env,
        "passwordFile": password_file,
    }
    options = {name: value for name, value in given.items() if value is not None}
    columns = ddl({name: JOBS[name] for name in RECORD})
    return spark.read.format("toril_jobs").schema(columns).options(**options).load()
