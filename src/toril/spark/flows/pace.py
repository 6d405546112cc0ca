"""Tell how far a flow is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

T = TypeVar("T")


class Report(Protocol):
    """Whoever wants to hear how far a flow is; called on the driver, often."""

    def __call__(self, done: int, total: int | None = None, note: str = "") -> None:
        """Hear that so many rows are done, of how many, and what else there is to say."""
        ...


def silent(done: int, total: int | None = None, note: str = "") -> None:
    """Hear nothing."""


def batches(rows: Iterable[T], size: int) -> Iterator[list[T]]:
    """Cut rows into lists of a size, reading no further than needed."""
    batch: list[T] = []
    for row in rows:
        batch.append(row)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
