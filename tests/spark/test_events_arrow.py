"""Columns of events become Arrow batches; no session and no server is needed for it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toril.spark.events_arrow import from_columns
from toril.spark.schema import EVENTS, arrow_schema

TEXTS = st.sampled_from([None, "", "a", "ä"])
NUMBERS = st.sampled_from([None, 0, 1, 2**31 - 1])
TIMES = st.integers(0, 253_402_300_799_999)
ROWS = st.lists(st.tuples(TIMES, TEXTS, NUMBERS), min_size=1, max_size=9)


@given(ROWS)
def test_every_value_is_where_it_was(rows: list[tuple[int, str | None, int | None]]) -> None:
    times, texts, numbers = (list(values) for values in zip(*rows, strict=True))
    columns: dict[str, list[Any]] = {
        "number": list(range(len(rows))),
        "time_ms": times,
        "job_id": texts,
        "attempt": numbers,
        "delay_ms": numbers,
    }
    found = from_columns("q", columns, tuple(EVENTS))
    found.validate(full=True)
    assert found.schema == arrow_schema(EVENTS)
    assert found.column("queue").to_pylist() == ["q"] * len(rows)
    assert found.column("number").to_pylist() == columns["number"]
    assert found.column("time").cast(pa.int64()).to_pylist() == [1000 * one for one in times]
    assert found.column("job_id").to_pylist() == texts
    assert found.column("attempt").to_pylist() == numbers
    assert found.column("delay_ms").to_pylist() == numbers
    assert found.column("reason").null_count == len(rows)


def test_a_time_is_told_to_the_millisecond() -> None:
    found = from_columns("q", {"number": [1], "time_ms": [1_763_000_000_123]}, ("time",))
    expected = datetime(2025, 11, 13, 2, 13, 20, 123_000, UTC)
    assert found.column("time").to_pylist() == [expected]


def test_a_time_that_no_timestamp_holds_is_an_error() -> None:
    with pytest.raises(pa.ArrowInvalid):
        from_columns("q", {"number": [1], "time_ms": [2**62]}, ("time",))
