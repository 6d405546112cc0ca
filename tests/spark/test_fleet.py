"""A fleet drains queues on executors: each job once, with retries, orders and counts."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import Server
from toril import Backoff, JobContext, JobOptions, NewJob, Reject, State, SyncQueue
from toril.errors import InvalidOption, StorageError, TorilError
from toril.spark import FleetProgress, SparkWorkerFleet
from toril.spark.board import control_queue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def filled(queue: str, url: str, jobs: int, **options: Any) -> Iterator[SyncQueue[Any, Any]]:
    """A queue with so many jobs in it, ids and data counted from 0."""
    with SyncQueue[Any, Any](queue, url, defaults=JobOptions(**options)) as found:
        found.add_bulk(
            [NewJob(name="job", data={"n": n}, id=f"job-{n:05}") for n in range(jobs)]
        )
        yield found


@pytest.fixture(params=["redis", "bullmq", "file"])
def url(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> str:
    """Each storage that several processes share."""
    urls = {"redis": server.url, "bullmq": f"bullmq+{server.url}", "file": f"file:{tmp_path}/jobs"}
    return urls[request.param]


def test_two_tasks_drain_a_queue_and_complete_each_job_once(
    spark: SparkSession, url: str, queue: str
) -> None:
    jobs = 2000

    async def double(job: JobContext[Any]) -> int:
        return int(job.data["n"]) * 2

    with filled(queue, url, jobs) as held:
        fleet = SparkWorkerFleet(
            spark, queue, double, tasks=2, concurrency=50, stop_when="drained", url=url
        )
        result = fleet.start().result(timeout=60)
        records = held.get_jobs([State.COMPLETED], 0, jobs)
    assert [one.attempts_started for one in records] == [1] * jobs
    assert {one.id: one.result for one in records} == {
        f"job-{n:05}": n * 2 for n in range(jobs)
    }
    assert (result.completed, result.failed, result.retried) == (jobs, 0, 0)
    assert [(one.task, one.attempt, one.ended) for one in result.tasks] == [
        (0, 0, True),
        (1, 0, True),
    ]
    assert result.died == []
