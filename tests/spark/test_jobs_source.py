"""Jobs as a table: read by state, written by row, on all storages that executors can open."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers import Server
from toril.job import State
from toril.spark import register
from toril.storage import open_bulk
from toril.storage.columns import Bulk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module", autouse=True)
def registered(spark: SparkSession) -> None:
    """The source under its name."""
    register(spark)


@pytest.fixture(params=["redis", "bullmq", "file"])
def url(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file:{tmp_path / 'store'}"
    return server.url if request.param == "redis" else f"bullmq+{server.url}"


@pytest.fixture
def bulk(url: str) -> Iterator[Bulk]:
    opened = open_bulk(url)
    yield opened
    opened.close()


def rows(spark: SparkSession, count: int) -> DataFrame:
    """Orders."""
    return spark.range(count).selectExpr(
        "concat('order-', id) AS order_id",
        "id AS number",
        "timestamp_millis(id) AS at",
        "named_struct('tags', array('a', 'b'), 'price', cast(id AS decimal(10, 2))) AS more",
    )


def test_rows_become_jobs_and_jobs_rows(
    spark: SparkSession, url: str, bulk: Bulk, queue: str, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    writer = rows(spark, 1000).write.format("toril_jobs").mode("append")
    writer = writer.option("url", url).option("queue", queue).option("idColumn", "order_id")
    writer = writer.option("reportPath", str(report)).option("name", "ship")
    writer.save()
    facts = {"queue": queue, "rows": 1000}
    assert json.loads(report.read_text()) == facts | {"created": 1000, "duplicates": 0}
    writer.save()
    assert json.loads(report.read_text()) == facts | {"created": 0, "duplicates": 1000}
    assert bulk.counts(queue)[State.WAITING] == 1000
    reader = spark.read.format("toril_jobs").option("url", url).option("queue", queue)
    found = {row.id: row for row in reader.load().collect()}
    assert len(found) == 1000
    row = found["order-7"]
    assert (row.queue, row.name, row.state) == (queue, "ship", "waiting")
    assert (row.max_attempts, row.attempts_made, row.finished_at) == (3, 0, None)
    assert abs((datetime.now(UTC) - row.created_at.replace(tzinfo=UTC)).total_seconds()) < 600
    assert json.loads(row.data) == {
        "order_id": "order-7",
        "number": 7,
        "at": "1970-01-01T00:00:00.007000Z",
        "more": {"tags": ["a", "b"], "price": "7.00"},
    }
