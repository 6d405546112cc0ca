"""Run the state machine over the storages."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.contract.machine import StorageMachine
from toril.clock import ManualClock
from toril.storage.memory import MemoryStorage
from toril.testing.rig import MemoryRig, Rig


class MemoryMachine(StorageMachine):
    """The machine over a memory storage on a manual clock."""

    seen: ClassVar[Counter[str]] = Counter()

    @classmethod
    async def make_rig(cls) -> Rig:
        """Make an empty memory storage."""
        clock = ManualClock()
        storage = MemoryStorage(clock=clock)
        await storage.open()
        return MemoryRig(storage, clock)


# What each run must have met: a machine that idles proves nothing.
TROUBLE = frozenset(
    {"stalled", "doomed", "recovered", "expired", "requeued", "deduplicated"}
    | {"settled stale", "settled again", "claim repeated late"}
    | {"Completed", "Failed", "Retried", "Postponed", "Released"}
    | {f"lost {verb}" for verb in ("enqueue", "claim", "settle", "renew", "cancel", "pause")}
)


def test_the_memory_storage_does_what_the_contract_says_step_by_step() -> None:
    effort = settings(
        max_examples=3 * settings().max_examples,
        stateful_step_count=50,
        suppress_health_check=list(HealthCheck),
    )
    MemoryMachine.seen.clear()
    run_state_machine_as_test(MemoryMachine, settings=effort)
    assert set(MemoryMachine.seen) >= TROUBLE
