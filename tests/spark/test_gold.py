"""Gold: the figures are those that one gets by counting one by one."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.spark import reference
from tests.spark.histories import REASONS, frame_of, make_events, rows_of
from tests.spark.reference_gold import Book, Rows
from toril.errors import InvalidOption
from toril.spark.analytics.gold import COLUMNS, Gold, gold, write_gold
from toril.spark.analytics.gold_queries import SLOWEST
from toril.spark.analytics.reasons import UNTOLD, reason_group, reason_group_sql
from toril.spark.analytics.silver import SILVER_ATTEMPTS, SILVER_JOBS
from toril.spark.schema import ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SLA_MS = 90_000

ODD = (
    *REASONS,
    None,
    "",
    "   ",
    "it's late, can't wait",
    "user 'bob' is not \"known\" to `auth`",
    "id 6f9619ff-8b86-d011-b42d-00cf4fc964ff at 0xDEADBEEF, commit 3f2a9c1d",
    "job 01h8xgjwbwbaq4z5v7y2k3m9n0 of 12,345.6 s at 12:30:45",
    "C:\\data\\in.csv and /srv/in-1/x.txt, but not a/b or and/or",
    "ümläut 7 → ٣\tand  more",
    "x" * 500,
    "deadbeef is a word, 12345678 a number, cafe12345 both",
)


def silver_frame(spark: SparkSession, rows: Rows, columns: dict[str, str]) -> DataFrame:
    """Make a table of silver out of rows with times in ms."""
    kinds = {name: "bigint" if kind == "timestamp" else kind for name, kind in columns.items()}
    return spark.createDataFrame(rows, ddl(kinds)).selectExpr(
        *(
            f"timestamp_millis(`{name}`) AS `{name}`" if kind == "timestamp" else f"`{name}`"
            for name, kind in columns.items()
        )
    )


@pytest.fixture(scope="module")
def counted(spark: SparkSession) -> tuple[Gold, Book]:
    """Gold of many histories, by Spark and by hand."""
    events = make_events(Random(11), jobs=150)
    jobs, attempts = reference.jobs(events), reference.attempts(events)
    found = gold(
        frame_of(spark, events),
        silver_frame(spark, jobs, SILVER_JOBS),
        silver_frame(spark, attempts, SILVER_ATTEMPTS),
        sla_ms=SLA_MS,
    )
    return found, Book(events, jobs, attempts)


def same(found: DataFrame, expected: Rows) -> None:
    """Compare to the row; fractions to nine digits, they are added up in any order."""
    rows, wanted = ([rounded(row) for row in some] for some in (rows_of(found), expected))
    extra = [row for row in rows if row not in wanted]
    missing = [row for row in wanted if row not in rows]
    assert rows == wanted, (
        f"{len(extra)} too many: {extra[:2]}, {len(missing)} missing {missing[:2]}"
    )


def rounded(row: tuple[object, ...]) -> tuple[object, ...]:
    """A row with its fractions cut to nine digits."""
    return tuple(round(cell, 9) if isinstance(cell, float) else cell for cell in row)


def test_the_tables_have_the_columns_that_are_documented(counted: tuple[Gold, Book]) -> None:
    for name, table in counted[0].tables().items():
        fields = [(field.name, field.dataType.simpleString()) for field in table.schema.fields]
        assert fields == list(COLUMNS[name].items()), name
        assert counted[0].queries[name].startswith(("WITH", "SELECT"))


def test_each_minute_is_what_counting_gives(counted: tuple[Gold, Book]) -> None:
    same(counted[0].per_minute, counted[1].per_minute())


def test_failures_are_grouped_by_what_is_the_same_in_them(counted: tuple[Gold, Book]) -> None:
    same(counted[0].failures, counted[1].failures())


def test_the_slowest_jobs_are_named(counted: tuple[Gold, Book]) -> None:
    same(counted[0].slowest, counted[1].slowest(SLOWEST))


def test_a_promise_is_judged_when_it_is_kept_or_broken(counted: tuple[Gold, Book]) -> None:
    same(counted[0].sla, counted[1].sla(SLA_MS))


def test_totals_are_what_counting_gives(counted: tuple[Gold, Book]) -> None:
    same(counted[0].totals, counted[1].totals())


def test_hours_and_gaps_are_what_counting_gives(counted: tuple[Gold, Book]) -> None:
    same(counted[0].by_hour, counted[1].by_hour())
    same(counted[0].gaps, counted[1].gaps())


def test_spark_and_python_name_groups_alike(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(one,) for one in ODD], "reason string")
    found = [row[0] for row in frame.selectExpr(reason_group_sql("reason")).collect()]
    assert found == [reason_group(one) for one in ODD]


@pytest.mark.parametrize(
    ("reason", "group"),
    [
        (None, UNTOLD),
        ("ValueError: order 17 has no line 3", "ValueError: order <n> has no line <n>"),
        ("OSError: [Errno 2] No file: '/var/x/7.csv'", "OSError: [Errno <n>] No file: <text>"),
        ("cannot read /var/data/7.csv", "cannot read <path>"),
        ("GET https://example.org/a?b=1 took 30.5 s", "GET <url> took <n> s"),
        ("it's late, can't wait", "it's late, can't wait"),
        ("id 6f9619ff-8b86-d011-b42d-00cf4fc964ff", "id <uuid>"),
        ("at 0xDEADBEEF of 3f2a9c1d", "at <hex> of <hex>"),
        ("no luck\nTraceback: line 5", "no luck"),
        ("x" * 500, "x" * 200),
    ],
)
def test_what_differs_from_case_to_case_is_left_out(reason: str | None, group: str) -> None:
    assert reason_group(reason) == group


@pytest.mark.parametrize("sla_ms", [0, -1, True, 1.5])
def test_a_promise_must_be_a_time(spark: SparkSession, sla_ms: int) -> None:
    frame = frame_of(spark, [])
    with pytest.raises(InvalidOption, match="sla_ms="):
        gold(frame, frame, frame, sla_ms=sla_ms)


def test_gold_is_written_as_files(counted: tuple[Gold, Book], tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="format 'xml' is unknown"):
        write_gold(counted[0], str(tmp_path), "xml")  # type: ignore[arg-type]
    some = Gold(**dict.fromkeys(COLUMNS, counted[0].gaps), queries=counted[0].queries)
    write_gold(some, str(tmp_path), "csv")
    assert {path.name for path in tmp_path.iterdir()} == set(COLUMNS)
    (file,) = (tmp_path / "gaps").glob("*.csv")
    lines = file.read_text().splitlines()
    assert lines[0] == "queue,number,count,time"
    assert len(lines) == 3
