"""Which answers of a storage count for whom."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from toril.clock import ManualClock
from toril.engine.waiter import Waiter
from toril.job import JobSpec
from toril.outcome import Completed, Failed, Failure, Outcome
from toril.storage.memory import MemoryStorage
from toril.storage.protocol import Claim, Ending, EndingKind


class SlowStorage(MemoryStorage):
    """Answers as it should, but the answers are long under way."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.arrived = asyncio.Event()
        self.calls = 0

    async def finished(self, queue: str, ids: Sequence[str], block_ms: int) -> Sequence[Ending]:
        self.calls += 1
        endings = await super().finished(queue, ids, block_ms)
        await self.arrived.wait()
        return endings


async def end(storage: MemoryStorage, token: str, outcome: type[Completed] | type[Failed]) -> None:
    claim = Claim(token=token, worker_id="w", count=1, lease_ms=30_000)
    (job,) = (await storage.claim("q", claim)).jobs
    ended: Outcome = Failed(lease=job.lease, failure=Failure(kind="E", reason="old"))
    if outcome is Completed:
        ended = Completed(lease=job.lease, result=b"1")
    await storage.settle("q", [ended])


async def test_an_answer_under_way_is_not_for_those_who_come_after_it_was_asked_for() -> None:
    clock = ManualClock()
    storage = SlowStorage(clock)
    await storage.open()
    waiter = Waiter(storage, "q", clock)
    await storage.enqueue("q", [JobSpec(id="a", origin="one")])
    await end(storage, "t1", Failed)
    first = asyncio.create_task(waiter.wait("a", None))
    await clock.settle()
    await storage.enqueue("q", [JobSpec(id="a", origin="two", requeue_failed=True)])
    second = asyncio.create_task(waiter.wait("a", None))
    await clock.settle()
    storage.arrived.set()
    await end(storage, "t2", Completed)
    before, after = await asyncio.gather(first, second)
    assert before is not None
    assert after is not None
    assert (before.kind, after.kind) == (EndingKind.FAILED, EndingKind.COMPLETED)
    await waiter.close()


async def test_callers_of_one_turn_share_a_call() -> None:
    clock = ManualClock()
    storage = SlowStorage(clock)
    await storage.open()
    storage.arrived.set()
    waiter = Waiter(storage, "q", clock)
    await storage.enqueue("q", [JobSpec(id=one, origin=one) for one in ("a", "b")])
    waiting = [asyncio.create_task(waiter.wait(one, None)) for one in ("a", "b", "a", "a")]
    await clock.settle()
    assert storage.calls == 1
    await end(storage, "t1", Completed)
    await end(storage, "t2", Completed)
    endings = await asyncio.gather(*waiting)
    assert [ending.id for ending in endings if ending] == ["a", "b", "a", "a"]
    await waiter.close()
