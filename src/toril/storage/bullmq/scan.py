"""Jobs of BullMQ queues as columns, page by page, without an object for each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from toril.job import State
from toril.storage.bullmq import codec
from toril.storage.bullmq.terms import whole
from toril.storage.columns import Columns, Slice
from toril.storage.columns_walk import Page, walk_line, walk_sorted

_MOST: Final = 500
"""Jobs per call: keeps it under two or three milliseconds of server time."""
_TIE: Final = 4096
"""A delayed job's score is its due time times this."""

Run = Callable[..., Any]

LINES: Final = {State.WAITING: ("wait", "paused"), State.ACTIVE: ("active",)}

_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "payload": ("data",),
    "priority": ("priority",),
    "max_attempts": ("opts",),
    "attempts_made": ("atm", "attemptsMade"),
    "attempts_started": ("ats",),
    "stalls": ("stc",),
    "processed_ms": ("processedOn",),
    "finished_ms": ("finishedOn",),
    "worker_id": ("pb",),
    "progress": ("progress",),
    "result": ("returnvalue",),
    "failure_kind": ("failedReason", codec.KIND),
    "failure_reason": ("failedReason", codec.KIND),
}
"""The fields of the hash that a column needs, beside its name and its time."""


def scan(run: Run, cut: Slice, columns: Collection[str]) -> Iterator[Columns]:
    """Read a slice of a state; `run` runs our script of this name."""
    fields = tuple(
        dict.fromkeys(
            ("timestamp", "name", *(one for name in columns for one in _FIELDS.get(name, ())))
        )
    )
    read = partial(_read, run, cut.state, columns, fields)
    if cut.state in LINES:
        return _scan_lines(read, cut)
    low, high = cut.low or "-inf", f"({cut.high}" if cut.high else "+inf"
    return walk_sorted(lambda last: read(cut.state.value, low, high, *last), _MOST)


def _scan_lines(read: Callable[..., Page], cut: Slice) -> Iterator[Columns]:
    seen: set[str] = set()

    def walk(key: str) -> Iterator[Columns]:
        return walk_line(lambda skip: read(key, skip, cut.part, cut.parts), seen, cut.parts, _MOST)

    for key in LINES[cut.state]:
        before = len(seen)
        yield from walk(key)
        if key == "paused" and len(seen) > before:
            # The jobs of a queue that was resumed meanwhile are back in the first line.
            yield from walk("wait")


def _read(
    run: Run,
    state: State,
    columns: Collection[str],
    fields: Sequence[str],
    key: str,
    *where: str | int,
) -> Page:
    looked, last, reached, raw_ids, raw_scores, values = run(
        key, _MOST, len(fields), *fields, *where
    )
    ids = [one.decode() for one in raw_ids]
    scores = [one.decode() for one in raw_scores]
    width = len(fields)
    raw = {field: values[at::width] for at, field in enumerate(fields)}
    rows = _Rows(state=state, ids=ids, scores=scores, raw=raw)
    return Page(
        looked=looked,
        listed=ids,
        keys=ids,
        columns={name: _COLUMNS[name](rows) for name in columns},
        scores=scores,
        last=(last.decode(), reached.decode()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Jobs of one state: the fields of their hashes, one list each."""

    state: State
    ids: Sequence[str]
    scores: Sequence[str]
    raw: Mapping[str, Sequence[bytes | None]]

    def none(self) -> list[object]:
        """A column of nothing."""
        return [None] * len(self.ids)


def _whole(raw: bytes | None) -> int:
    if raw is None:
        return 0
    try:
        return int(raw)
    except ValueError:
        return codec.number({b"": raw}, b"")


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode(errors="replace")


def _numbers(field: str) -> Callable[[_Rows], list[object]]:
    return lambda rows: [_whole(one) for one in rows.raw[field]]


def _times(field: str) -> Callable[[_Rows], list[object]]:
    return lambda rows: [_whole(one) or None for one in rows.raw[field]]


def _due(rows: _Rows) -> list[object]:
    if rows.state is not State.DELAYED:
        return rows.none()
    return [int(float(score)) // _TIE for score in rows.scores]


def _max_attempts(rows: _Rows) -> list[object]:
    options = (codec.read_options({b"opts": raw or b"{}"}) for raw in rows.raw["opts"])
    return [max(1, whole(one.get("attempts"))) for one in options]


def _made(rows: _Rows) -> list[object]:
    pairs = zip(rows.raw["atm"], rows.raw["attemptsMade"], strict=True)
    return [_whole(new) or _whole(old) for new, old in pairs]


def _failure(what: str) -> Callable[[_Rows], list[object]]:
    def column(rows: _Rows) -> list[object]:
        if rows.state is State.COMPLETED:
            return rows.none()
        pairs = zip(rows.raw["failedReason"], rows.raw[codec.KIND], strict=True)
        return [_failure_part(what, reason, kind) for reason, kind in pairs]

    return column


def _failure_part(what: str, reason: bytes | None, kind: bytes | None) -> object:
    if reason is None:
        return None
    fields = {b"failedReason": reason} | ({} if kind is None else {codec.KIND.encode(): kind})
    return getattr(codec.read_failure(fields), what)


_COLUMNS: Final[Mapping[str, Callable[[_Rows], list[object]]]] = {
    "id": lambda rows: list(rows.ids),
    "name": lambda rows: [_text(one) or "" for one in rows.raw["name"]],
    "state": lambda rows: [rows.state.value] * len(rows.ids),
    "payload": lambda rows: [b"{}" if one is None else one for one in rows.raw["data"]],
    "priority": _numbers("priority"),
    "max_attempts": _max_attempts,
    "created_ms": _numbers("timestamp"),
    "due_ms": _due,
    "attempts_made": _made,
    "attempts_started": _numbers("ats"),
    "stalls": _numbers("stc"),
    "processed_ms": _times("processedOn"),
    "finished_ms": _times("finishedOn"),
    "worker_id": lambda rows: [_text(one) for one in rows.raw["pb"]],
    "progress": lambda rows: list(rows.raw["progress"]),
    "result": lambda rows: (
        list(rows.raw["returnvalue"]) if rows.state is State.COMPLETED else rows.none()
    ),
    "failure_kind": _failure("kind"),
    "failure_reason": _failure("reason"),
}
