"""Load a file into a queue with Spark: each row a job, none twice."""

from pathlib import Path

from toril import MissingExtra, SyncQueue
from toril.spark import open_session
from toril.spark.flows import Shape, ingest

URL = "file:flow-jobs"  # on one machine; use a server, as redis://host:6379, on a cluster


def main() -> None:
    try:
        spark = open_session("local[2]", app="spark-ingest")
    except MissingExtra as missing:
        print(missing)
        return

    orders = Path("orders.csv").resolve()
    orders.write_text("number,total,urgent\n" + "".join(f"{n},{n * 10},1\n" for n in range(1000)))

    shape = Shape(
        id_column="number",
        id_prefix="order-",  # bare numbers are ids that servers count up themselves
        name="invoice",
        data_columns=["number", "total"],
        option_columns={"priority": "urgent"},
    )
    schema = "number bigint, total double, urgent int"
    for _ in range(2):
        run = ingest(spark, str(orders), "orders", shape=shape, schema=schema, url=URL)
        print(f"rows: {run.rows}, created: {run.created}, there already: {run.duplicates}")

    with SyncQueue("orders", URL) as queue:
        job = queue.get_job("order-7")
        assert job is not None
        print("order-7:", job.name, job.data, "priority", job.priority)


main()
