"""One line of the Spark benchmark."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What was measured with Spark, what it is held against, and what it should reach."""

    name: str
    ours: float
    other: float | None
    unit: str
    target: str
    ratios: Sequence[float] = ()
    """Of each repetition, whose two sides were measured one right after the other."""

    @classmethod
    def of(
        cls, name: str, ours: Sequence[float], other: Sequence[float], unit: str, target: str = ""
    ) -> Self:
        """Tell the medians of repetitions, and how the two sides of each compare."""
        return cls(
            name=name,
            ours=statistics.median(ours),
            other=statistics.median(other),
            unit=unit,
            target=target,
            ratios=[one / another for one, another in zip(ours, other, strict=True)],
        )

    @property
    def ratio(self) -> float | None:
        """How many times the other: the median of the repetitions; None where there is no other."""
        if self.ratios:
            return statistics.median(self.ratios)
        return None if not self.other else self.ours / self.other

    @property
    def compared(self) -> str:
        """The ratio, with the smallest and the largest where there are several."""
        if self.ratio is None:
            return ""
        spread = f" ({min(self.ratios):.2f}–{max(self.ratios):.2f})" if self.ratios else ""
        return f"{self.ratio:.2f}{spread}"
