"""Play a scenario on one side and dump what it leaves."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.bullmq.dump import Dump, Dumper
from tests.bullmq.peer import Agent
from tests.bullmq.scenarios import SCENARIOS
from tests.bullmq.sides import Lab, NodeSide, Side
from tests.bullmq.toril_side import TorilSide
from toril.ids import ulid
from toril.storage.bullmq import BullmqStorage


async def play(
    name: str, make: Callable[[Lab], Side], agent: Agent, port: int, prefix: str
) -> Dump:
    """Play a scenario on a queue of its own; show every key it left."""
    lab = Lab(agent, port, f"golden-{ulid()}", prefix)
    # A little before the first step, so that clocks that differ by milliseconds do not matter.
    dumper = Dumper(port, int(time.time() * 1000) - 2000)
    side = make(lab)
    try:
        await SCENARIOS[name](side)
        return dumper.dump(lab.queue, lab.child_queue, prefix=prefix)
    finally:
        await side.close()
        dumper.close()
        lab.close()


async def play_on_node(name: str, agent: Agent, port: int, prefix: str = "bull") -> Dump:
    """Play a scenario with Node's classes."""
    return await play(name, NodeSide, agent, port, prefix)


async def play_on_toril(
    name: str, agent: Agent, port: int, prefix: str = "bull", *, batch: bool
) -> Dump:
    """Play a scenario with toril, with its batch scripts or with the official ones alone."""
    storage = BullmqStorage(f"bullmq+redis://127.0.0.1:{port}?prefix={prefix}", batch=batch)
    await storage.open()
    try:
        return await play(name, lambda lab: TorilSide(lab, storage), agent, port, prefix)
    finally:
        await storage.close()
