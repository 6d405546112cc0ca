"""Jobs checked and encoded, whose specs are made when they are looked at.

So the first of many are on their way, and the storage at work, before the last is made; and a
storage that writes columns needs no specs at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import SupportsIndex, TypeVar, overload

from toril.job import JobSpec, Terms
from toril.quick import new_spec

T = TypeVar("T")


class Drafts(Sequence[JobSpec]):
    """Specs in columns of equal length; a slice is as lazy as the whole."""

    __slots__ = ("_fresh", "_made", "_origins", "_requeue", "_terms", "ids", "names", "payloads")

    def __init__(
        self,
        ids: Sequence[str],
        names: Sequence[str],
        payloads: Sequence[bytes],
        terms: Sequence[Terms],
        origins: Sequence[str],
        fresh: Sequence[bool],
        requeue_failed: bool = False,
    ) -> None:
        self.ids = ids
        self.names = names
        self.payloads = payloads
        self._terms = terms
        self._origins = origins
        self._fresh = fresh
        self._requeue = requeue_failed
        self._made: list[JobSpec] | None = None

    def __repr__(self) -> str:
        return f"<Drafts of {len(self)} jobs>"

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[JobSpec]:
        if self._made is None:
            self._made = [self._spec(at) for at in range(len(self))]
        return iter(self._made)

    @overload
    def __getitem__(self, at: SupportsIndex) -> JobSpec: ...
    @overload
    def __getitem__(self, at: slice) -> Drafts: ...
    def __getitem__(self, at: SupportsIndex | slice) -> JobSpec | Drafts:
        if isinstance(at, slice):
            return Drafts(
                self.ids[at],
                self.names[at],
                self.payloads[at],
                self._terms[at],
                self._origins[at],
                self._fresh[at],
                self._requeue,
            )
        return self._spec(range(len(self))[at]) if self._made is None else self._made[at]

    def _spec(self, at: int) -> JobSpec:
        return new_spec(
            id=self.ids[at],
            name=self.names[at],
            payload=self.payloads[at],
            terms=self._terms[at],
            origin=self._origins[at],
            fresh=self._fresh[at],
            requeue_failed=self._requeue,
        )

    @property
    def alike(self) -> bool:
        """Whether they differ in nothing but id and payload."""
        columns = self.names, self._terms, self._origins, self._fresh
        return all(column.count(column[0]) == len(column) for column in columns)


class Described(Sequence[T]):
    """Values made when they are looked at: most callers of `add_bulk` look at none."""

    def __init__(self, count: int, describe: Callable[[int], T]) -> None:
        self._numbers = range(count)
        self._describe = describe
        self._made: dict[int, T] = {}

    def __repr__(self) -> str:
        return repr(list(self))

    def __len__(self) -> int:
        return len(self._numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # like a list

    @overload
    def __getitem__(self, at: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> T | Sequence[T]:
        if isinstance(at, slice):
            return [self[number] for number in self._numbers[at]]
        number = self._numbers[at]
        if number not in self._made:
            self._made[number] = self._describe(number)
        return self._made[number]
