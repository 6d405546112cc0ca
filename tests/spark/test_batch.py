"""Batches: a DataFrame function works the jobs of a queue, the driver keeps the leases."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import Server
from tests.spark.filled import by_number, filled
from toril import Backoff, JobOptions, State
from toril.errors import InvalidInput, InvalidOption
from toril.spark import BatchResult, SparkBatch, spark_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(params=["redis", "bullmq", "file"])
def url(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> str:
    """Each storage that several processes share."""
    urls = {"redis": server.url, "bullmq": f"bullmq+{server.url}", "file": f"file:{tmp_path}/jobs"}
    return urls[request.param]


def test_a_function_of_a_frame_works_all_jobs_once(
    spark: SparkSession, url: str, queue: str
) -> None:
    seen: list[BatchResult] = []

    @spark_batch(queue, max_jobs=1500, url=url, data_schema="n int", on_progress=seen.append)
    def double(df: DataFrame) -> DataFrame:
        return df.select("id", (df.data.n * 2).alias("returnvalue"))

    with filled(queue, url, 2000) as held:
        result = double.run(spark)
        jobs = by_number(held)
    assert {n: job.result for n, job in jobs.items()} == {n: n * 2 for n in range(2000)}
    assert {job.attempts_started for job in jobs.values()} == {1}
    assert (result.batches, result.completed, result.failed, result.lost) == (2, 2000, 0, 0)
    assert [one.completed for one in seen] == [1500, 2000]


def test_rows_end_on_their_own_terms(spark: SparkSession, server: Server, queue: str) -> None:
    from pyspark.sql import functions as f

    def judge(df: DataFrame) -> DataFrame:
        n, attempt = df.data.n, df.attempt
        return df.where(n != 3).select(
            "id",
            f.struct(n, df.name, df.max_attempts, f.array(n).alias("list")).alias("result"),
            f.when((n == 1) & (attempt == 1), "not yet").when(n == 2, "not ever").alias("error"),
        )

    options = JobOptions(attempts=2, backoff=Backoff("fixed", 0.1))
    with filled(queue, server.url, 5, options) as held:
        held.add("job", {"n": 5}, expires_in=0.001)
        batch = SparkBatch(queue, judge, data_schema="n int", url=server.url)
        result = batch.run(spark)
        completed, failed = by_number(held), by_number(held, State.FAILED)
    assert completed[4].result == {"n": 4, "name": "job", "max_attempts": 2, "list": [4]}
    assert {n: job.attempts_made for n, job in completed.items()} == {0: 1, 1: 2, 4: 1}
    assert str(failed[2].error) == "RowError: not ever"
    assert failed[2].attempts_made == 2
    assert str(failed[3].error) == (
        "RowMissing: spark_batch function 'judge' returned no row for this job"
    )
    assert failed[3].attempts_made == 1
    assert "JobExpired" in str(failed[5].error)  # the function never saw it
    assert (result.completed, result.failed, result.retried) == (3, 3, 2)


def test_an_exception_of_the_function_costs_each_job_an_attempt(
    spark: SparkSession, server: Server, queue: str
) -> None:
    from pyspark.sql import functions as f

    calls = 0

    def moody(df: DataFrame) -> DataFrame:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ConnectionError("model server away")
        if calls == 2:  # raised by Spark, when the rows are asked for
            return df.select("id", f.raise_error(f.lit("boom")).cast("string").alias("result"))
        return df.select("id", f.lit(None).alias("result"))

    options = JobOptions(attempts=3, backoff=None)
    with filled(queue, server.url, 20, options) as held:
        result = SparkBatch(queue, moody, url=server.url).run(spark)
        jobs = by_number(held)
    assert {(job.attempts_made, job.result) for job in jobs.values()} == {(3, None)}
    assert (len(jobs), result.completed, result.retried, result.batches) == (20, 20, 40, 3)


def test_a_result_that_is_no_answer_is_raised_and_costs_nothing(
    spark: SparkSession, server: Server, queue: str
) -> None:
    from pyspark.sql import functions as f

    value = f.lit("x").alias("result")
    wrong: dict[str, Any] = {
        "returned two rows for job 'job-": lambda df: df.union(df).select("id", value),
        "with id 'stranger', which is not in the batch of 3": lambda df: df.select(
            f.lit("stranger").alias("id"), value
        ),
        "with id null": lambda df: df.select(f.lit(None).cast("string").alias("id"), value),
        "returned the columns id; needed are": lambda df: df.select("id"),
        "returned NoneType; return a DataFrame": lambda df: None,
        "column 'id' is int; cast it to string": lambda df: df.select(f.lit(1).alias("id"), value),
        "column 'result' holds timestamp, which JSON has not": lambda df: df.select(
            "id", f.struct(f.array("created_at")).alias("result")
        ),
    }
    with filled(queue, server.url, 3) as held:
        for message, function in wrong.items():
            with pytest.raises(InvalidInput) as caught:
                SparkBatch(queue, function, url=server.url).run(spark)
            assert message in str(caught.value)
        waiting = by_number(held, State.WAITING)
    assert {n: job.attempts_made for n, job in waiting.items()} == {0: 0, 1: 0, 2: 0}


def test_an_interrupted_run_hands_its_jobs_back(
    spark: SparkSession, server: Server, queue: str
) -> None:
    def interrupted(df: DataFrame) -> DataFrame:
        raise KeyboardInterrupt

    with filled(queue, server.url, 7) as held:
        with pytest.raises(KeyboardInterrupt):
            SparkBatch(queue, interrupted, url=server.url).run(spark)
        assert held.get_job_counts().waiting == 7


@pytest.mark.parametrize("url", ["redis", "bullmq"], indirect=True)
def test_a_batch_longer_than_its_lease_stays_with_the_driver(
    spark: SparkSession, url: str, queue: str
) -> None:
    def slow(df: DataFrame) -> DataFrame:
        time.sleep(2.5)
        return df.select("id", df.name.alias("result"))

    with filled(queue, url, 1200) as held:
        batch = SparkBatch(queue, slow, url=url, lease=1, reap_interval=0.3)
        result = batch.run(spark)
        jobs = by_number(held)
    assert (result.completed, result.lost, result.batches) == (1200, 0, 1)
    assert {(job.attempts_started, job.stalls) for job in jobs.values()} == {(1, 0)}


def test_jobs_that_vanish_meanwhile_are_counted_as_lost(
    spark: SparkSession, server: Server, queue: str
) -> None:
    with filled(queue, server.url, 5) as held:

        def careless(df: DataFrame) -> DataFrame:
            held.obliterate(force=True)
            return df.select("id", df.name.alias("result"))

        result = SparkBatch(queue, careless, url=server.url, lease=0.3).run(spark)
    assert (result.completed, result.lost) == (0, 5)


def test_a_run_ends_by_the_number_of_batches_or_when_told_to(
    spark: SparkSession, server: Server, queue: str
) -> None:
    def echo(df: DataFrame) -> DataFrame:
        return df.select("id", "data").withColumnRenamed("data", "result")

    with filled(queue, server.url, 50) as held:
        batch = SparkBatch(queue, echo, max_jobs=10, url=server.url)
        assert batch.run(spark, stop_when=None, max_batches=1).completed == 10
        told = SparkBatch(
            queue, echo, max_jobs=10, url=server.url, on_progress=lambda _done: told.stop()
        )
        assert told.run(spark, stop_when=None).completed == 10
        assert held.get_job_counts().waiting == 30
        assert {job.result for job in by_number(held).values()} == {
            f'{{"n":{n}}}' for n in range(20)
        }


def test_a_batch_refuses_what_cannot_be_meant(spark: SparkSession, queue: str) -> None:
    def function(df: DataFrame) -> DataFrame:
        return df

    for options, message in (
        ({"max_jobs": 0}, "max_jobs=0"),
        ({"leese": 1}, "unknown option 'leese'. Did you mean 'lease'?"),
        ({"concurrency": 5}, "takes no concurrency=: a batch is worked as one; use max_jobs="),
        ({"url": "redis://:geheim@host"}, "holds a password"),
    ):
        given: dict[str, Any] = {"url": "redis://127.0.0.1:1", **options}
        with pytest.raises(InvalidOption) as caught:
            spark_batch(queue, **given)(function)
        assert message in str(caught.value)
    batch = SparkBatch(queue, function, url="redis://127.0.0.1:1")
    frame = spark.range(1)
    assert batch(frame) is frame  # called, it is the function
    with pytest.raises(InvalidOption, match="stop_when='empty'"):
        batch.run(spark, stop_when="empty")  # type: ignore[arg-type]
