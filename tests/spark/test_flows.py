"""Replay and export: which jobs are chosen, what becomes of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import Server
from tests.spark.flow_jobs import counts, finish, retry, states
from toril.errors import InvalidOption
from toril.job import State
from toril.spark.flows.export import export
from toril.spark.flows.replay import replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(params=["redis", "bullmq"])
def url(request: pytest.FixtureRequest, server: Server) -> str:
    """A storage of each kind that servers hold."""
    return server.url if request.param == "redis" else f"bullmq+{server.url}"


def test_failed_jobs_chosen_by_sql_run_again(spark: SparkSession, url: str, queue: str) -> None:
    reasons = {f"slow-{n}": "timeout after 30 s" for n in range(7)} | {"bad": "ValueError: no"}
    finish(url, queue, {"fine": b"1"}, reasons)
    where = "failure_reason like '%timeout%' and created_at > timestamp '2020-01-01'"
    looked = replay(spark, queue, where, dry_run=True, url=url)
    assert (looked.matched, looked.retried, len(looked.sample)) == (7, 0, 5)
    assert looked.sample[0].reason == "timeout after 30 s"
    assert counts(url, queue).failed == 8
    run = replay(spark, queue, where, limit=6, url=url)
    assert (run.matched, run.retried, run.changed) == (6, 6, 0)
    left = counts(url, queue)
    assert (left.waiting, left.failed, left.completed) == (6, 2, 1)


def test_jobs_that_changed_meanwhile_are_told_and_left_alone(
    spark: SparkSession, url: str, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(url, queue, {}, {"a": "no", "b": "no", "c": "no"})

    replaying = sys.modules["toril.spark.flows.replay"]
    again = replaying.batches

    def late(rows: Iterable[Any], size: int) -> Iterator[list[Any]]:
        retry(url, queue, ["b", "c"])
        finish(url, queue, {"b": b"1"}, {"c": "no"})
        yield from again(rows, size)

    monkeypatch.setattr(replaying, "batches", late)
    run = replay(spark, queue, "true", url=url)
    assert (run.matched, run.retried, run.changed) == (3, 1, 2)
    assert run.changed_to == {"completed": 1, "failed": 1}
    assert states(url, queue, ["a", "b", "c"]) == [State.WAITING, State.COMPLETED, State.FAILED]


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (" ", "where is empty"),
        ("reasn like 'x'", "reasn"),
        ("failure_reason lik 'x'", "lik"),
        ("id", "BOOLEAN"),
    ],
)
def test_a_condition_that_cannot_be_read_is_refused(
    spark: SparkSession, where: str, said: str
) -> None:
    with pytest.raises(InvalidOption, match="replay: where") as caught:
        replay(spark, "q", where, url="redis://127.0.0.1:1")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_results_become_a_table_by_a_schema(
    spark: SparkSession, url: str, queue: str, tmp_path: Path
) -> None:
    results = {
        "a": b'{"total":1.5,"items":["x","y"]}',
        "b": b'{"total":2,"items":[]}',
        "c": b'"oops"',
        "d": b"null",
    }
    finish(url, queue, results, {"e": "no"})
    path = str(tmp_path / "table")
    run = export(spark, queue, path, schema="total double, items array<string>", url=url)
    assert (run.rows, run.unparsed) == (4, 1)
    rows = {row["job_id"]: row for row in spark.read.parquet(path).collect()}
    assert {one: rows[one]["total"] for one in "abcd"} == {"a": 1.5, "b": 2.0, "c": None, "d": None}
    assert rows["a"]["items"] == ["x", "y"]
    assert {one: rows[one]["result_unparsed"] for one in "acd"} == {
        "a": None,
        "c": '"oops"',
        "d": None,
    }


def test_a_result_of_one_type_is_a_column(
    spark: SparkSession, server: Server, queue: str, tmp_path: Path
) -> None:
    finish(server.url, queue, {"a": b"41", "b": b"1"})
    path = str(tmp_path / "numbers")
    where = "id = 'a'"
    export(spark, queue, path, schema="bigint", where=where, format="csv", url=server.url)
    (row,) = spark.read.csv(path, header=True).collect()
    assert (row["job_id"], row["result"]) == ("a", "41")
    with pytest.raises(InvalidOption, match="is there already"):
        export(spark, queue, path, url=server.url)
    assert export(spark, queue, path, overwrite=True, url=server.url).rows == 2
    assert sorted(row["result"] for row in spark.read.parquet(path).collect()) == ["1", "41"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"format": "xlsx"}, "format 'xlsx' is unknown"),
        ({"schema": "total doubl"}, "schema 'total doubl'"),
        ({"schema": "job_id string"}, "a column of the job itself"),
        ({"schema": "items array<string>", "format": "csv"}, "CSV cannot hold field 'items'"),
        ({"where": "nothing = 1"}, "export: where"),
    ],
)
def test_an_export_that_cannot_be_is_refused(
    spark: SparkSession, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidOption, match="export") as caught:
        export(spark, "q", "p", url="redis://127.0.0.1:1", **options)
    assert said in str(caught.value)
