"""Turn claimed jobs into a DataFrame, and a DataFrame into what became of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from toril.errors import InvalidInput
from toril.spark.schema import arrow_schema
from toril.storage.protocol import Claimed
from toril.text import printable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

BATCH: Final = {
    "id": "string",
    "name": "string",
    "data": "string",
    "attempt": "int",
    "max_attempts": "int",
    "created_at": "timestamp",
}
"""The columns a function is given; `data` is JSON text unless a schema was named for it."""

VALUES: Final = ("result", "returnvalue")
ERROR: Final = "error"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_JSON_TYPES: Final = frozenset(
    {"string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "void"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the function says of one job: a value, or an error."""

    value: object = None
    error: str | None = None


def make_frame(
    spark: SparkSession, jobs: Sequence[Claimed], attempts: int | None, data_schema: str | None
) -> DataFrame:
    """Lay jobs out as rows; the payloads must be UTF-8."""
    import pyarrow as pa

    columns = {
        "id": [one.spec.id for one in jobs],
        "name": [one.spec.name for one in jobs],
        "data": [one.spec.payload.decode() for one in jobs],
        "attempt": [one.lease.attempt for one in jobs],
        "max_attempts": [attempts or one.spec.terms.attempts for one in jobs],
        "created_at": [_EPOCH + timedelta(milliseconds=one.created_ms) for one in jobs],
    }
    frame = spark.createDataFrame(pa.table(columns, schema=arrow_schema(BATCH)))
    if data_schema is None:
        return frame
    from pyspark.sql import functions

    return frame.withColumn("data", functions.from_json("data", data_schema))


def check_frame(subject: str, made: object) -> DataFrame:
    """Refuse what is no answer: its columns must be `id`, a value and perhaps `error`."""
    from pyspark.sql import DataFrame

    if not isinstance(made, DataFrame):
        raise InvalidInput(f"{subject} returned {type(made).__name__}; return a DataFrame")
    values = [name for name in VALUES if name in made.columns]
    if "id" not in made.columns or len(values) != 1:
        raise InvalidInput(
            f"{subject} returned the columns {', '.join(made.columns) or 'none'}; needed are 'id',"
            " 'result' (or 'returnvalue', not both) and, if a row may fail, 'error'"
        )
    kinds = {field.name: field.dataType for field in made.schema.fields}
    for name in {"id", ERROR} & kinds.keys():
        if kinds[name].simpleString() not in ("string", "void"):
            kind = kinds[name].simpleString()
            raise InvalidInput(f"{subject}: column '{name}' is {kind}; cast it to string")
    if fault := _not_json(kinds[values[0]]):
        raise InvalidInput(
            f"{subject}: column '{values[0]}' holds {fault}, which JSON has not; cast it to string"
        )
    chosen = ["id", values[0], *({ERROR} & kinds.keys())]
    return made.select(*(made[name] for name in chosen))


def read_rows(
    subject: str, rows: Sequence[Mapping[str, object]], asked: Set[str]
) -> Mapping[str, Verdict]:
    """Read what became of each job; refuse rows that are nobody's, and two for one job."""
    found: dict[str, Verdict] = {}
    for row in rows:
        job_id = row["id"]
        if not isinstance(job_id, str) or job_id not in asked:
            shown = "null" if job_id is None else f"'{printable(job_id, 80)}'"
            raise InvalidInput(
                f"{subject} returned a row with id {shown}, which is not in the batch of"
                f" {len(asked):,}; keep the ids it was given"
            )
        if job_id in found:
            raise InvalidInput(
                f"{subject} returned two rows for job '{printable(job_id, 80)}'; return one per"
                " job, for example with dropDuplicates(['id'])"
            )
        error = row.get(ERROR)
        value = next(row[name] for name in VALUES if name in row)
        found[job_id] = Verdict(value=value, error=None if error is None else str(error))
    return found


def _not_json(kind: DataType) -> str:
    """Name the first type inside that has no JSON, or nothing."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    match kind:
        case StructType():
            return next((bad for one in kind.fields if (bad := _not_json(one.dataType))), "")
        case ArrayType():
            return _not_json(kind.elementType)
        case MapType():
            named = kind.keyType.simpleString() == "string"
            return _not_json(kind.valueType) if named else kind.simpleString()
    text = kind.simpleString()
    return "" if text in _JSON_TYPES else text
