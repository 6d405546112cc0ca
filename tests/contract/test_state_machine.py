"""Run the state machine over the storages."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.contract.bullmq_rig import BullmqRig
from tests.contract.conftest import url_of
from tests.contract.file_rig import FileRig
from tests.contract.machine import StorageMachine
from tests.contract.machine.quiet import QuietRig
from tests.contract.redis_rig import RedisRig
from toril.clock import ManualClock
from toril.event import EventKind
from toril.ids import ulid
from toril.storage.file import FileStorage
from toril.storage.memory import MemoryStorage
from toril.testing.rig import Rig

T = TypeVar("T")


class MemoryMachine(StorageMachine):
    """The machine over a memory storage on a manual clock."""

    seen: ClassVar[Counter[str]] = Counter()

    @classmethod
    async def make_rig(cls) -> Rig:
        """Make an empty memory storage."""
        clock = ManualClock()
        storage = MemoryStorage(clock=clock)
        await storage.open()
        return QuietRig(storage, clock)


class RedisMachine(StorageMachine):
    """The machine over a lean storage on a real server."""

    seen: ClassVar[Counter[str]] = Counter()
    url: ClassVar[str] = ""

    @classmethod
    async def make_rig(cls) -> Rig:
        """Open a storage under a prefix of its own."""
        rig = RedisRig.on(cls.url)
        await rig.storage.open()
        return rig

    async def drop_rig(self) -> None:
        """Close the storage."""
        await self.rig.storage.close()


class FileMachine(StorageMachine):
    """The machine over a file storage in a directory of its own."""

    seen: ClassVar[Counter[str]] = Counter()
    root: ClassVar[Path] = Path()

    @classmethod
    async def make_rig(cls) -> Rig:
        """Open a storage in a new directory."""
        rig = FileRig(cls.root / ulid())
        await rig.storage.open()
        return rig

    async def drop_rig(self) -> None:
        """Close the storage and delete its directory."""
        storage = self.rig.storage
        assert isinstance(storage, FileStorage)
        await storage.close()
        shutil.rmtree(storage.address.directory)


class BullmqMachine(StorageMachine):
    """The machine over a BullMQ storage on a real server."""

    seen: ClassVar[Counter[str]] = Counter()
    url: ClassVar[str] = ""
    batch: ClassVar[bool] = True
    slack_ms: ClassVar[int] = 100
    looks_late: ClassVar[bool] = True
    # The wire tells a removal beside each cancellation, and a pause each time somebody asks for it.
    kinds: ClassVar[frozenset[EventKind]] = StorageMachine.kinds - {
        EventKind.REMOVED,
        EventKind.PAUSED,
        EventKind.RESUMED,
    }

    @classmethod
    async def make_rig(cls) -> Rig:
        """Open a storage under a prefix of its own."""
        rig = BullmqRig.on(cls.url, batch=cls.batch)
        await rig.storage.open()
        return rig

    def run(self, call: Callable[[], Awaitable[T]], lose: str = "") -> T:
        """Call the storage; real time that it takes must not age its keys."""
        assert isinstance(self.rig, BullmqRig)
        try:
            return super().run(call, lose)
        finally:
            self.rig.hold()

    async def drop_rig(self) -> None:
        """Close the storage."""
        assert isinstance(self.rig, BullmqRig)
        await self.rig.storage.close()
        self.rig.close()


# What each run must have met: a machine that idles proves nothing.
TROUBLE = frozenset(
    {"stalled", "doomed", "recovered", "expired", "requeued", "deduplicated", "replaced"}
    | {"settled stale", "settled again", "claim repeated late"}
    | {"Completed", "Failed", "Retried", "Postponed", "Released"}
    | {f"lost {verb}" for verb in ("enqueue", "claim", "settle", "renew", "cancel", "pause")}
)


def effort(share: float, *, shrink: bool = True) -> settings:
    """Set the machine to a share of the profile's examples."""
    phases = [phase for phase in settings().phases if shrink or phase is not Phase.shrink]
    return settings(
        phases=phases,
        max_examples=max(1, round(share * settings().max_examples)),
        stateful_step_count=50,
        suppress_health_check=list(HealthCheck),
    )


def explore(machine: type[StorageMachine], effort: settings) -> None:
    """Run the machine until it met all trouble; what one run meets is a matter of luck."""
    machine.seen.clear()
    for number in range(5):
        run_state_machine_as_test(seed(number)(machine), settings=effort)
        if set(machine.seen) >= TROUBLE:
            return
    assert set(machine.seen) >= TROUBLE


@pytest.mark.timeout(600)
def test_the_memory_storage_does_what_the_contract_says_step_by_step() -> None:
    explore(MemoryMachine, effort(3))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("server", ["valkey", "redis", "cluster"])
def test_the_redis_storage_does_what_the_contract_says_step_by_step(
    server: str, request: pytest.FixtureRequest
) -> None:
    RedisMachine.url = url_of(server, request)
    explore(RedisMachine, effort(200 / settings().max_examples, shrink=False))


@pytest.mark.timeout(600)
def test_the_file_storage_does_what_the_contract_says_step_by_step(tmp_path: Path) -> None:
    FileMachine.root = tmp_path
    explore(FileMachine, effort(200 / settings().max_examples, shrink=False))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("server", "examples"),
    [
        ("bullmq-valkey", 150),
        ("bullmq-official", 60),
        ("bullmq-redis", 40),
        ("bullmq-cluster", 40),
    ],
)
def test_the_bullmq_storage_does_what_the_contract_says_step_by_step(
    server: str, examples: int, request: pytest.FixtureRequest
) -> None:
    BullmqMachine.url = url_of(server, request)
    BullmqMachine.batch = server != "bullmq-official"
    chosen = effort(examples / settings().max_examples, shrink=False)
    if examples >= 150:
        explore(BullmqMachine, chosen)
    else:  # too few examples to meet everything; the longest run answers for the others
        run_state_machine_as_test(BullmqMachine, settings=chosen)
