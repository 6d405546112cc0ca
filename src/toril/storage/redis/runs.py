"""Take the runs of events out of a stream entry as the scripts packed them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from toril.storage.columns import SELDOM
from toril.storage.redis import codec
from toril.storage.runs import EventRuns

_NOTHING: Final = (None,) * len(SELDOM)
_PLACES: Final = {
    kind.value: tuple(SELDOM.index(name) if name else None for name in names)
    for kind, names in codec.FREE_FIELDS.items()
}
"""Which of the seldom columns the two free fields of an event are, by its kind."""


def append_entry(runs: EventRuns, entry: codec.Entry, after: int, stop: int) -> None:
    """Append the events of one entry that lie after one number and up to another."""
    first, time_ms, packed = entry
    for at in range(0, len(packed), 8):
        kinds, ids, *rest = packed[at : at + 8]
        if type(kinds) is not list:
            kinds, ids = [kinds], [ids or None]
        last = first + len(kinds) * len(ids) - 1
        alike = len(kinds) == 1 or rest[4] is rest[5] is False
        if alike and after < first and last <= stop:
            runs.append(first, kinds, ids, _shared(time_ms, kinds[0], rest))
        else:
            for number, kind, job_id in _apart(first, kinds, ids):
                if after < number <= stop:
                    runs.append(number, [kind], [job_id], _shared(time_ms, kind, rest))
        first = last + 1


def _apart(
    first: int, kinds: list[str], ids: list[str | None]
) -> Iterator[tuple[int, str, str | None]]:
    number = first
    for job_id in ids:
        for kind in kinds:
            yield number, kind, job_id
            number += 1


def _shared(time_ms: int, kind: str, rest: list[Any]) -> tuple[Any, ...]:
    attempt, name, worker, prev, x, y = rest
    own = (
        time_ms,
        None if attempt is False else attempt,
        name or None,
        codec.worker_of(worker),
        prev or None,
    )
    if kind not in _PLACES or (x is False and y is False):
        return own + _NOTHING
    free: list[Any] = list(_NOTHING)
    for place, value in zip(_PLACES[kind], (x, y), strict=True):
        if place is not None and value is not False:
            free[place] = value
    return (*own, *free)
