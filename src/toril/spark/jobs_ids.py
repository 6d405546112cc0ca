"""Give rows the ids of their jobs: functions of what the rows hold, never of where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toril.errors import InvalidInput, InvalidName, InvalidOption
from toril.ids import check_ids, content_id
from toril.spark.jobs_json import find_fault, json_fault, plain_values
from toril.spark.jobs_terms import column_of
from toril.spark.options import Options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

ID_OPTIONS: Final = ("idColumn", "idFrom", "idPrefix")
_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_PLACES: Final = ("position", "row", "row_number", "index", "uuid", "monotonically_increasing_id")
CONTENT: Final = "content"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdPlan:
    """Ids from a column, or from a hash over columns."""

    column: str | None
    hashed: tuple[str, ...]
    prefix: str

    @classmethod
    def of(cls, options: Options, schema: StructType) -> IdPlan:
        """Read `idColumn` or `idFrom`."""
        column, source = options.text("idColumn"), options.names("idFrom")
        if (column is None) == (not source):
            raise InvalidOption(
                f"{options.source}: give 'idColumn', a column that names each job, or 'idFrom':"
                " 'content', or columns to hash. Without an id of its own a row that is written"
                " again would be a second job"
            )
        prefix = options.text("idPrefix") or ""
        if column is None:
            return cls(column=None, hashed=_hashed(options, schema, source), prefix=prefix)
        column_of(options, "idColumn", schema, ("string", *_WHOLE))
        kind = schema[column].dataType.simpleString()
        if kind in _WHOLE and not prefix:
            raise InvalidOption(
                f"{options.source}: option 'idColumn': column '{column}' is {kind}, and bare"
                " numbers are ids that servers count up themselves; give 'idPrefix' too, as"
                f" '{options.text('queue') or 'job'}-'"
            )
        return cls(column=column, hashed=(), prefix=prefix)

    def ids(self, batch: pa.RecordBatch) -> list[str]:
        """Name the job of each row; raise for a row that has no name or an unfit one."""
        ids = self._hashes(batch) if self.column is None else self._named(batch, self.column)
        try:
            check_ids(ids)
        except InvalidName as error:
            row = next(row for row, job_id in enumerate(ids) if _is_unfit(job_id))
            raise InvalidName(f"toril_jobs: row {row} of its batch: {error}") from None
        return ids

    def _named(self, batch: pa.RecordBatch, column: str) -> list[str]:
        values = batch.column(column)
        if values.null_count:
            found = values.to_pylist()
            raise InvalidInput(
                f"toril_jobs: column '{column}' is null in {values.null_count:,} of"
                f" {len(values):,} rows of a batch, first in row {found.index(None)}:"
                " a job without an id would be added anew at every replay; filter such rows,"
                " or hash columns with 'idFrom'"
            )
        prefix, found = self.prefix, values.to_pylist()
        return [f"{prefix}{value}" for value in found] if prefix else found

    def _hashes(self, batch: pa.RecordBatch) -> list[str]:
        columns = [plain_values(batch.column(name)) for name in self.hashed]
        try:
            return [
                self.prefix + content_id(dict(zip(self.hashed, row, strict=True)))
                for row in zip(*columns, strict=True)
            ]
        except InvalidInput:
            row, fault = find_fault(batch, self.hashed)
            raise InvalidInput(f"toril_jobs: row {row} of its batch: {fault}") from None


def _is_unfit(job_id: str) -> bool:
    try:
        check_ids((job_id,))
    except InvalidName:
        return True
    return False


def _hashed(options: Options, schema: StructType, source: Sequence[str]) -> tuple[str, ...]:
    known = [field.name for field in schema.fields]
    if tuple(source) == (CONTENT,) and CONTENT not in known:
        source = known
    for name in source:
        if name in known:
            fault = json_fault(schema[name].dataType)
            if fault is not None:
                raise options.wrong("idFrom", f"hashes column '{name}', but {fault} is not JSON")
        elif name.lower() in _PLACES:
            raise options.wrong(
                "idFrom",
                "is not in the row: places and random ids change when a task is run again, and"
                " each run would add its jobs anew; name columns, or 'content' for all of them",
            )
        else:
            raise options.wrong(
                "idFrom", f"names '{name}'; give 'content' or columns: {', '.join(known)}"
            )
    return tuple(source)
