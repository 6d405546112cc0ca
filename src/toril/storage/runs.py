"""Events in runs: those that follow each other and differ in nothing but kind and job.

A storage that keeps them so hands them on without taking them apart, which costs more than all else
where millions of events become columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

from toril.event import Cursor
from toril.storage.columns import SELDOM, Bulk

SHARED: Final = (
    "time_ms",
    "attempt",
    "job_name",
    "worker_id",
    "prev",
    *SELDOM,
)
"""What the events of a run have in common, in this order; see `EventColumns`."""


class EventRuns:
    """Events in order: kinds and jobs, and by run what its events share."""

    def __init__(self) -> None:
        self.kinds: dict[str, int] = {}
        """Kinds and the codes they have here."""
        self.codes = bytearray()
        """The kind of each event."""
        self.width = 1
        """How many events in a row each of the jobs has."""
        self.job_ids: list[str | None] = []
        self.ends: list[int] = []
        """How many events there are up to the end of each run."""
        self.shared: list[tuple[Any, ...]] = []
        """Of each run: what is added to the place of an event, from 0, to give its number; then
        `SHARED`."""

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def last(self) -> int:
        """The number of the last event; there must be one."""
        number: int = self.shared[-1][0] + len(self.codes) - 1
        return number

    def append(
        self, first: int, kinds: Sequence[str], ids: Sequence[str | None], shared: tuple[Any, ...]
    ) -> None:
        """Append events, the first of which has a number; each job has one of each kind in turn."""
        run = (first - len(self.codes), *shared)
        self._put_jobs(len(kinds), ids)
        known = self.kinds
        self.codes += bytes([known.setdefault(one, len(known)) for one in kinds]) * len(ids)
        if self.shared and self.shared[-1] == run:
            self.ends[-1] = len(self.codes)
        else:
            self.ends.append(len(self.codes))
            self.shared.append(run)

    def _put_jobs(self, width: int, ids: Sequence[str | None]) -> None:
        if not self.job_ids:
            self.width = width
        elif width != self.width > 1:
            self.job_ids = _repeat(self.job_ids, self.width)
            self.width = 1
        self.job_ids += ids if width == self.width else _repeat(ids, width)

    def clear(self) -> None:
        """Forget them all."""
        for column in (self.codes, self.job_ids, self.ends, self.shared):
            column.clear()


def _repeat(ids: Sequence[str | None], width: int) -> list[str | None]:
    return [one for one in ids for _ in range(width)]


class ReadsRuns(Protocol):
    """A `Bulk` that can read events in runs."""

    def read_runs(
        self, queue: str, after: Cursor, until: Cursor | None, limit: int, into: EventRuns
    ) -> Cursor:
        """Append up to `limit` events, all or none, and tell the place to go on from.

        Raises `EventsTrimmed` like `Bulk.read_page`.
        """
        ...


def reads_runs(bulk: Bulk) -> ReadsRuns | None:
    """Ask a storage whether it can; one may stand for another, so its class does not tell."""
    return cast("ReadsRuns", bulk) if hasattr(bulk, "read_runs") else None
