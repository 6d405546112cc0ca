"""A fleet drains queues on executors: each job once, with retries, orders and counts."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import Server
from tests.spark.filled import by_number, filled, until
from toril import Backoff, JobContext, JobOptions, Reject, State, SyncQueue
from toril.errors import InvalidOption, StorageUnavailable, TorilError
from toril.spark import FleetHandle, FleetProgress, SparkWorkerFleet
from toril.spark.board import control_queue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Handlers are made inside the tests: Spark then carries them by value, and the executors need
# not find this file.


@pytest.fixture(params=["redis", "bullmq", "file"])
def url(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> str:
    """Each storage that several processes share."""
    urls = {"redis": server.url, "bullmq": f"bullmq+{server.url}", "file": f"file:{tmp_path}/jobs"}
    return urls[request.param]


def test_two_tasks_drain_a_queue_and_complete_each_job_once(
    spark: SparkSession, url: str, queue: str
) -> None:
    async def double(job: JobContext[Any]) -> int:
        return int(job.data["n"]) * 2

    with filled(queue, url, 2000) as held, SyncQueue(control_queue(queue), url) as control:
        result = (
            SparkWorkerFleet(
                spark, queue, double, tasks=2, concurrency=50, stop_when="drained", url=url
            )
            .start()
            .result(timeout=60)
        )
        jobs = by_number(held)
        assert control.get_job_counts().total == 0
    assert {n: job.result for n, job in jobs.items()} == {n: n * 2 for n in range(2000)}
    assert {job.attempts_started for job in jobs.values()} == {1}
    assert (result.completed, result.failed, result.retried) == (2000, 0, 0)
    assert [(one.task, one.attempt, one.ended) for one in result.tasks] == [
        (0, 0, True),
        (1, 0, True),
    ]
    assert result.died == []


@pytest.mark.parametrize("url", ["redis", "bullmq"], indirect=True)
def test_a_drained_fleet_has_waited_for_retries(spark: SparkSession, url: str, queue: str) -> None:
    def moody(job: JobContext[Any]) -> str:
        if job.data["n"] % 10 == 1:
            raise Reject("never")
        if job.data["n"] % 10 == 2 and job.attempt < 3:
            raise ValueError("not yet")
        if job.data["n"] % 10 == 3:
            raise ValueError("not ever")
        return "done"

    options = JobOptions(attempts=3, backoff=Backoff("fixed", 0.4))
    with filled(queue, url, 50, options) as held:
        fleet = SparkWorkerFleet(
            spark, queue, moody, tasks=2, concurrency=5, stop_when="drained", url=url
        )
        with fleet.start() as handle:
            result = handle.result(timeout=60)
        completed, failed = by_number(held), by_number(held, State.FAILED)
    assert {n for n, job in completed.items() if job.attempts_made == 3} == {2, 12, 22, 32, 42}
    assert sorted(failed) == [n for n in range(50) if n % 10 in (1, 3)]
    assert {failed[n].attempts_made for n in failed if n % 10 == 3} == {3}
    assert (result.completed, result.failed, result.retried) == (40, 10, 20)


def test_a_stopped_fleet_lets_running_jobs_end_and_leaves_the_rest(
    spark: SparkSession, server: Server, queue: str
) -> None:
    seen: list[FleetProgress] = []

    async def slow(job: JobContext[Any]) -> None:
        await asyncio.sleep(0.4)

    with filled(queue, server.url, 400) as held:
        fleet = SparkWorkerFleet(
            spark, queue, slow, tasks=2, concurrency=5, url=server.url, on_progress=seen.append
        )
        handle = fleet.start()
        until(lambda: handle.progress().completed >= 10)
        live = handle.progress()
        with pytest.raises(TimeoutError, match=r"still at work after 0\.01 s"):
            handle.result(timeout=0.01)
        handle.stop(drain=True)
        result = handle.result()
        counts = held.get_job_counts()
        jobs = by_number(held)
    assert live.running == 2
    assert not live.stopping
    assert live.counts.active == 10
    assert seen[-1].stopping
    assert (counts.active, counts.waiting) == (0, 400 - result.completed)
    assert {job.attempts_started for job in jobs.values()} == {1}
    assert result.completed == len(jobs) > 0
    assert handle.done
    assert handle.progress().completed == result.completed


def test_a_fleet_may_be_stopped_by_its_own_progress(
    spark: SparkSession, server: Server, queue: str
) -> None:
    handles: list[FleetHandle] = []

    async def quick(job: JobContext[Any]) -> None:
        pass

    def enough(progress: FleetProgress) -> None:
        if progress.completed >= 5:
            handles[0].stop()

    with filled(queue, server.url, 5):
        fleet = SparkWorkerFleet(spark, queue, quick, url=server.url, on_progress=enough)
        handles.append(fleet.start())
        assert handles[0].result(timeout=60).completed == 5


def test_a_fleet_that_must_not_drain_hands_running_jobs_back(
    spark: SparkSession, server: Server, queue: str
) -> None:
    async def endless(job: JobContext[Any]) -> None:
        await asyncio.sleep(600)

    def interrupted(held: SyncQueue[Any, Any]) -> None:
        fleet = SparkWorkerFleet(spark, queue, endless, tasks=2, concurrency=2, url=server.url)
        with fleet.start():
            until(lambda: held.get_job_counts().active == 4)
            raise ZeroDivisionError  # leaving the block by an error does not wait for the jobs

    with filled(queue, server.url, 6) as held:
        with pytest.raises(ZeroDivisionError):
            interrupted(held)
        waiting = by_number(held, State.WAITING)
    assert sorted(waiting) == list(range(6))
    assert {job.attempts_made for job in waiting.values()} == {0}


@pytest.mark.parametrize("storage", ["redis", "bullmq"])
def test_k7_the_jobs_of_a_killed_worker_process_are_worked_again(
    spark: SparkSession, server: Server, queue: str, storage: str, tmp_path: Path
) -> None:
    target = server.url if storage == "redis" else f"bullmq+{server.url}"
    once = tmp_path / "once"

    async def deadly(job: JobContext[Any]) -> str:
        await asyncio.sleep(0.01)
        if job.data["n"] == 150:
            try:
                once.touch(exist_ok=False)
            except FileExistsError:
                return "survived"
            os.kill(os.getpid(), signal.SIGKILL)
        return "done"

    with filled(queue, target, 300, JobOptions(attempts=1)) as held:
        fleet = SparkWorkerFleet(
            spark,
            queue,
            deadly,
            tasks=2,
            concurrency=10,
            stop_when="drained",
            url=target,
            lease=1.5,
            reap_interval=0.5,
        )
        result = fleet.start().result(timeout=60)
        jobs = by_number(held)
        assert held.get_job_counts().total == 300
    assert sorted(jobs) == list(range(300))
    assert jobs[150].result == "survived"
    assert {job.attempts_made for job in jobs.values()} == {1}  # a stall is no attempt
    assert {job.attempts_started for job in jobs.values() if job.stalls} == {2}
    assert jobs[150].stalls == 1
    assert len([job for job in jobs.values() if job.stalls]) <= 10
    assert sorted(one.attempt for one in result.tasks) == [0, 1]
    assert [one.attempt for one in result.died] == [0]
    # What it did in its last half second, it did not tell.
    assert 0 < result.completed <= 300


def test_jobs_longer_than_their_lease_stay_with_their_task(
    spark: SparkSession, server: Server, queue: str
) -> None:
    async def blocking(job: JobContext[Any]) -> None:
        time.sleep(2.5)  # noqa: ASYNC251 - on purpose: the heart beats in a thread

    def plain(job: JobContext[Any]) -> None:
        time.sleep(2.5)

    with SyncQueue[Any, Any](queue, server.url) as held:
        held.add("blocking", {"n": 0})
        held.add("plain", {"n": 1})
        result = (
            SparkWorkerFleet(
                spark,
                queue,
                {"blocking": blocking, "plain": plain},
                tasks=2,
                stop_when="drained",
                url=server.url,
                lease=1,
                reap_interval=0.3,
            )
            .start()
            .result(timeout=60)
        )
        jobs = by_number(held)
    assert result.completed == 2
    assert [(job.attempts_started, job.stalls) for job in jobs.values()] == [(1, 0)] * 2


def test_a_handler_may_be_named_and_what_it_did_is_logged(
    spark: SparkSession,
    server: Server,
    queue: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = tmp_path / "handlers_for_the_fleet.py"
    module.write_text("async def answer(job):\n    return 42\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    spark.sparkContext.addPyFile(str(module))
    caplog.set_level(logging.INFO, "toril.spark.fleet")
    with filled(queue, server.url, 3) as held:
        fleet = SparkWorkerFleet(
            spark,
            queue,
            f"{module.stem}:answer",
            stop_when="drained",
            url=server.url,
        )
        assert fleet.tasks == 2
        fleet.start().result(timeout=60)
        assert [job.result for job in by_number(held).values()] == [42] * 3
    assert f"fleet on '{queue}': 3 completed, 0 failed, 0 retried" in caplog.text


def test_executors_find_the_embedded_server_of_the_drivers_directory(
    spark: SparkSession, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(job: JobContext[Any]) -> int:
        return 42

    monkeypatch.chdir(tmp_path)
    with filled(queue, "embedded:here", 3) as held:
        fleet = SparkWorkerFleet(spark, queue, answer, stop_when="drained", url="embedded:here")
        assert fleet.start().result(timeout=60).completed == 3
        assert len(by_number(held)) == 3


def test_a_storage_that_cannot_be_reached_is_told_at_once(spark: SparkSession, queue: str) -> None:
    fleet = SparkWorkerFleet(spark, queue, "json:dumps", tasks=1, url="redis://127.0.0.1:1")
    with pytest.raises(StorageUnavailable, match=r"127\.0\.0\.1:1"):
        fleet.start()


def test_what_only_an_executor_can_notice_comes_back_as_the_same_error(
    spark: SparkSession, server: Server, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The executors got their environment when the session started.
    monkeypatch.setenv("TORIL_FLEET_URL", server.url)
    fleet = SparkWorkerFleet(spark, queue, "json:dumps", tasks=2, url_env="TORIL_FLEET_URL")
    with pytest.raises(InvalidOption, match="set TORIL_FLEET_URL on the driver and on all exec"):
        fleet.start().result(timeout=60)


def test_a_fleet_whose_tasks_keep_dying_says_so_in_one_line(
    spark: SparkSession, server: Server, queue: str
) -> None:
    async def deadly(job: JobContext[Any]) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with filled(queue, server.url, 10):
        fleet = SparkWorkerFleet(spark, queue, deadly, tasks=1, url=server.url)
        with pytest.raises(TorilError, match="Spark gave up") as caught:
            fleet.start().result(timeout=60)
    assert "\n" not in str(caught.value)
    assert "Python worker exited unexpectedly" in str(caught.value)
    assert len(str(caught.value)) < 500
