"""Events in the lake: each exactly once, whatever breaks meanwhile."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from tests.servers import SAFE, Server, valkey_binary
from tests.spark.making import add_jobs, stored, trim
from toril.errors import InvalidInput, StorageError, TorilWarning
from toril.ids import ulid
from toril.spark.analytics import bronze, read_bronze
from toril.spark.analytics.bronze import torn_files
from toril.spark.schema import GAP

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(params=["redis", "bullmq"])
def url(request: pytest.FixtureRequest, server: Server) -> str:
    layout = "bullmq+" if request.param == "bullmq" else ""
    return f"{layout}{server.url}?prefix=z{ulid()}"


@pytest.fixture
def one_url(server: Server) -> str:
    return f"{server.url}?prefix=z{ulid()}"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def held(spark: SparkSession, lake: Path) -> Counter[tuple[object, ...]]:
    """The multiset of events in the lake."""
    rows = read_bronze(spark, str(lake)).select("queue", "number", "kind", "job_id").collect()
    return Counter(tuple(row) for row in rows)


def in_store(url: str, *queues: str) -> Counter[tuple[object, ...]]:
    """The multiset of events in the store."""
    return Counter(
        (queue, number, kind, job)
        for queue in queues
        for number, kind, job, _ in stored(url, queue)
    )


def test_runs_add_what_came_since_the_last_one(spark: SparkSession, url: str, lake: Path) -> None:
    add_jobs(url, "q", 60)
    add_jobs(url, "r", 20)
    first = bronze(spark, str(lake), queues=["q", "r"], url=url, max_rows=100)
    assert (first.batches, first.rows, first.gaps, first.lost) == (2, 160, 0, 0)
    assert {queue: place["n"] for queue, place in first.offsets.items()} == {"q": 120, "r": 40}
    entry = json.loads((lake / "bronze" / "_manifest" / f"{1:012d}.json").read_text())
    assert {queue: place["n"] for queue, place in entry["end"].items()} == {"q": 120, "r": 40}
    add_jobs(url, "q", 5, first=60)
    assert bronze(spark, str(lake), queues=["q", "r"], url=url).rows == 10
    assert bronze(spark, str(lake), queues=["q", "r"], url=url).batches == 0
    assert held(spark, lake) == in_store(url, "q", "r")


def test_a_lake_that_nobody_wrote_is_an_empty_table(spark: SparkSession, lake: Path) -> None:
    events = read_bronze(spark, str(lake))
    assert events.columns[-1] == "batch"
    assert events.count() == 0


@pytest.mark.parametrize("queues", [[], "q", ["a:b"]])
def test_queues_are_a_list_of_names(spark: SparkSession, lake: Path, queues: list[str]) -> None:
    with pytest.raises(InvalidInput):
        bronze(spark, str(lake), queues=queues, url="redis://localhost")
    assert not lake.exists()


def test_a_batch_that_spark_repeats_is_neither_doubled_nor_lost(
    spark: SparkSession, one_url: str, lake: Path
) -> None:
    add_jobs(one_url, "q", 30)
    bronze(spark, str(lake), queues=["q"], url=one_url, max_rows=40)
    _undo(lake / "checkpoint" / "commits" / "1")
    again = bronze(spark, str(lake), queues=["q"], url=one_url)
    assert again.batches == 0  # it was recorded
    assert held(spark, lake) == in_store(one_url, "q")
    _undo(lake / "checkpoint" / "commits" / "1")
    (lake / "bronze" / "_manifest" / f"{1:012d}.json").unlink()
    (lake / "bronze" / "batch=1" / "part-left-over.parquet").write_bytes(b"half a file")
    again = bronze(spark, str(lake), queues=["q"], url=one_url)
    assert (again.batches, again.rows) == (1, 20)  # it was not
    assert held(spark, lake) == in_store(one_url, "q")


def _undo(commit: Path) -> None:
    """Make Spark doubt a batch, as if it had died before it noted its end."""
    commit.unlink()
    commit.with_name(f".{commit.name}.crc").unlink(missing_ok=True)


def test_a_lost_checkpoint_is_refused_and_rebuilt_without_doubles(
    spark: SparkSession, server: Server, lake: Path
) -> None:
    url = f"bullmq+{server.url}?prefix=z{ulid()}"
    add_jobs(url, "q", 20)
    bronze(spark, str(lake), queues=["q"], url=url)
    shutil.rmtree(lake / "checkpoint")
    add_jobs(url, "q", 10, first=20)
    with pytest.raises(StorageError, match=r"the checkpoint is gone.*rebuild"):
        bronze(spark, str(lake), queues=["q"], url=url)
    with pytest.raises(InvalidInput, match=r"must name all queues of the lake.*missing: q"):
        bronze(spark, str(lake), queues=["r"], url=url, rebuild=True)
    assert bronze(spark, str(lake), queues=["q"], url=url, rebuild=True).rows == 20
    assert held(spark, lake) == in_store(url, "q")
    assert bronze(spark, str(lake), queues=["r"], url=url).batches == 0
    assert bronze(spark, str(lake), queues=["q"], url=url).batches == 0


def test_lost_output_is_refused_and_rebuilt_from_what_the_store_has(
    spark: SparkSession, one_url: str, lake: Path
) -> None:
    add_jobs(one_url, "q", 20)
    bronze(spark, str(lake), queues=["q"], url=one_url)
    shutil.rmtree(lake / "bronze")
    with pytest.raises(StorageError, match="output that the checkpoint knows of is gone"):
        bronze(spark, str(lake), queues=["q"], url=one_url)
    assert bronze(spark, str(lake), queues=["q"], url=one_url, rebuild=True).rows == 40
    assert held(spark, lake) == in_store(one_url, "q")


def test_a_gap_is_one_row_with_the_exact_count(
    spark: SparkSession, server: Server, lake: Path
) -> None:
    url = f"bullmq+{server.url}?prefix=z{ulid()}"
    add_jobs(url, "q", 20)
    bronze(spark, str(lake), queues=["q"], url=url)
    add_jobs(url, "q", 40, first=20)
    trim(url, "q", 33)
    with pytest.raises(StreamingQueryException, match="has lost 47 events after number 40"):
        bronze(spark, str(lake), queues=["q"], url=url)
    run = bronze(spark, str(lake), queues=["q"], url=url, fail_on_data_loss=False)
    assert (run.rows, run.gaps, run.lost) == (33, 1, 47)
    events = read_bronze(spark, str(lake))
    (gap,) = events.where(events.kind == GAP).collect()
    assert (gap.queue, gap.number, gap["count"], gap.job_id) == ("q", 87, 47, None)
    assert events.count() == 40 + 1 + 33


def test_torn_files_are_left_out_and_named(spark: SparkSession, one_url: str, lake: Path) -> None:
    add_jobs(one_url, "q", 40)
    bronze(spark, str(lake), queues=["q"], url=one_url, max_rows=20)
    files = sorted((lake / "bronze").glob("batch=*/part-*.parquet"))
    assert len(files) == 4
    content = files[0].read_bytes()
    files[0].write_bytes(content[:-9])
    files[1].write_bytes(files[1].read_bytes()[:-8] + bytes(8))
    files[2].unlink()
    for file in files:
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    (lake / "bronze" / "batch=3" / "part-stranger.parquet").write_bytes(b"PAR1")
    with pytest.warns(TorilWarning, match="3 files left out"):
        events = read_bronze(spark, str(lake))
    assert events.count() == 20
    facts = [file.fact for file in torn_files(spark, str(lake))]
    size = len(content)
    assert facts == [
        f"has {size - 9:,} bytes, was written with {size:,}",
        "has no footer",
        "missing",
    ]


@pytest.fixture
def own_server() -> Iterator[Server]:
    with Server(valkey_binary(), *SAFE) as running:
        yield running


def test_a_server_that_dies_in_a_batch_leaves_nothing_half(
    spark: SparkSession, own_server: Server, lake: Path
) -> None:
    add_jobs(own_server.url, "q", 50_000)
    over = threading.Event()
    killer = threading.Thread(target=_kill_when_writing, args=(own_server, lake, over))
    killer.start()
    try:
        with pytest.raises(StreamingQueryException):
            bronze(spark, str(lake), queues=["q"], url=own_server.url)
    finally:
        over.set()
        killer.join()
    assert read_bronze(spark, str(lake)).count() in (0, 100_000)
    own_server.start()
    bronze(spark, str(lake), queues=["q"], url=own_server.url)
    events = read_bronze(spark, str(lake))
    assert events.count() == events.select("number").distinct().count() == 100_000


def _kill_when_writing(server: Server, lake: Path, over: threading.Event) -> None:
    """Kill the server as soon as a task has begun a file."""
    while not list(lake.glob("bronze/batch=0/_temporary/**/part-*")):
        if over.wait(0.005):
            return
    server.kill()
