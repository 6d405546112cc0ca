"""Drain a queue on a small cluster and kill one of its executors; prints the result as JSON.

python -m tests.spark.cluster_fleet <url> <queue> <marker file>
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from toril import JobContext
from toril.spark import SparkWorkerFleet, open_session


def main(url: str, queue: str, marker: str) -> None:
    """Run the fleet; the job number 100 takes an executor with it, once."""

    def is_first() -> bool:
        try:
            Path(marker).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def kill_executor() -> None:
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
        os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)  # its parent, the JVM

    async def deadly(job: JobContext[Any]) -> str:
        await asyncio.sleep(0.02)
        if job.data["n"] != 100:
            return "done"
        if is_first():
            kill_executor()
            await asyncio.sleep(600)
        return "survived"

    spark = open_session("local-cluster[2,1,1024]", settings={"spark.driver.memory": "1g"})
    try:
        fleet = SparkWorkerFleet(
            spark,
            queue,
            deadly,
            tasks=2,
            concurrency=10,
            stop_when="drained",
            url=url,
            lease=2,
            reap_interval=1,
        )
        result = fleet.start().result(timeout=120)
    finally:
        spark.stop()
    attempts = sorted(one.attempt for one in result.tasks)
    print(json.dumps({"attempts": attempts, "died": len(result.died)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
