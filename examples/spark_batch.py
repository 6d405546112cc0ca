"""Score jobs with a DataFrame function: the driver claims a batch, Spark computes, it settles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toril import MissingExtra, SyncQueue
from toril.spark import open_session, spark_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

URL = "file:batch-jobs"


@spark_batch("score", max_jobs=200, data_schema="amount double", attempts=1, url=URL)
def score(jobs: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    amount = jobs.data.amount
    return jobs.select(
        "id",
        f.round(amount * 1.19, 2).alias("result"),
        f.when(amount < 0, "amount is negative").alias("error"),
    )


def main() -> None:
    try:
        spark = open_session("local[2]", app="spark-batch")
    except MissingExtra as missing:
        print(missing)
        return

    with SyncQueue("score", URL) as queue:
        queue.add_many("score", [{"amount": n - 1.0} for n in range(500)])
        result = score.run(spark, stop_when="drained")
        print("batches:", result.batches, "completed:", result.completed)
        (failed,) = queue.get_jobs("failed")
        print("failed:", failed.error)


main()
