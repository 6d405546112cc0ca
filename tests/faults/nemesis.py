"""Do harm on a schedule that a number brings back."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable

from tests.faults.history import History

Harm = Callable[[random.Random], Awaitable[None] | None]


def pick_seed(default: int = 1) -> int:
    """The seed of this run: TORIL_FAULT_SEED, "random" for a fresh one, or the test's own."""
    given = os.environ.get("TORIL_FAULT_SEED", "")
    if given == "random":
        return random.SystemRandom().randrange(10**9)
    return int(given) if given else default


class Nemesis:
    """Picks harms and pauses from one seeded source; writes each into the history."""

    def __init__(self, history: History, seed: int, harms: dict[str, Harm]) -> None:
        self.seed = seed
        self._history = history
        self._harms = harms
        self._random = random.Random(seed)
        print(f"nemesis: replay with TORIL_FAULT_SEED={seed}")  # pytest shows it on failure

    def schedule(self, faults: int, gap: tuple[float, float]) -> list[tuple[float, str]]:
        """Name what will be done, and after which pauses."""
        names = sorted(self._harms)
        return [(self._random.uniform(*gap), self._random.choice(names)) for _ in range(faults)]

    async def run(self, faults: int, gap: tuple[float, float] = (0.1, 0.4)) -> None:
        """Do `faults` harms, with pauses between them."""
        self._history.write("fault", "info", seed=self.seed, faults=faults)
        for pause, name in self.schedule(faults, gap):
            await asyncio.sleep(pause)
            self._history.write("fault", "invoke", name=name)
            done = self._harms[name](self._random)
            if done is not None:
                await done
            self._history.write("fault", "ok", name=name)
