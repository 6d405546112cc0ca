"""Write the results of completed jobs as a table with Spark."""

import asyncio
from pathlib import Path

from toril import JobContext, MissingExtra, Queue
from toril.spark import open_session
from toril.spark.flows import export

URL = "file:flow-jobs"  # on one machine; use a server, as redis://host:6379, on a cluster


async def weigh(job: JobContext[str]) -> object:
    words = job.data.split()
    return {"words": len(words), "longest": max(words, key=len)} if words else "nothing"


async def work() -> None:
    queue = Queue[str, object]("texts", URL)
    queue.execute(weigh)
    async with queue:
        for name, text in (("a", "to be or not"), ("b", "hello world"), ("c", "")):
            await queue.enqueue_and_wait(name, text)


def main() -> None:
    try:
        spark = open_session("local[2]", app="spark-export")
    except MissingExtra as missing:
        print(missing)
        return

    asyncio.run(work())
    path, schema = str(Path("texts").resolve()), "words int, longest string"
    run = export(spark, "texts", path, schema=schema, overwrite=True, url=URL)
    print(f"rows: {run.rows}, not fitting the schema: {run.unparsed}")
    for row in spark.read.parquet(path).orderBy("job_id").collect():
        print(row["job_id"], row["words"], row["longest"], row["result_unparsed"])


main()
