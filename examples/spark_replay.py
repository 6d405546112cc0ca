"""Retry the failed jobs that a condition in Spark SQL chooses."""

from toril import JobContext, MissingExtra, PermanentError, SyncQueue
from toril.errors import JobFailed
from toril.spark import open_session
from toril.spark.flows import replay

URL = "file:flow-jobs"  # on one machine; use a server, as redis://host:6379, on a cluster


def main() -> None:
    try:
        spark = open_session("local[2]", app="spark-replay")
    except MissingExtra as missing:
        print(missing)
        return

    def send(job: JobContext[str]) -> None:
        slow = job.data.endswith(".slow")
        raise PermanentError("timeout after 30 s" if slow else "no such address")

    with SyncQueue[str, None]("mails", URL) as queue:
        queue.execute(send)
        queue.start()
        for address in ("ada@a.slow", "bob@b.gone", "eve@e.slow"):
            try:
                queue.enqueue_and_wait(address, address)
            except JobFailed as error:
                print(f"{address}: {error.original_error.reason}")
        queue.pause()

        where = "failure_reason like '%timeout%'"
        look = replay(spark, "mails", where, dry_run=True, url=URL)
        print("would retry:", *sorted(one.id for one in look.sample))
        run = replay(spark, "mails", where, url=URL)
        print(f"retried: {run.retried} of {run.matched}, changed meanwhile: {run.changed}")
        counts = queue.get_job_counts()
        print(f"waiting: {counts.waiting}, failed: {counts.failed}")


main()
