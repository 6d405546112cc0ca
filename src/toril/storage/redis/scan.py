"""Jobs of the lean layout as columns, page by page, without an object for each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from typing import Any, Final, cast

from toril.job import FINISHED, State
from toril.resp.sync import SyncClient
from toril.storage.columns import Columns, Slice
from toril.storage.columns_walk import Page, walk_line, walk_sorted
from toril.storage.redis import codec
from toril.storage.redis.scripts import script

_MOST: Final = 1000
"""Jobs per call: four reads of many fields each, about two milliseconds of server time."""

# Places in a record, as `prelude.lua` has them.
_STATE, _TICKET, _CREATED, _MADE, _STARTED, _STALLS = range(6)
_WORKER, _SINCE, _PROCESSED, _NAME, _EXTRA = 8, 9, 10, 12, 13

_PARTS: Final = (
    ("s", frozenset({"payload", "priority", "max_attempts"})),
    ("r", frozenset({"result", "failure_kind", "failure_reason"})),
    ("p", frozenset({"progress"})),
)
"""What lies beside the records, and the columns that need it."""

SETS: Final = {
    State.PRIORITIZED: "prioritized",
    State.DELAYED: "delayed",
    State.ACTIVE: "processing",
    State.COMPLETED: "completed",
    State.FAILED: "failed",
}


def scan(client: SyncClient, base: str, cut: Slice, columns: Collection[str]) -> Iterator[Columns]:
    """Read a slice of a state."""
    read = partial(_read, client, base, cut, columns)
    if cut.state is State.WAITING:
        return walk_line(lambda skip: read(skip, cut.part, cut.parts), set(), cut.parts, _MOST)
    low, high = cut.low or "-inf", f"({cut.high}" if cut.high else "+inf"
    return walk_sorted(lambda last: read(low, high, *last), _MOST, moving=cut.state is State.ACTIVE)


def _read(
    client: SyncClient, base: str, cut: Slice, columns: Collection[str], *where: str | int
) -> Page:
    letter = codec.LETTERS[cut.state]
    wanted = "".join(part for part, names in _PARTS if not names.isdisjoint(columns))
    reply = client.run(script("scan"), base, 0, letter, _MOST, wanted, *where)
    now, looked, raw_names, raw_scores, *parts = cast("Sequence[Any]", reply)
    listed = [name.decode() for name in raw_names]
    rows = _rows(cut.state, now, listed, parts)
    scores = [score.decode() for score in raw_scores]
    return Page(
        looked=looked,
        listed=listed,
        keys=rows.keys,
        columns={name: _COLUMNS[name](rows) for name in columns},
        scores=scores,
        last=(listed[-1], scores[-1]) if scores else ("", ""),
    )


def _rows(
    state: State, now: int, listed: Sequence[str], parts: Sequence[Sequence[bytes | None]]
) -> _Rows:
    """Unpack the records and keep those of jobs that are there, in the state."""
    records = [_unpack(raw) for raw in parts[0]]
    letter = codec.LETTERS[state]
    if state is State.WAITING:
        entries = [entry.partition(":") for entry in listed]
        ids = [job_id for _, _, job_id in entries]
        sound = [
            len(record) > _EXTRA and record[_STATE] == letter and record[_TICKET] == int(ticket)
            for record, (ticket, _, _) in zip(records, entries, strict=True)
        ]
    else:
        ids = list(listed)
        sound = [_is_there(record, letter, now) for record in records]
    kept: list[Sequence[Any]] = [listed, ids, records, *parts[1:]]
    if not all(sound):
        kept = [list(compress(some, sound)) for some in kept]
    keys, names, sound_records, specs, results, progress = kept
    failed = zip(sound_records, results, strict=False)
    return _Rows(
        state=state,
        keys=keys,
        ids=names,
        records=sound_records,
        specs=[_spec(blob) for blob in specs],
        failures=[] if state is State.COMPLETED else [_failure(*one) for one in failed],
        results=results,
        progress=progress,
    )


def _unpack(raw: bytes | None) -> Sequence[Any]:
    try:
        record = codec.unpack(raw or b"")
    except Exception:  # whatever lies there, it is not a record
        return ()
    return record if isinstance(record, list) else ()


def _is_there(record: Sequence[Any], letter: str, now: int) -> bool:
    if len(record) <= _EXTRA or record[_STATE] != letter:
        return False
    extra = record[_EXTRA]
    return not extra or not extra.get("e") or extra["e"] > now


def _spec(blob: bytes | None) -> tuple[bytes, int, int]:
    """Payload, priority and attempts; as `codec` has them where the spec is unreadable."""
    try:
        _, payload, packed, _ = codec.unpack(blob or b"")
        terms = codec.unpack_terms(packed)
    except Exception:  # whatever lies there, it is not ours
        return blob or b"", 0, 1
    return payload, terms.priority, terms.attempts


def _failure(record: Sequence[Any], blob: bytes | None) -> tuple[str | None, str | None]:
    if blob is None or not (record[_MADE] or record[_STALLS]):
        return None, None
    kind, reason, *_ = codec.unpack(blob)
    return kind, reason


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Jobs of one state, as their parts lie in the store."""

    state: State
    keys: Sequence[str]
    ids: Sequence[str]
    records: Sequence[Sequence[Any]]
    specs: Sequence[tuple[bytes, int, int]]
    failures: Sequence[tuple[str | None, str | None]]
    results: Sequence[bytes | None]
    progress: Sequence[bytes | None]

    def none(self) -> list[object]:
        """A column of nothing."""
        return [None] * len(self.ids)


def _field(place: int) -> Callable[[_Rows], list[object]]:
    return lambda rows: [record[place] for record in rows.records]


def _result(rows: _Rows) -> list[object]:
    return list(rows.results) if rows.state is State.COMPLETED else rows.none()


def _of_failure(place: int) -> Callable[[_Rows], list[object]]:
    return lambda rows: [one[place] for one in rows.failures] or rows.none()


_COLUMNS: Final[Mapping[str, Callable[[_Rows], list[object]]]] = {
    "id": lambda rows: list(rows.ids),
    "name": _field(_NAME),
    "state": lambda rows: [rows.state.value] * len(rows.ids),
    "payload": lambda rows: [spec[0] for spec in rows.specs],
    "priority": lambda rows: [spec[1] for spec in rows.specs],
    "max_attempts": lambda rows: [spec[2] for spec in rows.specs],
    "created_ms": _field(_CREATED),
    "due_ms": lambda rows: [(record[_EXTRA] or {}).get("d") for record in rows.records],
    "attempts_made": _field(_MADE),
    "attempts_started": _field(_STARTED),
    "stalls": _field(_STALLS),
    "processed_ms": lambda rows: [record[_PROCESSED] or None for record in rows.records],
    "finished_ms": lambda rows: _field(_SINCE)(rows) if rows.state in FINISHED else rows.none(),
    "worker_id": lambda rows: [codec.worker_of(record[_WORKER]) for record in rows.records],
    "progress": lambda rows: list(rows.progress),
    "result": _result,
    "failure_kind": _of_failure(0),
    "failure_reason": _of_failure(1),
}
