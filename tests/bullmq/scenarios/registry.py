"""Where scenarios register, by the name of their function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from tests.bullmq.sides import Side

Scenario = Callable[[Side], Awaitable[None]]

REGISTRY: Final[dict[str, Scenario]] = {}
ANY_ORDER: Final[set[str]] = set()
"""Scenarios that do several things in one call, whose events may come in another order."""


def scenario(play: Scenario) -> Scenario:
    """Register a scenario."""
    name = getattr(play, "__name__", "")
    assert name not in REGISTRY, name
    REGISTRY[name] = play
    return play


def scenario_in_any_order(play: Scenario) -> Scenario:
    """Register a scenario whose events may be told in another order, but all of them."""
    ANY_ORDER.add(getattr(play, "__name__", ""))
    return scenario(play)
