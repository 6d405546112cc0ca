"""Retry the failed jobs that a condition in Spark SQL chooses."""

import asyncio

from toril import JobContext, JobFailed, MissingExtra, PermanentError, Queue, SyncQueue
from toril.spark import open_session
from toril.spark.flows import replay

URL = "file:flow-jobs"  # on one machine; use a server, as redis://host:6379, on a cluster


async def send(job: JobContext[str]) -> None:
    slow = job.data.endswith(".slow")
    raise PermanentError("timeout after 30 s" if slow else "no such address")


async def work() -> None:
    queue = Queue[str, None]("mails", URL)
    queue.execute(send)
    async with queue:
        for address in ("ada@a.slow", "bob@b.gone", "eve@e.slow"):
            try:
                await queue.enqueue_and_wait(address, address)
            except JobFailed as error:
                print(f"{address}: {error.original_error.reason}")


def main() -> None:
    try:
        spark = open_session("local[2]", app="spark-replay")
    except MissingExtra as missing:
        print(missing)
        return

    asyncio.run(work())
    where = "failure_reason like '%timeout%'"
    look = replay(spark, "mails", where, dry_run=True, url=URL)
    print("would retry:", *sorted(one.id for one in look.sample))
    run = replay(spark, "mails", where, url=URL)
    print(f"retried: {run.retried} of {run.matched}, changed meanwhile: {run.changed}")
    with SyncQueue("mails", URL) as queue:
        counts = queue.get_job_counts()
        print(f"waiting: {counts.waiting}, failed: {counts.failed}")


main()
