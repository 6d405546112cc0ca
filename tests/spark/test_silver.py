"""Silver: what Spark makes of events is what a reader of the log would say."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.spark import reference
from tests.spark.histories import Told, frame_of, make_events, rows_of
from toril.spark.analytics.lake import Lake
from toril.spark.analytics.manifest import Entry, folder_of, record
from toril.spark.analytics.silver import (
    SILVER_ATTEMPTS,
    SILVER_JOBS,
    read_silver,
    read_steps,
    silver_attempts,
    silver_jobs,
    update_silver,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def differences(found: list[tuple[object, ...]], expected: list[tuple[object, ...]]) -> str:
    """Tell the first rows that differ, for a failing test."""
    extra = [row for row in found if row not in expected]
    missing = [row for row in expected if row not in found]
    return f"{len(extra)} rows too many {extra[:2]}, {len(missing)} missing {missing[:2]}"


def columns(frame: DataFrame) -> dict[str, str]:
    """The columns of a frame and their types."""
    return {field.name: field.dataType.simpleString() for field in frame.schema.fields}


@given(chance=st.randoms(use_true_random=True))
@settings(
    max_examples=1,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    database=None,
)
def test_jobs_and_attempts_are_what_a_reader_of_the_log_would_say(
    spark: SparkSession, chance: Random
) -> None:
    events = make_events(chance, jobs=300)
    frame = frame_of(spark, events)
    found, expected = rows_of(silver_jobs(frame)), reference.jobs(events)
    assert found == expected, differences(found, expected)
    tried, told = rows_of(silver_attempts(frame)), reference.attempts(events)
    assert tried == told, differences(tried, told)


def test_the_tables_have_the_columns_that_are_documented(spark: SparkSession) -> None:
    nothing = frame_of(spark, [])
    assert columns(silver_jobs(nothing)) == SILVER_JOBS
    assert columns(silver_attempts(nothing)) == SILVER_ATTEMPTS


def write_bronze(spark: SparkSession, lake: Lake, events: list[Told], batch: int) -> None:
    """Leave a batch in the lake as `bronze` does."""
    folder = folder_of(batch)
    frame_of(spark, events).coalesce(1).write.mode("overwrite").parquet(lake.at("bronze", folder))
    files = lake.sizes("bronze", folder)
    entry = Entry(
        batch=batch,
        files={name: size for name, size in files.items() if name.endswith(".parquet")},
        rows=len(events),
        gaps=0,
        lost=0,
        end={"q": {"id": str(batch), "n": len(events)}},
    )
    record(lake, entry)


def test_silver_in_steps_is_silver_at_once(spark: SparkSession, tmp_path: Path) -> None:
    chance = Random(5)
    events = sorted(make_events(chance, jobs=120), key=lambda one: str(one["number"]))
    lake = Lake(spark, str(tmp_path))
    cuts = sorted(chance.sample(range(100, 900), 2))
    parts = [
        [one for one in events if low <= int(str(one["number"])) < high]
        for low, high in pairwise((0, *cuts, 1 << 40))
    ]
    assert all(parts)
    write_bronze(spark, lake, parts[0], 0)
    update_silver(spark, str(tmp_path))
    write_bronze(spark, lake, parts[1], 1)
    write_bronze(spark, lake, parts[2], 2)
    silver = update_silver(spark, str(tmp_path))
    assert [(step.since, step.last) for step in read_steps(lake)] == [(-1, 0), (0, 2)]
    assert read_steps(lake)[1].reopened > 0
    jobs, expected = rows_of(silver.jobs), reference.jobs(events)
    assert jobs == expected, differences(jobs, expected)
    attempts = rows_of(silver.attempts)
    assert attempts == reference.attempts(events)

    # The step died before it was recorded: it is made again, over what it left.
    lake.delete("silver", "_steps", f"{2:012d}.json")
    assert rows_of(update_silver(spark, str(tmp_path)).jobs) == jobs
    assert rows_of(read_silver(spark, str(tmp_path)).attempts) == attempts

    # Bronze was begun anew: silver of the old one does not count.
    write_bronze(spark, lake, parts[1], 0)
    lake.delete("bronze", "_manifest", f"{1:012d}.json")
    lake.delete("bronze", "_manifest", f"{2:012d}.json")
    assert rows_of(update_silver(spark, str(tmp_path)).jobs) == reference.jobs(parts[1])
