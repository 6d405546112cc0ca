"""Silver: what Spark makes of events is what a reader of the log would say."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.spark import reference
from tests.spark.histories import frame_of, make_events, rows_of
from toril.spark.analytics.silver import (
    silver_attempts,
    silver_jobs,
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
