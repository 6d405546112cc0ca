"""Write the results of completed jobs as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toril.errors import InvalidOption
from toril.spark.flows.jobs import check_where, read_jobs
from toril.spark.flows.place import Place
from toril.spark.flows.trouble import plain_errors, sql_error
from toril.spark.schema import JOBS
from toril.text import printable, suggest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

FORMATS: Final = ("parquet", "csv", "json")

_JOB: Final = {
    "job_id": "id",
    "job_name": "name",
    "job_created_at": "created_at",
    "job_finished_at": "finished_at",
    "job_attempts": "attempts_made",
}
_UNPARSED: Final = "result_unparsed"
_CORRUPT: Final = "toril_corrupt"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRun:
    """What was written; `unparsed` rows have a result that the schema does not fit."""

    path: str
    rows: int
    unparsed: int


def export(
    spark: SparkSession,
    queue: str,
    path: str,
    *,
    schema: str | None = None,
    where: str | None = None,
    format: str = "parquet",
    overwrite: bool = False,
    url: str | None = None,
    url_env: str | None = None,
    password_file: str | None = None,
) -> ExportRun:
    """Write one row per completed job: who it was and what it returned.

    `schema` is DDL. Fields (`total double, items array<string>`) become columns of their own, one
    type (`double`) is the type of the column `result`; without it `result` is the JSON text. A
    result that does not fit is kept as text in `result_unparsed`, and counted.
    """
    place = Place(flow="export", queue=queue, url=url, url_env=url_env, password_file=password_file)
    if format not in FORMATS:
        raise InvalidOption(
            f"export: format '{printable(format, 40)}' is unknown.{suggest(format, FORMATS)}"
            f" Known: {', '.join(FORMATS)}"
        )
    if where is not None:
        check_where(spark, "export", where)
    kind = None if schema is None else _parse(spark, schema, format)
    with plain_errors(), place.open():
        frame = read_jobs(spark, place, ["completed"], list(JOBS))
        if where is not None:
            frame = frame.where(where)
        return _write(_table(frame, kind), path, format, overwrite)


def result_table(frame: DataFrame, schema: str | None = None) -> DataFrame:
    """Turn jobs as `toril_jobs` gives them into the table that `export` writes."""
    kind = None if schema is None else _parse(frame.sparkSession, schema, "parquet")
    return _table(frame, kind)


def _parse(spark: SparkSession, schema: str, format: str) -> DataType:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, DataType, MapType, StructType

    try:
        kind = DataType.fromDDL(schema)
        spark.range(0).select(f.lit(None).cast(kind)).schema  # noqa: B018
    except PySparkException as error:
        raise sql_error(f"export: schema '{printable(schema, 200)}'", error) from None
    fields = kind.fields if isinstance(kind, StructType) else []
    taken = [one.name for one in fields if one.name.lower() in {*_JOB, _UNPARSED, _CORRUPT}]
    if taken:
        raise InvalidOption(
            f"export: schema has a field '{taken[0]}', which is a column of the job itself; "
            f"the table has {', '.join(_JOB)} and {_UNPARSED} of its own"
        )
    nested = (ArrayType, MapType, StructType)
    deep = [one.name for one in fields if isinstance(one.dataType, nested)]
    if format == "csv" and (deep or isinstance(kind, (ArrayType, MapType))):
        what = f"field '{deep[0]}'" if deep else "the result"
        raise InvalidOption(
            f"export: CSV cannot hold {what}, which has parts of its own;"
            " use format parquet or json, or take it as string"
        )
    return kind


def _table(frame: DataFrame, kind: DataType | None) -> DataFrame:
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructField, StructType

    job = [f.col(column).alias(name) for name, column in _JOB.items()]
    if kind is None:
        return frame.select(*job, "result", f.lit(None).cast("string").alias(_UNPARSED))
    # Wrapped into an object, a result of any type is parsed, and told where it does not fit.
    wrapped = f.concat(f.lit('{"v":'), f.coalesce("result", f.lit("null")), f.lit("}"))
    shape = StructType([StructField("v", kind), StructField(_CORRUPT, StringType())])
    parsed = f.from_json(wrapped, shape, {"columnNameOfCorruptRecord": _CORRUPT})
    fits = frame.withColumn("parsed", parsed)
    unparsed = f.when(f.col(f"parsed.{_CORRUPT}").isNotNull(), f.col("result")).alias(_UNPARSED)
    value = (
        [f.col(f"parsed.v.`{one.name}`").alias(one.name) for one in kind.fields]
        if isinstance(kind, StructType)
        else [f.col("parsed.v").alias("result")]
    )
    return fits.select(*job, *value, unparsed)


def _write(table: DataFrame, path: str, format: str, overwrite: bool) -> ExportRun:
    from pyspark.errors import AnalysisException
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    table = table.observe(
        seen,
        f.count(f.lit(1)).alias("rows"),
        f.count(_UNPARSED).alias("unparsed"),
    )
    writer = table.write.format(format).mode("overwrite" if overwrite else "error")
    if format == "csv":
        writer = writer.option("header", True)
    try:
        writer.save(path)
    except AnalysisException as error:
        if error.getCondition() == "PATH_ALREADY_EXISTS":
            raise InvalidOption(
                f"export: '{printable(path, 200)}' is there already;"
                " name another path, or say overwrite"
            ) from None
        raise
    told = seen.get
    return ExportRun(path=path, rows=int(told["rows"]), unparsed=int(told["unparsed"]))
