"""Scenarios both sides play: what they leave behind must be the same."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from tests.bullmq.scenarios.registry import ANY_ORDER, REGISTRY, Scenario

__all__ = ["ANY_ORDER", "SCENARIOS", "Scenario"]

_MODULES: Final = (
    "adding", "dedup", "working", "batching", "retrying", "notes", "keeping", "pausing",
    "tending", "editing", "stalling", "limiting", "flowing", "scheduling", "values",
)  # fmt: skip

for _module in _MODULES:
    import_module(f"tests.bullmq.scenarios.{_module}")

SCENARIOS: Final[dict[str, Scenario]] = dict(REGISTRY)
