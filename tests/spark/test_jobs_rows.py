"""Rows become jobs, or an error that names the row; no session and no server is needed for it."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from toril.errors import InvalidInput, InvalidOption, UnsupportedFeature
from toril.ids import content_id
from toril.job import Terms
from toril.retry import Backoff
from toril.spark.jobs_read import to_arrow
from toril.spark.jobs_rows import ROW_OPTIONS, Rows, RowsPlan
from toril.spark.jobs_source import JobsSource
from toril.spark.options import Options

if TYPE_CHECKING:
    from collections.abc import Sequence

URL = {"url": "redis://127.0.0.1:1", "queue": "q"}


def schema(**columns: t.DataType) -> t.StructType:
    """A schema by names and types."""
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


def plan(kinds: t.StructType, **given: str) -> RowsPlan:
    """What a writer would do with rows of a schema."""
    return RowsPlan.of(Options.read("toril_jobs", given, ROW_OPTIONS), kinds)


def batch(kinds: t.StructType, rows: Sequence[tuple[object, ...]]) -> pa.RecordBatch:
    """Rows as Spark hands them over."""
    arrow = to_arrow_schema(kinds, timezone="UTC")
    columns = list(zip(*rows, strict=True)) or [()] * len(arrow)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, arrow, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)


def make(kinds: t.StructType, rows: Sequence[tuple[object, ...]], **given: str) -> Rows:
    """Rows as jobs."""
    return plan(kinds, **given).rows(batch(kinds, rows))


ALL = schema(
    id=t.StringType(),
    number=t.LongType(),
    small=t.ShortType(),
    flag=t.BooleanType(),
    real=t.DoubleType(),
    price=t.DecimalType(12, 2),
    day=t.DateType(),
    at=t.TimestampType(),
    local=t.TimestampNTZType(),
    raw=t.BinaryType(),
    tags=t.ArrayType(t.StringType()),
    more=schema(a=t.IntegerType(), when=t.TimestampType()),
    by=t.MapType(t.StringType(), t.DecimalType(5, 1)),
    nothing=t.NullType(),
)
FULL: dict[str, object] = {
    "id": "a",
    "number": -(2**53) + 1,
    "small": 7,
    "flag": True,
    "real": 1.5e300,
    "price": Decimal("12345.60"),
    "day": date(2026, 1, 31),
    "at": datetime(2026, 1, 31, 12, 0, 0, 250, tzinfo=UTC),
    "local": datetime(2026, 1, 31, 12, 0),  # noqa: DTZ001
    "raw": b"\x00\xff",
    "tags": ["x", None, 'quote " and \\ and \n'],
    "more": {"a": 1, "when": datetime(1999, 12, 31, tzinfo=UTC)},
    "by": [("k", Decimal("1.5"))],
    "nothing": None,
}


def test_every_type_has_its_place_in_json() -> None:
    rows = make(ALL, [tuple(FULL.values())], idColumn="id")
    assert json.loads(rows.payloads[0]) == {
        "id": "a",
        "number": -(2**53) + 1,
        "small": 7,
        "flag": True,
        "real": 1.5e300,
        "price": "12345.60",
        "day": "2026-01-31",
        "at": "2026-01-31T12:00:00.000250Z",
        "local": "2026-01-31T12:00:00.000000",
        "raw": "AP8=",
        "tags": ["x", None, 'quote " and \\ and \n'],
        "more": {"a": 1, "when": "1999-12-31T00:00:00.000000Z"},
        "by": {"k": "1.5"},
        "nothing": None,
    }


def test_nulls_are_null_in_json() -> None:
    rows = make(ALL, [("a", *[None] * (len(FULL) - 1))], idColumn="id")
    assert json.loads(rows.payloads[0]) == {**dict.fromkeys(FULL), "id": "a"}


TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
WHOLE = st.integers(-(2**53) + 1, 2**53 - 1)
REAL = st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.lists(
        st.tuples(
            st.none() | TEXT,
            st.none() | WHOLE,
            st.none() | REAL,
            st.none() | st.booleans(),
            st.none() | st.lists(st.none() | TEXT, max_size=3),
            st.none() | st.dictionaries(TEXT, st.none() | WHOLE, max_size=3),
        ),
        max_size=8,
    )
)
def test_what_is_json_comes_back_as_it_was(values: list[tuple[object, ...]]) -> None:
    kinds = schema(
        id=t.StringType(),
        text=t.StringType(),
        whole=t.LongType(),
        real=t.DoubleType(),
        flag=t.BooleanType(),
        some=t.ArrayType(t.StringType()),
        by=t.MapType(t.StringType(), t.LongType()),
    )

    def pairs(value: object) -> object:
        return list(value.items()) if isinstance(value, dict) else value

    rows = [(f"r{number}", *map(pairs, row)) for number, row in enumerate(values)]
    made = make(kinds, rows, idColumn="id")
    expected = [
        dict(zip(kinds.names, (f"r{number}", *row), strict=True))
        for number, row in enumerate(values)
    ]
    assert [json.loads(payload) for payload in made.payloads] == expected


TWO = schema(id=t.StringType(), data=t.StringType())


def test_data_is_a_column_of_json_text_as_it_stands() -> None:
    rows = make(TWO, [("a", '{"x": 1}'), ("b", None)], idColumn="id", dataColumn="data")
    assert rows.payloads == [b'{"x": 1}', b"null"]


def test_data_is_a_column_of_any_type_encoded() -> None:
    kinds = schema(id=t.StringType(), data=t.ArrayType(t.IntegerType()))
    rows = make(kinds, [("a", [1, 2]), ("b", None)], idColumn="id", dataColumn="data")
    assert rows.payloads == [b"[1,2]", b"null"]


def test_data_is_bytes_as_they_are() -> None:
    kinds = schema(id=t.StringType(), data=t.BinaryType())
    rows = make(kinds, [("a", b"\x81\xa1a\x01")], idColumn="id", payloadColumn="data")
    assert rows.payloads == [b"\x81\xa1a\x01"]


def test_columns_that_are_options_are_no_data_unless_named() -> None:
    kinds = schema(id=t.StringType(), kind=t.StringType(), wait=t.IntegerType(), x=t.IntegerType())
    given = {"idColumn": "id", "nameColumn": "kind", "delayColumn": "wait"}
    rows = make(kinds, [("a", "mail", 5, 1), ("b", None, None, 2)], **given)
    assert rows.payloads == [b'{"id":"a","x":1}', b'{"id":"b","x":2}']
    assert rows.names == ["mail", "job"]
    named = make(kinds, [("a", "mail", 5, 1)], **given, dataColumns="wait,x")
    assert named.payloads == [b'{"wait":5,"x":1}']


def test_ids_are_numbers_with_a_prefix() -> None:
    kinds = schema(n=t.LongType())
    assert make(kinds, [(7,)], idColumn="n", idPrefix="order-").ids == ["order-7"]


def test_ids_are_a_hash_that_anybody_can_compute() -> None:
    kinds = schema(b=t.IntegerType(), a=t.DecimalType(4, 1), c=t.StringType())
    rows = make(kinds, [(1, Decimal("2.5"), "x")], idFrom="b,a")
    assert rows.ids == [content_id({"a": "2.5", "b": 1})]
    whole = make(kinds, [(1, Decimal("2.5"), "x")], idFrom="content", idPrefix="p")
    assert whole.ids == ["p" + content_id({"a": "2.5", "b": 1, "c": "x"})]


def test_options_of_jobs_come_from_columns_or_are_the_same_for_all() -> None:
    kinds = schema(
        id=t.StringType(),
        wait=t.LongType(),
        rank=t.IntegerType(),
        key=t.StringType(),
        first=t.BooleanType(),
    )
    given = {
        "idColumn": "id",
        "delayColumn": "wait",
        "priorityColumn": "rank",
        "dedupIdColumn": "key",
        "lifoColumn": "first",
        "attempts": "5",
        "backoff": "200",
        "backoffKind": "exponential",
        "timeout": "1500",
        "keepCompleted": "10",
        "dedupTtl": "60000",
        "correlationId": "run-7",
    }
    rows = make(kinds, [("a", 1000, 3, "k", True), ("b", None, None, None, None)], **given)
    assert not isinstance(rows.terms, Terms)
    first, second = rows.terms
    assert (first.delay_ms, first.priority, first.lifo, first.attempts) == (1000, 3, True, 5)
    assert first.dedup is not None
    assert (first.dedup.key, first.dedup.ttl_ms) == ("k", 60_000)
    assert first.backoff == Backoff("exponential", 0.2)
    assert (first.timeout_ms, first.keep_completed.count) == (1500, 10)
    assert first.correlation_id == "run-7"
    assert (second.delay_ms, second.priority, second.lifo, second.dedup) == (0, 0, False, None)


ONE = schema(id=t.StringType(), x=t.DoubleType(), n=t.LongType())


@pytest.mark.parametrize(
    ("kinds", "rows", "given", "message"),
    [
        (ONE, [("a", 1.0, 1), (None, 1.0, 1)], {}, "column 'id' is null in 1 of 2 rows"),
        (ONE, [("wait", 1.0, 1)], {}, "job id 'wait'"),
        (ONE, [("17", 1.0, 1)], {}, "job id '17'"),
        (ONE, [("a", 1.0, 1), ("b", math.nan, 1)], {}, "row with id 'b': column 'x': nan is not"),
        (ONE, [("a", 1.0, 1), ("b", 1.0, 2**60)], {}, "row with id 'b': column 'n': an integer"),
        (ONE, [("a", 1.0, 1), ("a", 2.0, 1)], {}, "id 'a' stands in two rows with different"),
        (ONE, [("a", 1.0, -5)], {"delayColumn": "n"}, "row with id 'a': toril[E12] delay"),
        (ONE, [("a", 1.0, 2**40)], {"priorityColumn": "n"}, "row with id 'a': toril[E12] priority"),
        (TWO, [("a", "{")], {"dataColumn": "data"}, "row with id 'a': column 'data' must hold"),
        (TWO, [("a", "\n")], {"nameColumn": "data"}, "row with id 'a': job name"),
        (TWO, [("a", "x:y")], {"dedupIdColumn": "data"}, "row with id 'a': dedup id"),
        (TWO, [("a", "x" * 10_485_761)], {}, "row with id 'a': its data take 10,485,7"),
    ],
)
def test_a_row_that_cannot_be_a_job_is_named(
    kinds: t.StructType, rows: list[tuple[Any, ...]], given: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        make(kinds, rows, idColumn="id", **given)
    assert message in str(caught.value)


def test_rows_that_are_the_same_job_twice_are_fine() -> None:
    assert make(ONE, [("a", 1.0, 1), ("a", 1.0, 1)], idColumn="id").ids == ["a", "a"]


@pytest.mark.parametrize(
    ("kinds", "given", "message"),
    [
        (TWO, {}, "give 'idColumn'"),
        (TWO, {"idColumn": "id", "idFrom": "content"}, "give 'idColumn'"),
        (TWO, {"idColumn": "idd"}, "'idColumn' = 'idd' is no column of the data; it has: id, data"),
        (ONE, {"idColumn": "n"}, "give 'idPrefix' too"),
        (ONE, {"idColumn": "x"}, "column 'x' is double, it must be string or"),
        (TWO, {"idFrom": "position"}, "is not in the row: places and random ids change"),
        (TWO, {"idFrom": "monotonically_increasing_id"}, "name columns, or 'content'"),
        (TWO, {"idFrom": "ids"}, "names 'ids'; give 'content' or columns: id, data"),
        (TWO, {"idColumn": "id", "nameColumn": "n"}, "'nameColumn' = 'n' is no column"),
        (TWO, {"idColumn": "id", "dataColumns": "x"}, "names 'x'; the data has: id, data"),
        (TWO, {"idColumn": "id", "dataColumn": "data", "dataColumns": "id"}, "give one of"),
        (TWO, {"idColumn": "id", "payloadColumn": "data"}, "is string, it must be binary"),
        (TWO, {"idColumn": "id", "delayColumn": "data"}, "column 'data' is string, it must be"),
        (TWO, {"idColumn": "id", "delay": "-1"}, "option 'delay' = '-1' must be a whole number"),
        (TWO, {"idColumn": "id", "priority": "9999999"}, "priority"),
        (TWO, {"idColumn": "id", "backoffKind": "fixed"}, "says nothing without 'backoff'"),
        (TWO, {"idColumn": "id", "dedupTtl": "5"}, "says nothing without 'dedupId'"),
        (TWO, {"idColumn": "id", "delaiColumn": "id"}, "Did you mean 'delayColumn'?"),
        (TWO, {"idColumn": "id", "onDuplicate": "replace"}, "must be one of ignore, fail"),
        (
            schema(id=t.StringType(), d=t.DayTimeIntervalType()),
            {"idColumn": "id"},
            "column 'd' holds interval day to second, which is not JSON",
        ),
        (
            schema(id=t.StringType(), m=t.MapType(t.DoubleType(), t.StringType())),
            {"idColumn": "id"},
            "column 'm' holds map<double,string>, which is not JSON",
        ),
    ],
)
def test_options_that_cannot_be_kept_are_refused_before_any_row(
    kinds: t.StructType, given: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        JobsSource({**URL, **given}).writer(kinds, False)
    assert message in str(caught.value)


def test_a_queue_is_never_overwritten() -> None:
    with pytest.raises(UnsupportedFeature, match=r"mode\('append'\)"):
        JobsSource({**URL, "idColumn": "id"}).writer(TWO, True)
    with pytest.raises(UnsupportedFeature, match=r"outputMode\('append'\)"):
        JobsSource({**URL, "idColumn": "id"}).streamWriter(TWO, True)


def test_a_stream_cannot_promise_to_fail_on_duplicates() -> None:
    with pytest.raises(InvalidOption, match="a restart replays its last batch"):
        JobsSource({**URL, "idColumn": "id", "onDuplicate": "fail"}).streamWriter(TWO, False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"queue": "q", "queues": "a,b"}, "give option 'queue' with one name, or 'queues'"),
        ({}, "give option 'queue' with one name, or 'queues'"),
        ({"queue": "a:b"}, "queue name 'a:b'"),
        ({"queue": "q", "states": "done"}, "names 'done'; known: waiting"),
        ({"queue": "q", "since": "yesterday"}, "ISO 8601 with a zone"),
        ({"queue": "q", "since": "5", "until": "5"}, "is not after 'since'"),
        ({"queue": "q", "fetchSize": "0"}, "whole number from 1"),
        ({"queue": "q", "fetchsice": "1"}, "Did you mean 'fetchSize'?"),
        ({"queue": "q", "idColumn": "id"}, "unknown option 'idColumn'"),
    ],
)
def test_a_read_that_cannot_be_done_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        JobsSource({"url": "redis://127.0.0.1:1", **given}).reader(schema(id=t.StringType()))
    assert message in str(caught.value)


def test_numbers_that_a_column_cannot_hold_are_bent_to_fit() -> None:
    columns: dict[str, list[object]] = {
        "id": ["a", "b"],
        "max_attempts": [2**53, 3],
        "created_ms": [10**18, 1],
        "finished_ms": [None, 5],
    }
    kinds = {"max_attempts": "int", "created_at": "timestamp", "finished_at": "timestamp"}
    found = to_arrow(columns, "q", kinds)
    assert found.column("max_attempts").to_pylist() == [2**31 - 1, 3]
    created = found.column("created_at").cast(pa.int64()).to_pylist()
    assert created == [253_402_300_799_999_000, 1000]
    assert found.column("finished_at").cast(pa.int64()).to_pylist() == [None, 5000]


def test_a_storage_of_one_machine_is_refused_on_a_cluster() -> None:
    class Far(JobsSource):
        master = "spark://host:7077"

    with pytest.raises(InvalidOption, match="use a server they can reach"):
        Far({"url": "file:store", "queue": "q"}).reader(schema(id=t.StringType()))
