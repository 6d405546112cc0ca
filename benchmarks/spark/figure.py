"""One line of the Spark benchmark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What was measured with Spark, what it is held against, and what it should reach."""

    name: str
    ours: float
    other: float | None
    unit: str
    target: str

    @property
    def ratio(self) -> float | None:
        """How many times the other; None where there is no other."""
        return None if not self.other else self.ours / self.other
