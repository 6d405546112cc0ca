"""From bronze to gold: how time grows with the events, and the memory it takes.

python -m benchmarks.spark.analytics [--small 1000000] [--large 5000000] [--reps 1]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.spark.figure import Figure
from toril.spark.analytics.bronze import read_bronze
from toril.spark.analytics.gold import gold
from toril.spark.analytics.lake import Lake
from toril.spark.analytics.manifest import FOLDER, Entry, folder_of, record
from toril.spark.analytics.silver import update_silver
from toril.spark.schema import EVENTS
from toril.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALL: Final = 1_000_000
LARGE: Final = 5_000_000
_WARM: Final = 50_000
_LIMIT_GB: Final = 3.0

_PLAIN: Final = "added waiting active completed"
_RETRIED: Final = "added waiting active retrying delayed waiting active completed"
_FAILED: Final = "added waiting active failed retries-exhausted"
_STALLED: Final = "added waiting active stalled waiting active completed"
_EVENTS_A_JOB: Final = (16 * 4 + 2 * 8 + 5 + 7) / 20
"""Of twenty jobs two are retried, one fails and one stalls."""

_QUERY: Final = f"""
WITH jobs AS (
  SELECT id, pmod(hash(id), 2000) AS wait, 1 + pmod(hash(id, 1), 900) AS run,
    split(CASE WHEN id % 20 < 16 THEN '{_PLAIN}' WHEN id % 20 < 18 THEN '{_RETRIED}'
      WHEN id % 20 = 18 THEN '{_FAILED}' ELSE '{_STALLED}' END, ' ') AS kinds
  FROM {{ids}}
),
told AS (
  SELECT id, wait, run, step, kind FROM jobs LATERAL VIEW posexplode(kinds) AS step, kind
)
SELECT concat('queue-', id % 2) AS queue, id * 10 + step AS number, kind,
  timestamp_millis(1790000000000 + id * 5 + IF(step < 2, 0, wait) + IF(step < 3, 0, run)
    + IF(step < 5, 0, 1000) + IF(step < 7, 0, run)) AS time,
  concat('job-', id) AS job_id, IF(id % 3 = 0, 'mail', 'report') AS job_name,
  CAST(IF(step < 5, 1, 2) AS INT) AS attempt,
  IF(step < 2, NULL, concat('worker-', id % 8)) AS worker_id,
  CASE WHEN kind IN ('completed', 'failed') THEN 'active' END AS prev,
  CASE WHEN kind IN ('failed', 'retrying') THEN concat('ValueError: order ', id, ' is void') END
    AS reason,
  CASE WHEN kind IN ('delayed', 'retrying') THEN 1000L END AS delay_ms,
  CASE WHEN kind IN ('completed', 'failed') THEN CAST(run AS BIGINT) END AS duration_ms,
  CAST(NULL AS BIGINT) AS result_size, CAST(NULL AS STRING) AS progress,
  CAST(NULL AS STRING) AS dedup_id, CAST(NULL AS STRING) AS other_id, CAST(NULL AS BIGINT) AS count
FROM told
"""


def measure(
    spark: SparkSession, reps: int, *, small: int = SMALL, large: int = LARGE
) -> list[Figure]:
    """Time both sizes, warm, and look at the memory afterwards; the best of the repetitions."""
    with make_lake(spark, _WARM) as lake:
        take(spark, lake)
    seconds: dict[int, float] = {}
    for count in (small, large):
        with make_lake(spark, count) as lake:
            seconds[count] = min(take(spark, lake) for _ in range(reps))
    growth = large / small
    return [
        Figure(
            name=f"bronze to gold, {large:,} events against {small:,}",
            ours=seconds[large],
            other=seconds[small],
            unit="s",
            target=f"<= {growth:g} x",
        ),
        Figure(
            name="peak memory, JVM and Python",
            ours=peak_gb(spark),
            other=None,
            unit="GB",
            target=f"<= {_LIMIT_GB:g}",
        ),
    ]


@contextmanager
def make_lake(spark: SparkSession, events: int) -> Iterator[str]:
    """Make a lake whose bronze has about that many events."""
    with tempfile.TemporaryDirectory(prefix="toril-lake-") as root:
        lake = Lake(spark, root)
        made = make_events(spark, round(events / _EVENTS_A_JOB))
        made.write.parquet(lake.at(FOLDER, folder_of(0)))
        sizes = lake.sizes(FOLDER, folder_of(0))
        files = {name: size for name, size in sizes.items() if name.endswith(".parquet")}
        record(lake, Entry(batch=0, files=files, rows=events, gaps=0, lost=0, end={}))
        yield root


def make_events(spark: SparkSession, jobs: int) -> DataFrame:
    """Let Spark make up the events of that many jobs."""
    return spark.sql(_QUERY, ids=spark.range(jobs)).select(*EVENTS)


def take(spark: SparkSession, lake: str) -> float:
    """Make silver from scratch and all of gold; the seconds it takes."""
    start = time.perf_counter()
    silver = update_silver(spark, lake, rebuild=True)
    tables = gold(read_bronze(spark, lake), silver.jobs, silver.attempts, sla_ms=5_000).tables()
    for table in tables.values():
        table.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start


def peak_gb(spark: SparkSession) -> float:
    """The most memory that Spark's JVM and this process ever had, together."""
    jvm = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    return sum(_peak_kb(pid) for pid in (jvm, os.getpid())) / 1024 / 1024


def _peak_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--small", type=int, default=SMALL)
    parser.add_argument("--large", type=int, default=LARGE)
    parser.add_argument("--reps", type=int, default=1)
    args = parser.parse_args()
    spark = open_session("local[2]", app="toril-bench")
    for figure in measure(spark, args.reps, small=args.small, large=args.large):
        against = "" if figure.other is None else f" against {figure.other:.2f}"
        ratio = "" if figure.ratio is None else f", {figure.ratio:.2f} x"
        print(f"{figure.name}: {figure.ours:.2f}{against} {figure.unit}{ratio} ({figure.target})")
    spark.stop()


if __name__ == "__main__":
    main()
