"""Give each check a fresh rig of every storage."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

if "toril.testing" not in sys.modules:
    pytest.register_assert_rewrite("toril.testing")  # a failed check shows its values

from toril.clock import ManualClock
from toril.storage.memory import MemoryStorage
from toril.testing import MemoryRig, Rig

OpenRig = Callable[[], AbstractAsyncContextManager[Rig]]


@asynccontextmanager
async def memory_rig() -> AsyncIterator[Rig]:
    """Open a memory storage on a manual clock."""
    clock = ManualClock()
    storage = MemoryStorage(clock=clock)
    await storage.open()
    try:
        yield MemoryRig(storage, clock)
    finally:
        await storage.close()


RIGS: dict[str, OpenRig] = {"memory": memory_rig}


@pytest.fixture(params=list(RIGS))
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    """A rig whose storage is open and holds nothing."""
    async with RIGS[request.param]() as opened:
        yield opened
