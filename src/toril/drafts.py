"""Jobs checked and encoded, whose specs are made when they are looked at.

So the first of many are on their way, and the storage at work, before the last is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import SupportsIndex, overload

from toril.job import JobSpec, Terms
from toril.quick import new_spec


class Drafts(Sequence[JobSpec]):
    """Specs in columns of equal length; a slice is as lazy as the whole."""

    __slots__ = ("_fresh", "_ids", "_made", "_names", "_origins", "_payloads", "_terms")

    def __init__(
        self,
        ids: Sequence[str],
        names: Sequence[str],
        payloads: Sequence[bytes],
        terms: Sequence[Terms],
        origins: Sequence[str],
        fresh: Sequence[bool],
    ) -> None:
        self._ids = ids
        self._names = names
        self._payloads = payloads
        self._terms = terms
        self._origins = origins
        self._fresh = fresh
        self._made: list[JobSpec] | None = None

    def __repr__(self) -> str:
        return f"<Drafts of {len(self)} jobs>"

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[JobSpec]:
        return iter(self._specs())

    @overload
    def __getitem__(self, at: SupportsIndex) -> JobSpec: ...
    @overload
    def __getitem__(self, at: slice) -> Drafts: ...
    def __getitem__(self, at: SupportsIndex | slice) -> JobSpec | Drafts:
        if isinstance(at, slice):
            return Drafts(
                self._ids[at],
                self._names[at],
                self._payloads[at],
                self._terms[at],
                self._origins[at],
                self._fresh[at],
            )
        return self._specs()[at]

    def _specs(self) -> list[JobSpec]:
        if self._made is None:
            self._made = [
                new_spec(id=i, name=n, payload=p, terms=t, origin=o, fresh=f)
                for i, n, p, t, o, f in zip(
                    self._ids,
                    self._names,
                    self._payloads,
                    self._terms,
                    self._origins,
                    self._fresh,
                    strict=True,
                )
            ]
        return self._made
