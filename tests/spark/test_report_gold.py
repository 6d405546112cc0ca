"""The report of gold tables that Spark holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.report_data import START_MS, busy_queue, together
from toril.errors import InvalidOption
from toril.spark.analytics.gold import COLUMNS, Gold
from toril.spark.report import collect, render, write_report
from toril.spark.report.model import Gap
from toril.spark.schema import ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA = together(
    busy_queue("emails", 3, 1),
    busy_queue("thumbnails", 3, 2),
    gaps=(
        Gap(queue="emails", number=7, count=3, time_ms=START_MS + 1),
        Gap(queue="emails", number=9),
    ),
)


@pytest.fixture(scope="module")
def gold(spark: SparkSession) -> Gold:
    """The made data as DataFrames, in the columns that gold has."""
    tables = {
        name: spark.createDataFrame(
            [_row(asdict(row), columns) for row in getattr(DATA, name)], ddl(dict(columns))
        )
        for name, columns in COLUMNS.items()
    }
    return Gold(**tables, queries=dict(DATA.queries))


def test_a_report_takes_over_every_row_of_gold(gold: Gold) -> None:
    assert collect(gold) == DATA


def test_a_report_is_written_whole_with_nothing_beside_it(gold: Gold, tmp_path: Path) -> None:
    made_at = datetime(2026, 11, 16, 4, tzinfo=UTC)
    path = write_report(gold, tmp_path / "report.html", made_at=made_at)
    assert path.read_text(encoding="utf-8") == render(DATA, made_at=made_at)
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def test_a_path_that_cannot_be_written_is_refused(gold: Gold, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="is in a directory that does not exist; name a file"):
        write_report(gold, tmp_path / "no" / "report.html")
    with pytest.raises(InvalidOption, match="is a directory; name a file"):
        write_report(gold, tmp_path)
    with pytest.raises(InvalidOption, match="has no zone"):
        write_report(gold, tmp_path / "r.html", made_at=datetime(2026, 11, 16))  # noqa: DTZ001


def _row(row: dict[str, object], columns: Mapping[str, str]) -> tuple[object, ...]:
    return tuple(_value(row, name, kind) for name, kind in columns.items())


def _value(row: dict[str, object], name: str, kind: str) -> object:
    if kind == "timestamp":
        ms = row[f"{name}_ms"]
        assert ms is None or isinstance(ms, int)
        return None if ms is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    value = row[name]
    assert kind != "date" or isinstance(value, date)
    return float(value) if kind == "double" and isinstance(value, int) else value
