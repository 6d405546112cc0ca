"""Write columns of Arrow as JSON: a column at a time where Arrow can, a value at a time elsewhere.

Timestamps become ISO 8601 in UTC with microseconds and a Z (those without a zone have none),
dates ISO 8601, decimals text, bytes base64, structs and maps objects, arrays arrays.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from toril.errors import InvalidPayload
from toril.serde import MAX_SAFE_INTEGER, encode_json

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_ESCAPED: Final = '[\x00-\x1f"\\\\]'
_KEYS: Final = ("string", "tinyint", "smallint", "int", "bigint")
_PLAIN: Final = frozenset(
    {"string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "binary"}
    | {"date", "timestamp", "timestamp_ntz", "void"}
)

Convert = Callable[[Any], object]


def json_fault(kind: DataType) -> str | None:
    """Say which type inside of this one JSON has nothing for; None if all is fine."""
    name = kind.simpleString()
    if name in _PLAIN or name.startswith("decimal("):
        return None
    # Told by its name, a type has parts that the checker does not know of; pyspark stays unloaded.
    match kind.typeName():
        case "struct":
            faults = (json_fault(field.dataType) for field in kind.fields)  # type: ignore[attr-defined]
            return next((fault for fault in faults if fault), None)
        case "array":
            return json_fault(kind.elementType)  # type: ignore[attr-defined]
        case "map":
            key = kind.keyType.simpleString()  # type: ignore[attr-defined]
            return json_fault(kind.valueType) if key in _KEYS else name  # type: ignore[attr-defined]
    return name


def encode_rows(batch: pa.RecordBatch, names: Sequence[str]) -> list[bytes]:
    """Write each row as an object of some of its columns."""
    if not names:
        return [b"{}"] * batch.num_rows
    parts: list[object] = []
    between = "{"
    for name in names:
        column, key = batch.column(name), f"{between}{json.dumps(name)}:"
        if _is_bare(column):  # most are, and need no text of their own
            parts += (f'{key}"', column.cast(pa.string()))
            between = '",'
        else:
            parts += (key, _fragments(column))
            between = ","
    whole = pc.binary_join_element_wise(*parts, between[:-1] + "}", "")
    return _bytes(whole)


def encode_column(column: pa.Array) -> list[bytes]:
    """Write each value of a column."""
    return _bytes(_fragments(column))


def plain_values(column: pa.Array) -> list[object]:
    """Give the values as plain data, as they are encoded."""
    convert = _converter(column.type)
    return [None if value is None else convert(value) for value in column.to_pylist()]


def _bytes(texts: pa.Array) -> list[bytes]:
    found: list[bytes] = texts.cast(pa.binary()).to_pylist()
    return found


def _fragments(column: pa.Array) -> pa.Array:
    """Write the values of a column as JSON texts; a null is `null`."""
    kind = column.type
    if (pa.types.is_integer(kind) and _is_safe(column)) or pa.types.is_boolean(kind):
        texts = column.cast(pa.string())
    elif pa.types.is_date(kind) or (_is_text(kind) and _is_unescaped(column)):
        texts = _quoted(column.cast(pa.string()))
    elif pa.types.is_timestamp(kind):
        bare = column.cast(pa.timestamp("us", kind.tz)).cast(pa.timestamp("us")).cast(pa.string())
        texts = _quoted(pc.replace_substring(bare, " ", "T"), "Z" if kind.tz else "")
    else:
        values = plain_values(column)
        return pa.array([encode_json(value).decode() for value in values], pa.string())
    return pc.fill_null(texts, "null")


def _quoted(texts: pa.Array, end: str = "") -> pa.Array:
    return pc.binary_join_element_wise('"', texts, f'{end}"', "")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bare(column: pa.Array) -> bool:
    """Whether all values are JSON once they stand in quotes."""
    return _is_text(column.type) and not column.null_count and _is_unescaped(column)


def _is_unescaped(column: pa.Array) -> bool:
    return not pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py()


def _is_safe(column: pa.Array) -> bool:
    if column.type.bit_width < 64:
        return True
    bounds = pc.min_max(column).as_py()
    low, high = bounds["min"] or 0, bounds["max"] or 0
    return bool(low >= -MAX_SAFE_INTEGER and high <= MAX_SAFE_INTEGER)


def _converter(kind: pa.DataType) -> Convert:
    """Make what turns a value that is not null into plain data."""
    if pa.types.is_struct(kind):
        fields = [(field.name, _or_null(_converter(field.type))) for field in kind]
        return lambda value: {name: convert(value[name]) for name, convert in fields}
    if pa.types.is_map(kind):
        inside = _or_null(_converter(kind.item_type))
        return lambda value: {str(key): inside(one) for key, one in value}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        each = _or_null(_converter(kind.value_type))
        return lambda value: [each(one) for one in value]
    return _scalar


def _or_null(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _scalar(value: object) -> object:
    match value:
        case datetime():
            if value.tzinfo is None:
                return value.isoformat(timespec="microseconds")
            text = value.astimezone(UTC).isoformat(timespec="microseconds")
            return text.replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case Decimal():
            return f"{value:f}"
        case bytes():
            return b64encode(value).decode()
    return value


def find_fault(batch: pa.RecordBatch, names: Sequence[str]) -> tuple[int, str]:
    """Find the first row, and its fault, that cannot be written as JSON."""
    columns = {name: plain_values(batch.column(name)) for name in names}
    for row in range(batch.num_rows):
        for name, values in columns.items():
            try:
                encode_json(values[row])
            except InvalidPayload as error:
                path = error.path.removeprefix("$")
                fault = str(error).partition(": ")[2]
                return row, f"column '{name}'{path and f' at {path}'}: {fault}"
    raise AssertionError("every row can be encoded")
