"""The options of jobs as options of a write: one value for all rows, or a column of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from toril.errors import InvalidInput, InvalidOption
from toril.job import Dedup, Terms
from toril.options import JobOptions
from toril.retry import Backoff
from toril.spark.options import Options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "delay": _WHOLE,
    "priority": _WHOLE,
    "attempts": _WHOLE,
    "backoff": _WHOLE,
    "timeout": _WHOLE,
    "expires": _WHOLE,
    "resultTtl": _WHOLE,
    "lifo": ("boolean",),
    "dedupId": ("string",),
    "correlationId": ("string",),
}
"""What may come from a column, and the types that it may have; durations are milliseconds."""
_CONSTANTS: Final = ("backoffKind", "dedupTtl", "keepCompleted", "keepFailed", "keepLogs")

TERM_OPTIONS: Final = (*_KINDS, *(f"{name}Column" for name in _KINDS), *_CONSTANTS)

_MOST: Final = 2**53 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TermsPlan:
    """What all rows share, and the columns that say more: option by column."""

    shared: Mapping[str, object]
    columns: Mapping[str, str]

    @classmethod
    def of(cls, options: Options, schema: StructType) -> TermsPlan:
        """Check the options; a column that is missing or of another type is refused."""
        columns = {}
        for name, kinds in _KINDS.items():
            column = options.text(f"{name}Column")
            if column is not None:
                columns[name] = column_of(options, f"{name}Column", schema, kinds)
        plan = cls(shared=_shared(options), columns=columns)
        plan._make({})
        return plan

    def terms(self, batch: pa.RecordBatch, ids: Sequence[str]) -> Sequence[Terms] | Terms:
        """Give each row its terms; a null leaves what all rows share."""
        if not self.columns:
            return self._make({})
        names = list(self.columns)
        made: dict[tuple[object, ...], Terms] = {}
        found: list[Terms] = []
        values = [batch.column(column).to_pylist() for column in self.columns.values()]
        for job_id, row in zip(ids, zip(*values, strict=True), strict=True):
            terms = made.get(row)
            if terms is None:
                own = {name: one for name, one in zip(names, row, strict=True) if one is not None}
                try:
                    terms = made[row] = self._make(own)
                except InvalidInput as error:
                    raise InvalidInput(f"toril_jobs: row with id '{job_id}': {error}") from None
            found.append(terms)
        return found

    def _make(self, own: Mapping[str, object]) -> Terms:
        given: dict[str, Any] = {**self.shared, **own}
        changes: dict[str, Any] = {
            name: given[name] for name in ("priority", "attempts", "lifo") if name in given
        }
        for name, option in _DURATIONS.items():
            if name in given:
                changes[option] = given[name] / 1000
        if "backoff" in given:
            kind = cast('Literal["fixed", "exponential"]', given.get("backoffKind", "fixed"))
            changes["backoff"] = Backoff(kind, given["backoff"] / 1000)
        if "dedupId" in given:
            ttl = given.get("dedupTtl")
            changes["dedup"] = Dedup(given["dedupId"], None if ttl is None else ttl / 1000)
        for name, option in _COUNTS.items():
            if name in given:
                changes[option] = given[name]
        if "correlationId" in given:
            changes["correlation_id"] = given["correlationId"]
        return JobOptions(**changes).terms()


_DURATIONS: Final = {
    "delay": "delay",
    "timeout": "timeout",
    "expires": "expires_in",
    "resultTtl": "result_ttl",
}
_COUNTS: Final = {
    "keepCompleted": "keep_completed",
    "keepFailed": "keep_failed",
    "keepLogs": "keep_logs",
}


def _shared(options: Options) -> dict[str, object]:
    shared: dict[str, object] = {}
    for name, kinds in _KINDS.items():
        if options.text(name) is None:
            continue
        if kinds is _WHOLE:
            shared[name] = options.count(name, 0, 0, _MOST)
        elif name == "lifo":
            shared[name] = options.flag(name, False)
        else:
            shared[name] = options.text(name)
    for name in ("dedupTtl", *_COUNTS):
        if options.text(name) is not None:
            shared[name] = options.count(name, 0, 0, _MOST)
    if options.text("backoffKind") is not None:
        shared["backoffKind"] = options.choice("backoffKind", "", ("fixed", "exponential"))
    for name, needs in (("backoffKind", "backoff"), ("dedupTtl", "dedupId")):
        if name in shared and not (options.text(needs) or options.text(f"{needs}Column")):
            raise options.wrong(name, f"says nothing without '{needs}' or '{needs}Column'")
    return shared


def column_of(options: Options, name: str, schema: StructType, kinds: Sequence[str]) -> str:
    """Read an option that names a column of one of some types; any type if there are none."""
    column = str(options.text(name))
    fields = {field.name: field.dataType.simpleString() for field in schema.fields}
    if column not in fields:
        raise options.wrong(name, f"is no column of the data; it has: {', '.join(fields)}")
    if kinds and fields[column] not in kinds:
        raise InvalidOption(
            f"{options.source}: option '{name}': column '{column}' is {fields[column]},"
            f" it must be {' or '.join(kinds)}; cast it before the write"
        )
    return column
