"""Receipts of jobs that are all new and waiting, made when they are looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, SupportsIndex, overload

from toril.drafts import Drafts
from toril.job import JobSpec, State
from toril.storage.protocol import Receipt
from toril.storage.quick import new_receipt

_WAITING: Final = State.WAITING


class Created(Sequence[Receipt]):
    """A receipt for each id: most who hand in many jobs look at none."""

    __slots__ = ("ids",)

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = ids

    def __repr__(self) -> str:
        return f"<Created, {len(self)} jobs>"

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # like a list

    def __iter__(self) -> Iterator[Receipt]:
        for job_id in self.ids:
            yield new_receipt(id=job_id, created=True, state=_WAITING)

    @overload
    def __getitem__(self, at: SupportsIndex) -> Receipt: ...
    @overload
    def __getitem__(self, at: slice) -> Created: ...
    def __getitem__(self, at: SupportsIndex | slice) -> Receipt | Created:
        if isinstance(at, slice):
            return Created(self.ids[at])
        number = range(len(self.ids))[at]
        return new_receipt(id=self.ids[number], created=True, state=_WAITING)


def ids_of(jobs: Sequence[JobSpec]) -> Sequence[str]:
    """The ids of jobs, without making their specs if they are drafts."""
    return jobs.ids if isinstance(jobs, Drafts) else [spec.id for spec in jobs]


def join(parts: Sequence[Sequence[Receipt]]) -> Sequence[Receipt]:
    """Put receipts together; still none is made if all jobs are new."""
    if all(isinstance(part, Created) for part in parts):
        return Created(
            [job_id for part in parts if isinstance(part, Created) for job_id in part.ids]
        )
    return [receipt for part in parts for receipt in part]
