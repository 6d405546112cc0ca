"""Load a table into a queue: each row a job, none twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from toril.errors import InvalidOption, StorageError
from toril.spark.flows.files import Files
from toril.spark.flows.jobs import FORMAT
from toril.spark.flows.pace import Report, silent
from toril.spark.flows.place import Desk, Place
from toril.spark.flows.trouble import plain_errors
from toril.spark.register import register
from toril.text import printable, suggest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS: Final = ("parquet", "csv", "json", "orc", "table")
_ENDINGS: Final = {
    "parquet": "parquet",
    "csv": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "orc": "orc",
}
_PACKED: Final = (".gz", ".bz2", ".zst", ".lz4", ".snappy")
_ID: Final = "toril_id"
_LOOK_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How a row becomes a job; without `id_column` the id is made of the row's content."""

    id_column: str | None = None
    id_prefix: str = ""
    name: str | None = None
    name_column: str | None = None
    data_column: str | None = None
    data_columns: Sequence[str] = ()
    option_columns: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name is not None and self.name_column is not None:
            raise InvalidOption("ingest: give name or name_column, not both")
        if self.data_column is not None and self.data_columns:
            raise InvalidOption("ingest: give data_column or data_columns, not both")
        if self.id_prefix and self.id_column is None:
            raise InvalidOption("ingest: id_prefix goes with id_column")

    def named(self) -> list[str]:
        """All columns that are named."""
        single = (self.id_column, self.name_column, self.data_column)
        some = [one for one in single if one is not None]
        return [*some, *self.data_columns, *self.option_columns.values()]


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRun:
    """What was loaded: `duplicates` were there already, by their id."""

    rows: int
    created: int
    duplicates: int
    seconds: float

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds if self.seconds else 0.0


def ingest(
    spark: SparkSession,
    source: str | DataFrame,
    queue: str,
    *,
    shape: Shape = Shape(),  # noqa: B008 (frozen)
    format: str | None = None,
    schema: str | None = None,
    url: str | None = None,
    url_env: str | None = None,
    password_file: str | None = None,
    report: Report = silent,
) -> IngestRun:
    """Hand in one job per row of a path, a table or a DataFrame.

    May be repeated, also after a crash half way: a row whose id is there already adds nothing, for
    as long as its job is kept. Columns of a CSV without `schema` are text.
    """
    place = Place(flow="ingest", queue=queue, url=url, url_env=url_env, password_file=password_file)
    with plain_errors():
        frame = source if not isinstance(source, str) else _read(spark, source, format, schema)
        options = _options(frame, shape)
        ready = _with_id(frame, shape)
        register(spark)
        with place.open() as desk:
            return _load(ready, place, options, desk, report)


def _read(spark: SparkSession, source: str, format: str | None, schema: str | None) -> DataFrame:
    from pyspark.errors import AnalysisException, ParseException

    chosen = format or _format_of(spark, source)
    if chosen not in FORMATS:
        raise InvalidOption(
            f"ingest: format '{printable(chosen, 40)}' is unknown.{suggest(chosen, FORMATS)}"
            f" Known: {', '.join(FORMATS)}"
        )
    reader = spark.read
    try:
        if chosen == "table":
            return reader.table(source)
        if schema is not None:
            reader = reader.schema(schema)
        if chosen == "csv":
            reader = reader.options(header=True, mode="FAILFAST")
        elif chosen == "json":
            reader = reader.options(mode="FAILFAST")
        return reader.format(chosen).load(source)
    except (AnalysisException, ParseException) as error:
        first = str(error).strip().splitlines()[0]
        raise InvalidOption(
            f"ingest: '{printable(source, 200)}' cannot be read as {chosen}: {printable(first, 200)}"
        ) from None


def _format_of(spark: SparkSession, source: str) -> str:
    """Tell the format by the ending of the path, or of the files in a directory."""
    files = Files(spark, source)
    names = [source, *files.sizes()] if "*" not in source else [source]
    for name in names:
        for packed in _PACKED:
            name = name.removesuffix(packed)
        found = _ENDINGS.get(name.rpartition(".")[2].lower())
        if found is not None:
            return found
    if "*" not in source and not files.exists():
        raise InvalidOption(
            f"ingest: nothing is at '{printable(source, 200)}';"
            " for a table of Spark's catalog say format 'table'"
        )
    raise InvalidOption(
        f"ingest: '{printable(source, 200)}' does not tell its format; give one of"
        f" {', '.join(FORMATS)}"
    )


def _options(frame: DataFrame, shape: Shape) -> dict[str, str]:
    """Write a shape as options of the sink; a column that is not there is refused."""
    for column in shape.named():
        if column not in frame.columns:
            raise InvalidOption(
                f"ingest: no column '{printable(column, 60)}'.{suggest(column, frame.columns)}"
                f" Columns: {printable(', '.join(frame.columns), 300)}"
            )
    given = {
        "idColumn": None if shape.id_column is None else _ID,
        "name": shape.name,
        "nameColumn": shape.name_column,
        "dataColumn": shape.data_column,
        "dataColumns": ",".join(shape.data_columns) or None,
        **{f"{option}Column": column for option, column in shape.option_columns.items()},
    }
    return {name: value for name, value in given.items() if value is not None}
