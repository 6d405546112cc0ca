"""The storage a flow talks to, as executors are told of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from toril.spark.flows import Shape, ingest
from toril.spark.flows.place import Place
from toril.storage.local import hold_embedded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("given", ["url", "environment"])
def test_a_storage_of_this_machine_goes_to_executors_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for written, meant in (
        ("embedded:home", f"embedded:{tmp_path / 'home'}"),
        ("bullmq+embedded:home?prefix=x", f"bullmq+embedded:{tmp_path / 'home'}?prefix=x"),
        ("file:jobs", f"file:{tmp_path / 'jobs'}"),
    ):
        monkeypatch.setenv("TORIL_URL", written)
        place = Place(flow="ingest", queue="q", url=written if given == "url" else None)
        assert place.options() == {"queue": "q", "url": meant}


def test_rows_are_loaded_into_the_embedded_server(spark: SparkSession, tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'home'}"
    rows = spark.createDataFrame([("a", 1), ("b", 2)], "name string, size int")
    with hold_embedded(url):
        run = ingest(spark, rows, "names", shape=Shape(id_column="name"), url=url)
        assert (run.created, run.duplicates) == (2, 0)
