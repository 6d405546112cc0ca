"""See what a queue did: jobs first, then one HTML file. Needs Java 17 and `toril[spark]`."""

import asyncio
import logging
import random
import sys
from pathlib import Path

from toril import JobContext, MissingExtra, Queue, Worker
from toril.spark import open_session, write_report
from toril.spark.analytics import analyze

NUMBER, HERE = 500, Path.cwd()
URL, LAKE = f"embedded:{HERE / 'data'}", str(HERE / "lake")  # for all of Spark's processes
dice = random.Random(7)


async def send(job: JobContext[int]) -> None:
    await asyncio.sleep(dice.expovariate(200))
    if dice.random() < 0.1:
        raise ConnectionError(f"peer {job.data % 5} hung up")


async def work() -> None:
    queue = Queue[int, None]("mail", URL)
    async with queue, Worker(queue, send, concurrency=20):
        added = await queue.add_many("send", range(NUMBER), attempts=2, backoff=0.1)
        ends = (queue.wait_until_finished(job.id) for job in added)
        await asyncio.gather(*ends, return_exceptions=True)
        counts = await queue.get_job_counts()
    print(f"store: {counts.completed} completed, {counts.failed} failed")


def main() -> None:
    try:
        spark = open_session("local[2]")
    except MissingExtra as missing:
        sys.exit(print(f"skipped: {missing}"))
    asyncio.run(work())
    gold = analyze(spark, LAKE, queues=["mail"], url=URL, sla_ms=1000).gold
    (total,) = gold.totals.collect()
    print(f"events: {total['completed']} completed, {total['failed']} failed")
    print("written:", write_report(gold, "report.html"))


logging.getLogger("toril").setLevel(logging.CRITICAL)  # the trouble is on purpose
main()
