"""Move finished jobs to Parquet with Spark, and out of the store once they are safe there."""

import asyncio
from pathlib import Path

from toril import MissingExtra, Queue, SyncQueue
from toril.spark import open_session
from toril.spark.flows import archive, read_archive

URL = "file:flow-jobs"  # on one machine; use a server, as redis://host:6379, on a cluster


async def work() -> None:
    queue = Queue[int, int]("squares", URL)
    queue.execute(lambda job: job.data**2)
    async with queue:
        for number in range(20):
            await queue.enqueue_and_wait(f"square-{number}", number)


def main() -> None:
    try:
        spark = open_session("local[2]", app="spark-archive")
    except MissingExtra as missing:
        print(missing)
        return

    asyncio.run(work())
    path = str(Path("archive").resolve())
    run = archive(spark, "squares", path, url=URL)
    print(f"archived: {run.archived}, deleted: {run.purged}, changed: {run.changed}")
    with SyncQueue("squares", URL) as queue:
        print("left in the store:", queue.get_job_counts().total)

    jobs = read_archive(spark, path)
    (row,) = jobs.where("id = 'square-7'").collect()
    print("square-7:", row["state"], row["data"], "->", row["result"])


main()
