"""Ingest: rows become jobs, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers import Server
from tests.spark.flow_jobs import counts, known
from toril.errors import InvalidInput, InvalidOption
from toril.spark.flows.ingest import Shape, ingest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(params=["redis", "bullmq"])
def url(request: pytest.FixtureRequest, server: Server) -> str:
    """A storage of each kind that servers hold."""
    return server.url if request.param == "redis" else f"bullmq+{server.url}"


def test_a_directory_of_parquet_is_loaded_once_however_often_it_is_run(
    spark: SparkSession, url: str, queue: str, tmp_path: Path
) -> None:
    path = str(tmp_path / "orders")
    spark.range(3000).selectExpr("id", "id * 2 as total", "1 as urgency").write.parquet(path)
    shape = Shape(
        id_column="id",
        id_prefix="order-",
        name="pay",
        data_columns=["total"],
        options={"attempts": "5"},
        option_columns={"priority": "urgency"},
    )
    heard: list[tuple[int, int | None, str]] = []
    half = spark.read.parquet(path).where("id < 1000")
    assert ingest(spark, half, queue, shape=shape, url=url).created == 1000
    run = ingest(
        spark,
        path,
        queue,
        shape=shape,
        url=url,
        report=lambda done, total=None, note="": heard.append((done, total, note)),
    )
    assert (run.rows, run.created, run.duplicates) == (3000, 2000, 1000)
    assert counts(url, queue).prioritized == 3000
    (job,) = known(url, queue, ["order-7"])
    assert (job.spec.name, json.loads(job.spec.payload)) == ("pay", {"total": 14})
    assert (job.spec.terms.attempts, job.spec.terms.priority) == (5, 1)


def test_a_csv_is_text_and_its_content_makes_the_ids(
    spark: SparkSession, server: Server, queue: str, tmp_path: Path
) -> None:
    path = tmp_path / "mails.csv"
    path.write_text("to,n\nada@example.com,1\nbob@example.com,2\nada@example.com,1\n")
    run = ingest(spark, str(path), queue, url=server.url)
    assert (run.rows, run.created, run.duplicates) == (3, 2, 1)
    again = ingest(spark, str(path), queue, schema="to string, n int", url=server.url)
    assert again.created == 2, "another type is other content"


def test_json_lines_are_loaded_with_their_own_data(
    spark: SparkSession, server: Server, queue: str, tmp_path: Path
) -> None:
    path = tmp_path / "jobs.jsonl"
    rows = [{"key": f"k{n}", "task": "mail", "body": json.dumps({"n": n})} for n in range(3)]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    shape = Shape(id_column="key", name_column="task", data_column="body")
    assert ingest(spark, str(path), queue, shape=shape, url=server.url).created == 3
    (job,) = known(server.url, queue, ["k2"])
    assert (job.spec.name, job.spec.payload) == ("mail", rows[2]["body"].encode())


def test_a_view_is_a_table_too(spark: SparkSession, server: Server, queue: str) -> None:
    spark.range(5).selectExpr("concat('t-', id) as key").createOrReplaceTempView("keys_to_load")
    shape = Shape(id_column="key")
    run = ingest(spark, "keys_to_load", queue, shape=shape, format="table", url=server.url)
    assert run.created == 5


@pytest.mark.parametrize(
    ("name", "shape", "said"),
    [
        ("nowhere.csv", Shape(), "cannot be read as csv"),
        ("nowhere", Shape(), "nothing is at"),
        ("here", Shape(), "does not tell its format"),
        ("mails.csv", Shape(id_column="too"), "no column 'too'. Did you mean 'to'?"),
        ("mails.csv", Shape(options={"atempts": "3"}), "unknown option 'atempts'"),
    ],
)
def test_what_cannot_be_loaded_is_refused(
    spark: SparkSession,
    server: Server,
    queue: str,
    tmp_path: Path,
    name: str,
    shape: Shape,
    said: str,
) -> None:
    (tmp_path / "mails.csv").write_text("to,n\nada@example.com,1\n")
    (tmp_path / "here").mkdir()
    with pytest.raises(InvalidOption) as caught:
        ingest(spark, str(tmp_path / name), queue, shape=shape, url=server.url)
    assert said in str(caught.value)
    assert counts(server.url, queue).total == 0


def test_a_row_that_makes_no_job_is_named(spark: SparkSession, server: Server, queue: str) -> None:
    frame = spark.createDataFrame([("a",), (None,)], "key string")
    with pytest.raises(InvalidInput, match="column 'key' is null"):
        ingest(spark, frame, queue, shape=Shape(id_column="key"), url=server.url)


def test_two_ways_to_say_one_thing_are_refused() -> None:
    with pytest.raises(InvalidOption, match="give name or name_column, not both"):
        Shape(name="a", name_column="b")
