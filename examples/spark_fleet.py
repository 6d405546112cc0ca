"""Work a queue on Spark executors: ordinary workers in long tasks, stopped when it is drained."""

from toril import JobContext, MissingExtra, SyncQueue
from toril.spark import SparkWorkerFleet, open_session

URL = "file:fleet-jobs"  # on one machine; use a server, as redis://host:6379, on a cluster


def main() -> None:
    try:
        spark = open_session("local[2,4]", app="spark-fleet")
    except MissingExtra as missing:
        print(missing)
        return

    async def resize(job: JobContext[dict[str, int]]) -> int:
        return job.data["width"] // 2

    with SyncQueue("images", URL) as queue:
        queue.add_many("resize", [{"width": n} for n in range(500)])

        fleet = SparkWorkerFleet(
            spark, "images", resize, tasks=2, concurrency=50, stop_when="drained", url=URL
        )
        with fleet.start() as handle:
            result = handle.result()

        print("completed:", result.completed, "failed:", result.failed)
        print("tasks:", len(result.tasks), "died:", len(result.died))
        print("left:", queue.get_job_counts().waiting)


main()
