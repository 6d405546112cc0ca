"""Move finished jobs to Parquet with Spark, and out of the store once they are safe there."""

from toril import MissingExtra, SyncQueue
from toril.spark import open_session
from toril.spark.flows import archive, read_archive

URL = "file:flow-jobs"  # on one machine; use a server, as redis://host:6379, on a cluster


def main() -> None:
    try:
        spark = open_session("local[2]", app="spark-archive")
    except MissingExtra as missing:
        print(missing)
        return

    with SyncQueue[int, int]("squares", URL) as queue:
        queue.execute(lambda job: job.data**2)
        queue.start()
        for number in range(20):
            queue.enqueue_and_wait(f"square-{number}", number)

        run = archive(spark, "squares", "archive", url=URL)
        print(f"archived: {run.archived}, deleted: {run.purged}, changed: {run.changed}")
        print("left in the store:", queue.get_job_counts().total)

    jobs = read_archive(spark, "archive")
    (row,) = jobs.where("id = 'square-7'").collect()
    print("square-7:", row["state"], row["data"], "->", row["result"])


main()
