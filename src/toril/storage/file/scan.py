"""Jobs of a file storage as columns, without an object for each."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from toril.errors import SerdeError
from toril.job import DEFAULT_TERMS, State, Terms
from toril.storage.columns import Columns, Slice
from toril.storage.file.codec import NUMBERS, unpack_failure, unpack_terms

Rows = Sequence[tuple[Any, ...]]

_MOST: Final = 1000

_SQL: Final[Mapping[str, str]] = {
    "payload": "(SELECT body FROM payloads WHERE payloads.n = jobs.n)",
    "priority": "terms",
    "max_attempts": "terms",
    "attempts_made": "made",
    "attempts_started": "started",
    "failure_kind": "failure",
    "failure_reason": "failure",
}
"""Where a column lies, if not under its own name."""


def cut_state(
    db: sqlite3.Connection, queue: int, state: State, parts: int, times: tuple[int, int]
) -> list[Slice]:
    """Cut a state by the numbers of its jobs, which never change."""
    first, last, count = db.execute(
        "SELECT min(n), max(n), count(*) FROM jobs WHERE queue = ? AND state = ?"
        " AND coalesce(finished_ms, 0) >= ? AND coalesce(finished_ms, 0) < ?",
        (queue, NUMBERS[state], *times),
    ).fetchone()
    if not count:
        return []
    parts = min(parts, count)
    places = [first + (last + 1 - first) * part // parts for part in range(parts)]
    highs = [*places[1:], last + 1]
    return [
        Slice(state=state, low=f"{low}:{times[0]}", high=f"{high}:{times[1]}", count=count // parts)
        for low, high in zip(places, highs, strict=True)
    ]


def scan(
    look: Callable[[Callable[[sqlite3.Connection, int, int], Rows]], Rows],
    share: Slice,
    columns: Collection[str],
) -> Iterator[Columns]:
    """Read a slice; `look` gives the database, the key of the queue and the time."""
    low, since = map(int, share.low.split(":"))
    high, until = map(int, share.high.split(":"))
    sources = ", ".join(_SQL.get(name, name) for name in columns)
    # The number of the job is the order: without an index, the table lies in it.
    query = (
        f"SELECT n{', ' * bool(columns)}{sources} FROM jobs NOT INDEXED"
        " WHERE n >= ? AND n < ? AND queue = ? AND state = ?"
        " AND (expires_ms IS NULL OR expires_ms > ?)"
        " AND coalesce(finished_ms, 0) >= ? AND coalesce(finished_ms, 0) < ?"
        f" ORDER BY n LIMIT {_MOST}"
    )
    while True:
        first = low

        def read(db: sqlite3.Connection, key: int, now: int, first: int = first) -> Rows:
            bounds = (first, high, key, NUMBERS[share.state], now, since, until)
            return db.execute(query, bounds).fetchall()

        rows = look(read)
        if rows:
            numbers, *values = zip(*rows, strict=True)
            found = zip(columns, values, strict=True)
            yield {name: _column(name, share.state, column) for name, column in found}
            low = numbers[-1] + 1
        if len(rows) < _MOST:
            return


def _column(name: str, state: State, values: Sequence[Any]) -> list[object]:
    match name:
        case "state":
            return [state.value] * len(values)
        case "payload":
            return [value or b"" for value in values]
        case "priority":
            return [_terms(value).priority for value in values]
        case "max_attempts":
            return [_terms(value).attempts for value in values]
        case "failure_kind" | "failure_reason":
            failures = [unpack_failure(value) for value in values]
            part = name.removeprefix("failure_")
            return [failure and getattr(failure, part) for failure in failures]
    return list(values)


def _terms(text: str) -> Terms:
    try:
        return unpack_terms(text)
    except SerdeError:
        return DEFAULT_TERMS
