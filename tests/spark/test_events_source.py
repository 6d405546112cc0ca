"""`toril_events` in a real Spark session, over each storage that has `Bulk`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from tests.servers import Server
from tests.spark.making import add_jobs, stored, trim
from toril.ids import ulid
from toril.resp.sync import SyncClient
from toril.resp.url import parse_url
from toril.spark import register
from toril.spark.schema import EVENTS, GAP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECRET = "geheim-4711"


@pytest.fixture(params=["redis", "bullmq", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file:{tmp_path / 'store'}"
    server: Server = request.getfixturevalue("server")
    layout = "bullmq+" if request.param == "bullmq" else ""
    return f"{layout}{server.url}?prefix=s{ulid()}"


@pytest.fixture
def bullmq_url(server: Server) -> str:
    return f"bullmq+{server.url}?prefix=s{ulid()}"


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    register(spark)


class Sink:
    """Collects what a stream query brings, batch by batch."""

    def __init__(self, spark: SparkSession, checkpoint: Path, **options: str) -> None:
        self._stream = spark.readStream.format("toril_events").options(**options).load()
        self._checkpoint = str(checkpoint)
        self.batches: list[list[tuple[str, int, str, int | None]]] = []

    def start(self, **trigger: Any) -> Any:
        def keep(events: DataFrame, _epoch: int) -> None:
            rows = events.select("queue", "number", "kind", "count").collect()
            self.batches.append([tuple(row) for row in rows])

        writer = self._stream.writeStream.foreachBatch(keep)
        return writer.option("checkpointLocation", self._checkpoint).trigger(**trigger).start()

    def run(self) -> list[int]:
        """Read all there is and give the sizes of the batches."""
        self.batches.clear()
        query = self.start(availableNow=True)
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return [len(batch) for batch in self.batches]

    @property
    def numbers(self) -> list[int]:
        return sorted(number for batch in self.batches for _, number, kind, _ in batch)


def test_a_table_of_events_is_the_store(spark: SparkSession, url: str) -> None:
    add_jobs(url, "q", 100)
    events = spark.read.format("toril_events").options(url=url, queue="q", partitions="3").load()
    rows = events.collect()
    assert events.columns == list(EVENTS)
    found = [(r.number, r.kind, r.job_id, round(r.time.timestamp() * 1000)) for r in rows]
    assert sorted(found) == stored(url, "q")
    assert {row.queue for row in rows} == {"q"}


def test_a_schema_of_ones_own_chooses_columns(spark: SparkSession, bullmq_url: str) -> None:
    add_jobs(bullmq_url, "q", 3)
    reader = spark.read.format("toril_events").options(url=bullmq_url, queue="q")
    rows = reader.schema("kind string, number bigint").load().collect()
    assert [tuple(row) for row in rows[:2]] == [("added", 1), ("waiting", 2)]


def test_a_queue_without_events_is_an_empty_table(spark: SparkSession, bullmq_url: str) -> None:
    reader = spark.read.format("toril_events").options(url=bullmq_url, queue="q")
    assert reader.load().count() == 0


def test_a_stream_reads_all_in_batches_and_goes_on_after_a_restart(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    add_jobs(url, "q", 50)
    options = {"url": url, "queue": "q", "maxRowsPerTrigger": "70"}
    sink = Sink(spark, tmp_path / "checkpoint", **options)
    assert sink.run() == [70, 30]
    assert sink.numbers == list(range(1, 101))
    add_jobs(url, "q", 10, first=50)
    later = Sink(spark, tmp_path / "checkpoint", **options)
    assert later.run() == [20]
    assert later.numbers == list(range(101, 121))


def test_progress_shows_how_far_a_stream_lags(
    spark: SparkSession, bullmq_url: str, tmp_path: Path
) -> None:
    add_jobs(bullmq_url, "q", 20)
    sink = Sink(
        spark, tmp_path / "checkpoint", url=bullmq_url, queuePattern="*", maxRowsPerTrigger="25"
    )
    query = sink.start(processingTime="0 seconds")
    try:
        query.processAllAvailable()
        first = next(one for one in query.recentProgress if one["numInputRows"])
    finally:
        query.stop()
    (source,) = first["sources"]
    assert source["numInputRows"] == 25
    ends = {name: json.loads(source[name])["q"]["n"] for name in ("endOffset", "latestOffset")}
    assert ends == {"endOffset": 25, "latestOffset": 40}
    found = [(queue, number) for batch in sink.batches for queue, number, _, _ in batch]
    assert sorted(found) == [("q", n) for n in range(1, 41)]


def test_a_trimmed_stream_ends_the_query_or_leaves_a_row_with_the_exact_count(
    spark: SparkSession, bullmq_url: str, tmp_path: Path
) -> None:
    add_jobs(bullmq_url, "q", 20)
    options = {"url": bullmq_url, "queue": "q"}
    assert Sink(spark, tmp_path / "checkpoint", **options).run() == [40]
    add_jobs(bullmq_url, "q", 30, first=20)
    trim(bullmq_url, "q", 7)
    with pytest.raises(StreamingQueryException, match="has lost 53 events after number 40"):
        Sink(spark, tmp_path / "checkpoint", **options).run()
    lax = Sink(spark, tmp_path / "checkpoint", **options, failOnDataLoss="false")
    assert lax.run() == [8]
    assert [row for row in lax.batches[0] if row[2] == GAP] == [("q", 93, GAP, 53)]
    assert lax.numbers == list(range(93, 101))


def test_an_unknown_option_is_refused_with_a_suggestion(spark: SparkSession) -> None:
    reader = spark.read.format("toril_events").options(url="redis://localhost", quue="q")
    with pytest.raises(AnalysisException, match=r"unknown option 'quue'. Did you mean 'queue'\?"):
        reader.load()


def test_a_secret_is_in_no_plan_no_progress_and_no_checkpoint(
    spark: SparkSession, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_jobs(server.url, "guarded", 2)
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    with guard(server):
        url = server.url.replace("redis://", "redis://reader@")
        options = {"url": url, "queue": "guarded", "passwordFile": str(secret)}
        frame = spark.read.format("toril_events").options(**options).load()
        assert frame.count() == 4
        frame.explain(extended=True)
        checkpoint = tmp_path / "checkpoint"
        sink = Sink(spark, checkpoint, **options)
        query = sink.start(availableNow=True)
        query.awaitTermination()
        told = capsys.readouterr().out + str(query.lastProgress)
    assert sum(map(len, sink.batches)) == 4
    texts = [path.read_text(errors="replace") for path in checkpoint.rglob("*") if path.is_file()]
    assert texts
    assert not [text for text in [told, *texts] if SECRET in text]


@contextmanager
def guard(server: Server) -> Iterator[None]:
    """Give the shared server a user with a password, for as long as it is needed."""
    client = SyncClient(parse_url(server.url))
    client.call("", "ACL", "SETUSER", "reader", "on", f">{SECRET}", "~*", "+@all")
    try:
        yield
    finally:
        client.call("", "ACL", "DELUSER", "reader")
        client.close()
