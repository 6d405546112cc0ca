"""Jobs as a table: read by state, written by row, on all storages that executors can open."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.servers import Server
from toril.ids import ulid
from toril.job import JobSpec, State, Terms
from toril.outcome import Completed, Failed, Failure, Outcome
from toril.resp.sync import SyncClient
from toril.resp.url import parse_url
from toril.spark import register, write_jobs
from toril.storage import open_bulk, open_storage
from toril.storage.columns import Bulk
from toril.storage.protocol import Claim

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

HOUR_MS = 3_600_000


@pytest.fixture(scope="module", autouse=True)
def registered(spark: SparkSession) -> None:
    """The sources under their names."""
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


def orders(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).selectExpr(
        "concat('order-', id) AS order_id",
        "id AS number",
        "timestamp_millis(id) AS at",
        "named_struct('tags', array('a', 'b'), 'price', cast(id AS decimal(10, 2))) AS more",
    )


def load(spark: SparkSession, url: str, queue: str, schema: str = "", **given: str) -> list[Row]:
    """Read a queue."""
    reader = spark.read.format("toril_jobs").option("url", url).option("queue", queue)
    reader = reader.options(**given)
    return (reader.schema(schema) if schema else reader).load().collect()


async def fill(url: str, queue: str) -> None:
    """Leave one job in each state that a job can be left in, two of them completed."""
    storage = open_storage(url)
    await storage.open()
    specs = [JobSpec(id=name, payload=b'{"n":1}') for name in ("done-1", "done-2", "bad", "busy")]
    await storage.enqueue(queue, specs)
    claim = Claim(token=ulid(), worker_id="w", count=4, lease_ms=60_000)
    leases = {job.spec.id: job.lease for job in (await storage.claim(queue, claim)).jobs}
    outcomes: list[Outcome] = [
        Completed(lease=leases["done-1"], result=b'{"ok":true}'),
        Completed(lease=leases["done-2"], result=b"null"),
        Failed(lease=leases["bad"], failure=Failure(kind="ValueError", reason="no good")),
    ]
    await storage.settle(queue, outcomes)
    pending = {
        "later": Terms(delay_ms=HOUR_MS),
        "urgent": Terms(priority=5, attempts=4),
        "plain": Terms(),
    }
    await storage.enqueue(queue, [JobSpec(id=name, terms=one) for name, one in pending.items()])
    await storage.close()


def test_jobs_of_all_states_are_rows(spark: SparkSession, url: str, queue: str) -> None:
    asyncio.run(fill(url, queue))
    found = {row.id: row for row in load(spark, url, queue)}
    assert {name: row.state for name, row in found.items()} == {
        "done-1": "completed",
        "done-2": "completed",
        "bad": "failed",
        "busy": "active",
        "later": "delayed",
        "urgent": "prioritized",
        "plain": "waiting",
    }
    done, bad = found["done-1"], found["bad"]
    assert (done.queue, done.name, done.data, done.result) == (
        queue,
        "job",
        '{"n":1}',
        '{"ok":true}',
    )
    assert (bad.failure_kind, bad.failure_reason, bad.result) == ("ValueError", "no good", None)
    assert done.attempts_made == 1
    assert done.created_at <= done.processed_at <= done.finished_at
    assert (found["busy"].worker_id, found["busy"].finished_at) == ("w", None)
    assert (found["urgent"].priority, found["urgent"].max_attempts) == (5, 4)
    wait = found["later"].due_at - found["later"].created_at
    assert wait.total_seconds() == pytest.approx(3600, abs=1)


def test_states_columns_and_times_are_chosen(spark: SparkSession, url: str, queue: str) -> None:
    asyncio.run(fill(url, queue))
    columns = "result_bytes binary, id string, payload binary"
    rows = load(spark, url, queue, columns, states="completed, delayed", partitions="3")
    assert sorted((tuple(row) for row in rows), key=lambda row: row[1]) == [
        (b'{"ok":true}', "done-1", b'{"n":1}'),
        (b"null", "done-2", b'{"n":1}'),
        (None, "later", b"null"),
    ]
    now = datetime.now(UTC)
    assert (
        load(spark, url, queue, "id string", since=str(int(now.timestamp() * 1000) + 600_000)) == []
    )
    everything = {"since": "2020-01-01T00:00:00Z", "until": "2200-01-01T00:00:00+00:00"}
    assert len(load(spark, url, queue, "state string", **everything)) == 7
    assert load(spark, url, f"{queue}-none") == []


def test_rows_become_jobs_and_jobs_rows(
    spark: SparkSession, url: str, bulk: Bulk, queue: str
) -> None:
    given = {"url": url, "idColumn": "order_id", "name": "ship"}
    written = write_jobs(orders(spark, 1000), queue, given)
    assert (written.created, written.duplicates) == (1000, 0)
    written = write_jobs(orders(spark, 1000), queue, given)
    assert (written.created, written.duplicates) == (0, 1000)
    assert bulk.counts(queue)[State.WAITING] == 1000
    found = {row.id: row for row in load(spark, url, queue, partitions="2")}
    assert len(found) == 1000
    row = found["order-7"]
    assert (row.name, row.state, row.max_attempts) == ("ship", "waiting", 3)
    assert json.loads(row.data) == {
        "order_id": "order-7",
        "number": 7,
        "at": "1970-01-01T00:00:00.007000Z",
        "more": {"tags": ["a", "b"], "price": "7.00"},
    }


def test_many_jobs_are_read_by_several_tasks_each_once(
    spark: SparkSession, url: str, bulk: Bulk, queue: str
) -> None:
    ids = [f"row-{number}" for number in range(12_000)]
    bulk.write_jobs(queue, ids[:8000], [b"1"] * 8000)
    bulk.write_jobs(queue, ids[8000:], [b"1"] * 4000, terms=Terms(delay_ms=HOUR_MS))
    reader = spark.read.format("toril_jobs").schema("id string").option("url", url)
    frame = reader.option("queue", queue).option("partitions", 3).option("fetchSize", 700).load()
    found = frame.selectExpr("id", "spark_partition_id() AS task").collect()
    assert sorted(row.id for row in found) == sorted(ids)
    assert len({row.task for row in found}) == 3


def test_what_node_wrote_is_read(spark: SparkSession, server: Server, queue: str) -> None:
    client = SyncClient(parse_url(server.url))
    base = f"bull:{queue}:"

    def job(number: int, **fields: str) -> None:
        flat = [part for pair in fields.items() for part in pair]
        client.call(base, "HSET", f"{base}{number}", *flat)

    common = {"name": "mail", "data": '{"to":"ä"}', "delay": "0", "priority": "0"}
    options = '{"attempts":3,"backoff":{"type":"exponential","delay":1000}}'
    job(1, **common, opts=options, timestamp="1700000000000")
    job(
        2,
        **common,
        opts='{"attempts":0}',
        timestamp="1700000000001",
        processedOn="1700000000005",
        finishedOn="1700000000010",
        returnvalue='"sent"',
        ats="1",
        atm="1",
    )
    job(
        3,
        **common,
        opts=options,
        timestamp="1700000000002",
        finishedOn="1700000000020",
        failedReason="boom",
        stacktrace='["Error: boom"]',
        ats="3",
        atm="3",
        stc="1",
        progress='{"at":5}',
    )
    job(
        4, name="tick", data="{}", opts='{"repeat":{"every":5}}', timestamp="1700000000003", rjk="r"
    )
    client.call(base, "LPUSH", base + "wait", "1")
    client.call(base, "ZADD", base + "completed", "1700000000010", "2")
    client.call(base, "ZADD", base + "failed", "1700000000020", "3")
    client.call(base, "ZADD", base + "delayed", str(1700000005000 * 4096), "4")
    client.close()
    rows = load(spark, f"bullmq+{server.url}?hash_tag=off", queue)
    found = {row.id: row for row in rows}
    assert {name: row.state for name, row in found.items()} == {
        "1": "waiting",
        "2": "completed",
        "3": "failed",
        "4": "delayed",
    }
    assert (found["1"].name, found["1"].data, found["1"].max_attempts) == ("mail", '{"to":"ä"}', 3)
    assert (found["2"].result, found["2"].max_attempts) == ('"sent"', 1)
    assert found["2"].finished_at - found["2"].created_at == datetime.resolution * 9000
    bad = found["3"]
    assert (bad.failure_kind, bad.failure_reason, bad.stalls) == ("Error", "boom", 1)
    assert (bad.attempts_made, bad.progress) == (3, '{"at":5}')
    assert found["4"].due_at.replace(tzinfo=UTC).timestamp() == 1700000005


def test_several_queues_are_one_table(spark: SparkSession, server: Server, queue: str) -> None:
    bulk = open_bulk(server.url)
    for number in (1, 2):
        bulk.write_jobs(f"{queue}{number}", ["a"], [b"\xff" if number == 1 else b"1"])
    bulk.close()
    reader = spark.read.format("toril_jobs").schema("queue string, id string, data string")
    reader = reader.option("url", server.url).option("queues", f"{queue}1, {queue}2")
    rows = sorted(tuple(row) for row in reader.load().collect())
    assert rows == [(f"{queue}1", "a", None), (f"{queue}2", "a", "1")], "bytes are no text"


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), inner, max_size=4)
    ),
    max_leaves=8,
)


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(values=st.lists(VALUES, min_size=30, max_size=60))
def test_any_json_goes_into_a_queue_and_comes_back(
    spark: SparkSession, server: Server, values: list[object]
) -> None:
    queue = f"any-{ulid()}"
    texts = [(f"r{number}", json.dumps(value)) for number, value in enumerate(values)]
    frame = spark.createDataFrame(texts, "id string, data string").coalesce(1)
    write_jobs(frame, queue, {"url": server.url, "idColumn": "id", "dataColumn": "data"})
    found = {row.id: row.data for row in load(spark, server.url, queue, "id string, data string")}
    assert found == dict(texts)
    assert [json.loads(found[name]) for name, _ in texts] == values
