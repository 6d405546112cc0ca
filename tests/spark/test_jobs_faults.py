"""Tasks, servers and streams that fail half way: every row is one job all the same."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from tests.servers import SAFE, Server, valkey_binary
from toril.errors import InvalidInput
from toril.job import State
from toril.spark import register, write_jobs
from toril.spark.jobs_source import JobsSource
from toril.spark.jobs_write import JobsWriter
from toril.storage import open_bulk
from toril.storage.columns import Bulk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = t.StructType([t.StructField("id", t.StringType())])


@pytest.fixture(scope="module", autouse=True)
def registered(spark: SparkSession) -> None:
    register(spark)


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Many batches of Arrow in a task."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "200")
    yield
    spark.conf.set(name, str(before))


@pytest.fixture(params=["redis", "bullmq"])
def url(request: pytest.FixtureRequest, server: Server) -> str:
    return server.url if request.param == "redis" else f"bullmq+{server.url}"


@pytest.fixture
def bulk(url: str) -> Iterator[Bulk]:
    opened = open_bulk(url)
    yield opened
    opened.close()


def orders(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, 2).selectExpr("concat('order-', id) AS id", "id AS number")


def ids_of(bulk: Bulk, queue: str) -> list[str]:
    """The ids of all waiting jobs, sorted."""
    cuts = bulk.cut_jobs(queue, State.WAITING, 1)
    pages = [page for cut in cuts for page in bulk.scan_jobs(queue, cut, ["id"])]
    return sorted(str(one) for page in pages for one in page["id"])


def dying(marker: Path) -> type[JobsSource]:
    """A source whose first task dies by SIGKILL in the middle of its rows, once."""

    class Writer(JobsWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
            def some() -> Iterator[pa.RecordBatch]:
                for number, batch in enumerate(iterator):
                    if number == 2:
                        try:
                            marker.touch(exist_ok=False)
                        except FileExistsError:
                            pass
                        else:
                            os.kill(os.getpid(), signal.SIGKILL)
                    yield batch

            return super().write(some())

    class Dying(JobsSource):
        @classmethod
        def name(cls) -> str:
            return "toril_jobs_dying"

        def writer(self, schema: t.StructType, overwrite: bool) -> JobsWriter:
            return Writer(super().writer(schema, overwrite).plan)

    return Dying


@pytest.mark.usefixtures("small_batches")
def test_a_killed_task_is_run_again_and_adds_nothing_twice(
    spark: SparkSession, url: str, bulk: Bulk, queue: str, tmp_path: Path
) -> None:
    spark.dataSource.register(dying(tmp_path / "died"))
    report = tmp_path / "report.json"
    writer = orders(spark, 2000).write.format("toril_jobs_dying").mode("append")
    writer = writer.option("url", url).option("queue", queue).option("idColumn", "id")
    writer.option("reportPath", str(report)).save()
    assert (tmp_path / "died").exists()
    assert ids_of(bulk, queue) == sorted(f"order-{number}" for number in range(2000))
    facts = json.loads(report.read_text())
    assert facts["rows"] == facts["created"] + facts["duplicates"] == 2000
    assert facts["duplicates"] >= 400


def attempts(url: str, queue: str, **given: str) -> JobsWriter:
    """A writer as two attempts of one task would have it."""
    options = {"url": url, "queue": queue, "idColumn": "id", "pipelineSize": "50", **given}
    return JobsSource(options).writer(ROWS, False)


def batches(count: int, start: int = 0) -> Iterator[pa.RecordBatch]:
    for first in range(start, start + count, 500):
        ids = [f"order-{number}" for number in range(first, min(first + 500, start + count))]
        yield pa.record_batch([pa.array(ids)], names=["id"])


@pytest.mark.parametrize("mode", ["ignore", "fail"])
def test_two_attempts_of_a_task_at_once_add_each_row_once(
    url: str, bulk: Bulk, queue: str, mode: str
) -> None:
    writer = attempts(url, queue, onDuplicate=mode)
    with ThreadPoolExecutor(2) as pool:
        counts = list(pool.map(lambda _: writer.write(batches(3000)), range(2)))
    assert bulk.counts(queue)[State.WAITING] == 3000
    created = sum(count.created for count in counts)
    assert created == (3000 if mode == "ignore" else 6000)


def test_jobs_of_others_are_refused_where_the_write_must_be_new(
    url: str, bulk: Bulk, queue: str
) -> None:
    bulk.write_jobs(queue, ["order-70"], [b"1"])
    writer = attempts(url, queue, onDuplicate="fail")
    for _ in range(2):  # also when it is tried again
        with pytest.raises(InvalidInput, match=r"1 of 50 jobs are in queue .* 'order-70'"):
            writer.write(batches(100))
    with pytest.raises(InvalidInput, match="id 'order-905' stands in two rows"):
        attempts(url, queue, onDuplicate="fail").write(iter([*batches(9, 900), *batches(2, 905)]))


def test_a_bad_row_is_named_and_nothing_of_its_batch_is_written(
    spark: SparkSession, server: Server, queue: str
) -> None:
    frame = orders(spark, 100).selectExpr("id", "if(number = 77, double('NaN'), number) AS x")
    with pytest.raises(Exception, match="row with id 'order-77': column 'x': nan is not JSON"):
        write_jobs(frame.coalesce(1), queue, {"url": server.url, "idColumn": "id"})
    bulk = open_bulk(server.url)
    assert bulk.counts(queue)[State.WAITING] == 0
    bulk.close()


def test_bytes_that_a_wire_cannot_hold_are_refused_before_any_of_their_batch(
    server: Server, queue: str
) -> None:
    url = f"bullmq+{server.url}"
    fields = [t.StructField("id", t.StringType()), t.StructField("raw", t.BinaryType())]
    options = {"url": url, "queue": queue, "idColumn": "id", "payloadColumn": "raw"}
    writer = JobsSource({**options, "pipelineSize": "1"}).writer(t.StructType(fields), False)
    rows = pa.record_batch([pa.array(["a", "b"]), pa.array([b"1", b"\xff"])], names=["id", "raw"])
    with pytest.raises(InvalidInput, match="data of job 'b': 1 bytes that are not UTF-8"):
        writer.write(iter([rows]))
    bulk = open_bulk(url)
    assert bulk.counts(queue)[State.WAITING] == 0
    bulk.close()


def test_one_id_in_two_tasks_is_refused_where_the_write_must_be_new(
    spark: SparkSession, server: Server, queue: str
) -> None:
    frame = spark.range(0, 2, 1, 2).selectExpr("'the-same' AS id")
    options = {"url": server.url, "idColumn": "id", "onDuplicate": "fail"}
    with pytest.raises(Exception, match="the first is 'the-same'"):
        write_jobs(frame, queue, options)


@pytest.mark.usefixtures("small_batches")
def test_a_server_that_restarts_amid_a_write_has_every_row_once(
    spark: SparkSession, queue: str
) -> None:
    with Server(valkey_binary(), *SAFE) as server:
        bulk = open_bulk(server.url)
        enough = threading.Event()

        def restart() -> None:
            while bulk.counts(queue)[State.WAITING] < 500 and not enough.wait(0.005):
                pass
            server.kill()
            server.start()

        trouble = threading.Thread(target=restart)
        trouble.start()
        try:
            options = {"url": server.url, "idColumn": "id", "pipelineSize": "20"}
            written = write_jobs(orders(spark, 10_000), queue, options)
        finally:
            enough.set()
            trouble.join()
        assert written.created + written.duplicates == 10_000
        assert ids_of(bulk, queue) == sorted(f"order-{number}" for number in range(10_000))
        bulk.close()


def test_a_stream_is_written_once_through_restarts_and_replays(
    spark: SparkSession, url: str, bulk: Bulk, queue: str, tmp_path: Path
) -> None:
    source, checkpoint, reports = (tmp_path / name for name in ("in", "checkpoint", "reports"))
    source.mkdir()

    def put(name: str, numbers: range) -> None:
        lines = [json.dumps({"id": f"order-{number}", "n": number}) for number in numbers]
        (source / name).write_text("\n".join(lines))

    def run() -> None:
        rows = spark.readStream.schema("id string, n bigint").json(str(source))
        writer = rows.writeStream.format("toril_jobs").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(checkpoint)).option("url", url)
        writer = writer.option("queue", queue).option("idColumn", "id")
        writer.option("reportPath", str(reports)).start().awaitTermination()

    put("a.json", range(300))
    run()
    put("b.json", range(300, 500))
    run()
    assert bulk.counts(queue)[State.WAITING] == 500
    for commit in (checkpoint / "commits").glob("*1*"):
        commit.unlink()  # as if the driver had died after the write
    run()
    assert bulk.counts(queue)[State.WAITING] == 500
    facts = [json.loads((reports / f"batch-{number}.json").read_text()) for number in (0, 1)]
    assert facts[0] == {"queue": queue, "batch": 0, "rows": 300, "created": 300, "duplicates": 0}
    assert facts[1] == {"queue": queue, "batch": 1, "rows": 200, "created": 0, "duplicates": 200}
