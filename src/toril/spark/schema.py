"""The columns of events and jobs as Spark and Arrow see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toril.errors import InvalidOption
from toril.text import printable, suggest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

EVENTS: Final = {
    "queue": "string",
    "number": "bigint",
    "kind": "string",
    "time": "timestamp",
    "job_id": "string",
    "job_name": "string",
    "attempt": "int",
    "worker_id": "string",
    "prev": "string",
    "reason": "string",
    "delay_ms": "bigint",
    "duration_ms": "bigint",
    "result_size": "bigint",
    "progress": "string",
    "dedup_id": "string",
    "other_id": "string",
    "count": "bigint",
}
"""One row is one event. (`queue`, `number`, `kind`) names it: on the BullMQ wire a retry and the
event it was read from share a number."""

GAP: Final = "toril.gap"
"""The kind of a row that stands for events lost to trimming: `count` of them, the last of which
had the number `number`; `count` is null where the stream was deleted and nobody can tell."""

JOBS: Final = {
    "queue": "string",
    "id": "string",
    "name": "string",
    "state": "string",
    "data": "string",
    "priority": "int",
    "max_attempts": "int",
    "created_at": "timestamp",
    "due_at": "timestamp",
    "attempts_made": "int",
    "attempts_started": "int",
    "stalls": "int",
    "processed_at": "timestamp",
    "finished_at": "timestamp",
    "worker_id": "string",
    "progress": "string",
    "result": "string",
    "failure_kind": "string",
    "failure_reason": "string",
}
"""One row is one job; `data`, `progress` and `result` are the stored text, JSON by default."""

JOBS_ON_REQUEST: Final = {"payload": "binary", "result_bytes": "binary"}
"""Columns a schema of the user's own may name: the stored bytes, whatever the serde."""


def ddl(columns: dict[str, str]) -> str:
    """Write columns as Spark's schema text."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


def arrow_schema(columns: dict[str, str]) -> pa.Schema:
    """Write columns as Arrow's schema, which must match Spark's to the type."""
    import pyarrow as pa

    kinds = {
        "string": pa.string(),
        "bigint": pa.int64(),
        "int": pa.int32(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    return pa.schema([pa.field(name, kinds[kind]) for name, kind in columns.items()])


def choose(source: str, schema: StructType, known: dict[str, str]) -> dict[str, str]:
    """Check a schema of the user's own and give its columns, in its order."""
    chosen: dict[str, str] = {}
    for field in schema.fields:
        kind = known.get(field.name)
        if kind is None:
            raise InvalidOption(
                f"{source}: column '{printable(field.name, 60)}' is unknown."
                f"{suggest(field.name, known)} Known: {', '.join(known)}"
            )
        if field.dataType.simpleString() != kind:
            raise InvalidOption(
                f"{source}: column '{field.name}' is {kind},"
                f" not {field.dataType.simpleString()}; cast it after the load"
            )
        chosen[field.name] = kind
    return chosen
