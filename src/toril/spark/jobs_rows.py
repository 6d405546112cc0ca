"""Turn a batch of rows into jobs, whole or not at all: nothing here talks to a storage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toril.errors import InvalidInput, InvalidOption, SerdeError
from toril.ids import check_name
from toril.job import Terms
from toril.options import SIZE_LIMIT
from toril.serde import JsonSerde
from toril.spark.jobs_ids import ID_OPTIONS, IdPlan
from toril.spark.jobs_json import encode_column, encode_rows, find_fault, json_fault
from toril.spark.jobs_terms import TERM_OPTIONS, TermsPlan, column_of
from toril.spark.options import Options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_DATA: Final = ("dataColumns", "dataColumn", "payloadColumn")
ROW_OPTIONS: Final = (*ID_OPTIONS, "name", "nameColumn", *_DATA, *TERM_OPTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Jobs as columns."""

    ids: Sequence[str]
    payloads: Sequence[bytes]
    names: Sequence[str] | str
    terms: Sequence[Terms] | Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsPlan:
    """Which columns make the id, the name, the data and the options of a job.

    The data is an object of `objects`, or JSON of the column `value`, or the bytes of the column
    `raw`; `is_text` tells that `value` holds JSON already.
    """

    ids: IdPlan
    name: str
    name_column: str | None
    objects: tuple[str, ...]
    value: str | None
    is_text: bool
    raw: str | None
    terms: TermsPlan

    @classmethod
    def of(cls, options: Options, schema: StructType) -> RowsPlan:
        """Check what can be checked without a row."""
        ids, terms = IdPlan.of(options, schema), TermsPlan.of(options, schema)
        name_column = options.text("nameColumn")
        if name_column is not None:
            column_of(options, "nameColumn", schema, ("string",))
        given = [name for name in _DATA if options.text(name) is not None]
        if len(given) > 1:
            raise InvalidOption(
                f"{options.source}: give one of {', '.join(_DATA)}, not {' and '.join(given)}"
            )
        value, raw = options.text("dataColumn"), options.text("payloadColumn")
        if value is not None:
            column_of(options, "dataColumn", schema, ())
        if raw is not None:
            column_of(options, "payloadColumn", schema, ("binary",))
        objects = options.names("dataColumns")
        if not given:
            spoken_for = {name_column, *terms.columns.values()}
            objects = tuple(name for name in schema.names if name not in spoken_for)
        plan = cls(
            ids=ids,
            name=check_name("handler", options.text("name") or "job"),
            name_column=name_column,
            objects=objects,
            value=value,
            is_text=value is not None and schema[value].dataType.simpleString() == "string",
            raw=raw,
            terms=terms,
        )
        plan._check_types(options, schema)
        return plan

    def _check_types(self, options: Options, schema: StructType) -> None:
        for name in self.objects:
            if name not in schema.names:
                raise options.wrong(
                    "dataColumns", f"names '{name}'; the data has: {', '.join(schema.names)}"
                )
        for name in (self.value,) if self.value is not None else self.objects:
            fault = json_fault(schema[name].dataType)
            if fault is not None:
                raise InvalidOption(
                    f"{options.source}: column '{name}' holds {fault}, which is not JSON;"
                    " cast it to string, or leave it out with 'dataColumns'"
                )

    def rows(self, batch: pa.RecordBatch) -> Rows:
        """Make the jobs of a batch; raise for the first row that cannot be one, by its id."""
        ids = self.ids.ids(batch)
        payloads = self._payloads(batch, ids)
        if max(map(len, payloads), default=0) > SIZE_LIMIT:
            at, size = next(one for one in enumerate(map(len, payloads)) if one[1] > SIZE_LIMIT)
            raise InvalidInput(
                f"toril_jobs: row with id '{ids[at]}': its data take {size:,} bytes;"
                f" the limit is {SIZE_LIMIT:,}: store it elsewhere and pass a reference"
            )
        _check_repeats(ids, payloads)
        return Rows(
            ids=ids,
            payloads=payloads,
            names=self._names(batch, ids),
            terms=self.terms.terms(batch, ids),
        )

    def _payloads(self, batch: pa.RecordBatch, ids: Sequence[str]) -> list[bytes]:
        if self.raw is not None:
            return [b"null" if one is None else one for one in batch.column(self.raw).to_pylist()]
        if self.is_text:
            return _checked(batch.column(self.value).to_pylist(), str(self.value), ids)
        names = self.objects if self.value is None else (self.value,)
        try:
            if self.value is not None:
                return encode_column(batch.column(self.value))
            return encode_rows(batch, names)
        except InvalidInput:
            row, fault = find_fault(batch, names)
            raise InvalidInput(f"toril_jobs: row with id '{ids[row]}': {fault}") from None

    def _names(self, batch: pa.RecordBatch, ids: Sequence[str]) -> Sequence[str] | str:
        if self.name_column is None:
            return self.name
        found = [one or self.name for one in batch.column(self.name_column).to_pylist()]
        fine: set[str] = set()
        for job_id, name in zip(ids, found, strict=True):
            if name not in fine:
                try:
                    fine.add(check_name("handler", name))
                except InvalidInput as error:
                    raise InvalidInput(f"toril_jobs: row with id '{job_id}': {error}") from None
        return found


def _checked(texts: Sequence[str | None], column: str, ids: Sequence[str]) -> list[bytes]:
    """Check that each text is JSON; a null is `null`."""
    serde: JsonSerde[object] = JsonSerde(max_bytes=SIZE_LIMIT)
    payloads: list[bytes] = []
    for job_id, text in zip(ids, texts, strict=True):
        payload = b"null" if text is None else text.encode()
        try:
            serde.loads(payload)
        except SerdeError as error:
            raise InvalidInput(
                f"toril_jobs: row with id '{job_id}': column '{column}' must hold JSON text:"
                f" {error}; to store the text itself, name the column in 'dataColumns'"
            ) from None
        payloads.append(payload)
    return payloads


def _check_repeats(ids: Sequence[str], payloads: Sequence[bytes]) -> None:
    """Refuse one id for two different jobs: the second would be lost without a word."""
    known = dict(zip(ids, payloads, strict=True))
    if len(known) == len(ids):
        return
    for job_id, payload in zip(ids, payloads, strict=True):
        if known[job_id] != payload:
            raise InvalidInput(
                f"toril_jobs: id '{job_id}' stands in two rows with different data, of which only"
                " one would become a job; choose an id that is different for each job"
            )
