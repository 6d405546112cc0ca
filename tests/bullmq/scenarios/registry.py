"""Where scenarios register, by the name of their function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from tests.bullmq.sides import Side

Scenario = Callable[[Side], Awaitable[None]]

REGISTRY: Final[dict[str, Scenario]] = {}


def scenario(play: Scenario) -> Scenario:
    """Register a scenario."""
    name = getattr(play, "__name__", "")
    assert name not in REGISTRY, name
    REGISTRY[name] = play
    return play
