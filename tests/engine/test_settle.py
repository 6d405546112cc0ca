"""How outcomes are committed, also when replies get lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.engine.conftest import Stage
from toril import (
    JobContext,
    JobFailed,
    ManualClock,
    MemoryStorage,
    Queue,
    State,
    StorageUnavailable,
    Worker,
)
from toril.outcome import Answer, AnswerKind, Completed, Lease, Outcome
from toril.storage.protocol import Batch, Claim, Renewal, Settlement
from toril.testing import lose_next_reply

Ctx = JobContext[object]


class Watched(MemoryStorage):
    """Remembers the size of each settle and claim; can hold settles back."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.settles: list[int] = []
        self.claims: list[int] = []
        self.gate: asyncio.Event | None = None
        self.refuse: str | None = None

    async def settle(
        self, queue: str, outcomes: Sequence[Outcome], refill: Claim | None = None
    ) -> Settlement:
        self.settles.append(len(outcomes))
        if self.gate is not None:
            await self.gate.wait()
        if self.refuse is not None and any(isinstance(one, Completed) for one in outcomes):
            answer = Answer(kind=AnswerKind.REFUSED, reason=self.refuse)
            return Settlement(answers=[answer for _ in outcomes])
        return await super().settle(queue, outcomes, refill)

    async def claim(self, queue: str, claim: Claim) -> Batch:
        self.claims.append(claim.count)
        return await super().claim(queue, claim)


class WatchedStage(Stage):
    def __init__(self) -> None:
        super().__init__()
        self.watched = Watched(self.clock)
        self.storage = self.watched
        self.queue = Queue("stage", self.watched)


@pytest.fixture
async def watched() -> WatchedStage:
    return WatchedStage()


async def echo(job: Ctx) -> object:
    return job.data


async def test_outcomes_of_one_turn_are_settled_together_and_bring_the_next_jobs(
    watched: WatchedStage,
) -> None:
    for number in range(100):
        await watched.queue.enqueue(f"j{number}", number)
    async with Worker(watched.queue, echo, concurrency=20):
        await watched.clock.settle(200)
    assert watched.watched.settles == [10] * 10
    assert watched.watched.claims[0] == 20
    assert (await watched.queue.get_job_counts()).completed == 100


async def test_one_job_alone_is_settled_without_waiting_for_company(
    watched: WatchedStage,
) -> None:
    async with Worker(watched.queue, echo, concurrency=50):
        await watched.queue.enqueue("j", 1)
        await watched.clock.settle(20)  # turns of the loop; the clock does not move
        assert await watched.state("j") is State.COMPLETED
    assert watched.watched.settles == [1]


async def test_outcomes_gather_while_two_settles_are_under_way(watched: WatchedStage) -> None:
    watched.watched.gate = asyncio.Event()
    for number in range(6):
        await watched.queue.enqueue(f"j{number}", number)
    gates = {f"j{number}": asyncio.Event() for number in range(6)}

    async def gated(job: Ctx) -> object:
        await gates[job.id].wait()
        return None

    async with Worker(watched.queue, gated, concurrency=6):
        await watched.clock.settle()
        for gate in gates.values():
            gate.set()
            await watched.clock.settle()
        assert watched.watched.settles == [1, 1]
        watched.watched.gate.set()
        await watched.clock.settle()
    assert watched.watched.settles == [1, 1, 4]


async def test_one_group_is_sent_before_the_jobs_of_the_next_reply_start(
    watched: WatchedStage,
) -> None:
    storage = watched.watched
    storage.gate = asyncio.Event()
    for number in range(64):
        await watched.queue.enqueue(f"j{number}", number)
    started = 0
    begun_by_then: list[int] = []

    async def counting(job: Ctx) -> object:
        nonlocal started
        started += 1
        if len(storage.settles) > len(begun_by_then):
            begun_by_then.append(started - 1)
        return None

    async with Worker(watched.queue, counting, concurrency=32):
        await watched.clock.settle()
        assert storage.settles == [16, 16]
        begun_by_then += [32, 32]
        storage.gate.set()  # two replies at once
        await watched.clock.settle(200)
    assert begun_by_then == [32, 32, 48]
    assert storage.settles == [16] * 4


async def test_a_large_hand_is_settled_in_groups_that_do_not_grow_with_it(
    watched: WatchedStage,
) -> None:
    watched.watched.gate = asyncio.Event()
    for number in range(500):
        await watched.queue.enqueue(f"j{number}", number)
    async with Worker(watched.queue, echo, concurrency=500):
        await watched.clock.settle(200)
        assert watched.watched.settles == [50] * 4
        watched.watched.gate.set()
        await watched.clock.settle(400)
    assert watched.watched.settles == [50] * 10


async def test_handlers_that_waited_are_settled_in_smaller_groups(watched: WatchedStage) -> None:
    over = asyncio.Event()

    async def wait(job: Ctx) -> object:
        await over.wait()
        return job.data

    for number in range(200):
        await watched.queue.enqueue(f"j{number}", number)
    async with Worker(watched.queue, wait, concurrency=200):
        await watched.clock.advance(0.1)
        over.set()
        await watched.clock.settle(200)
    assert watched.watched.settles == [25] * 8


@pytest.mark.parametrize(("concurrency", "group"), [(32, 8), (96, 12), (500, 25)])
async def test_of_handlers_that_waited_two_groups_are_settled_at_once(
    watched: WatchedStage, concurrency: int, group: int
) -> None:
    watched.watched.gate = asyncio.Event()
    over = asyncio.Event()

    async def wait(_job: Ctx) -> object:
        await over.wait()
        return None

    for number in range(concurrency):
        await watched.queue.enqueue(f"j{number}", number)
    async with Worker(watched.queue, wait, concurrency=concurrency):
        await watched.clock.advance(0.1)
        over.set()
        await watched.clock.settle(200)
        under_way = list(watched.watched.settles)
        watched.watched.gate.set()
        await watched.clock.settle(400)
    assert under_way == [group] * 2
    assert watched.watched.settles == [group] * (concurrency // group)


class Distant(Watched):
    """Takes a turn of the loop to hear of a claim, and one to answer."""

    async def claim(self, queue: str, claim: Claim) -> Batch:
        await asyncio.sleep(0)
        batch = await super().claim(queue, claim)
        await asyncio.sleep(0)
        return batch


async def test_the_first_jobs_of_a_large_hand_begin_while_the_next_are_claimed() -> None:
    clock = ManualClock()
    storage = Distant(clock)
    queue: Queue[object, object] = Queue("q", storage)
    claims, over = storage.claims, asyncio.Event()
    begun_after: list[int] = []

    async def wait(_job: Ctx) -> object:
        begun_after.append(len(claims))
        await over.wait()
        return None

    ids = [f"j{number}" for number in range(250)]
    for job_id in ids:
        await queue.enqueue(job_id, None)
    async with queue, Worker(queue, wait, concurrency=250) as worker:
        await clock.settle(50)
        active = worker.active
        over.set()
        await clock.settle(50)
    assert active == 250
    assert claims[:3] == [100, 100, 50]
    assert begun_after[0] < 3


@pytest.mark.parametrize("verb", ["settle", "claim"])
async def test_a_lost_reply_costs_no_job_a_run_or_a_stall(stage: Stage, verb: str) -> None:
    runs: list[str] = []

    async def handler(job: Ctx) -> object:
        runs.append(job.id)
        return None

    completed: list[str] = []
    worker = Worker(stage.queue, handler, concurrency=2)
    worker.on("completed")(lambda job, _result: completed.append(job.id))
    ids = [f"j{number}" for number in range(6)]
    for job_id in ids:
        await stage.queue.enqueue(job_id, None)
    async with worker:
        lose_next_reply(stage.storage, verb)
        await stage.advance(5)
    assert sorted(runs) == ids
    assert sorted(completed) == ids
    for job_id in ids:
        job = await stage.queue.get_job(job_id)
        assert job is not None
        assert (job.state, job.stalls, job.attempts_started) == (State.COMPLETED, 0, 1)


async def test_a_lost_reply_to_the_settle_of_a_job_that_is_not_kept_still_counts_as_done(
    stage: Stage,
) -> None:
    completed: list[str] = []
    worker = Worker(stage.queue, echo)
    worker.on("completed")(lambda job, _result: completed.append(job.id))
    await stage.queue.enqueue("j", None, keep_completed=False)
    async with worker:
        lose_next_reply(stage.storage, "settle")
        await stage.advance(5)
    assert completed == ["j"]


async def test_a_refused_completion_becomes_a_failed_attempt(watched: WatchedStage) -> None:
    watched.watched.refuse = "pending children"
    async with Worker(watched.queue, echo):
        with pytest.raises(JobFailed, match="pending children"):
            await watched.queue.enqueue_and_wait("j", None)


class Particular(MemoryStorage):
    """Refuses the completion of one job, and answers for the others with values of its own."""

    async def settle(
        self, queue: str, outcomes: Sequence[Outcome], refill: Claim | None = None
    ) -> Settlement:
        refused = [isinstance(one, Completed) and one.lease.job_id == "b" for one in outcomes]
        others = [one for one, no in zip(outcomes, refused, strict=True) if not no]
        settled = await super().settle(queue, others, refill)
        rest = iter(settled.answers)
        answers = [
            Answer(kind=AnswerKind.REFUSED, reason="no room")
            if no
            else Answer(kind=next(rest).kind)
            for no in refused
        ]
        return Settlement(answers=answers, batch=settled.batch)


@pytest.mark.parametrize("heard", [True, False], ids=["with a hook", "without"])
@pytest.mark.parametrize("storage", [MemoryStorage, Particular])
async def test_each_job_of_a_group_has_the_end_the_storage_says_whoever_listens(
    storage: type[MemoryStorage], heard: bool
) -> None:
    clock, told = ManualClock(), list[str]()
    queue = Queue[object, object]("stage", storage(clock=clock))
    worker = Worker(queue, echo, concurrency=3)
    if heard:
        worker.on("completed")(lambda job, _result: told.append(job.id))
    await queue.start()
    for job_id in ("a", "b", "c"):
        await queue.enqueue(job_id, None)
    async with worker:
        await clock.settle(200)
        assert worker.active == 0
    fine = storage is MemoryStorage
    records = await queue.storage.get("stage", ["a", "b", "c"])
    ends = [None if record is None else record.state for record in records]
    assert ends == [State.COMPLETED, State.COMPLETED if fine else State.FAILED, State.COMPLETED]
    assert (worker.tally.completed, worker.tally.failed) == ((3, 0) if fine else (2, 1))
    assert told == [job_id for job_id in "abc" if heard and (fine or job_id != "b")]
    await queue.stop()


async def test_a_job_removed_while_it_runs_is_dropped_quietly(stage: Stage) -> None:
    gate = asyncio.Event()

    async def handler(_job: Ctx) -> object:
        await gate.wait()
        return None

    heard: list[str] = []
    worker = Worker(stage.queue, handler)
    worker.on("completed")(lambda job, _result: heard.append(job.id))
    await stage.queue.enqueue("j", None)
    async with worker:
        await stage.clock.settle()
        await stage.queue.obliterate(force=True)
        gate.set()
        await stage.clock.settle()
        assert worker.active == 0
        assert await stage.queue.enqueue_and_wait("next", None) is None
    assert heard == ["next"]


class Frozen(MemoryStorage):
    """Hears nothing from the workers named in `frozen`."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.frozen: set[str] = set()

    async def renew(self, queue: str, leases: Sequence[Lease], lease_ms: int) -> Renewal:
        owners = {self._queue(queue).jobs[lease.job_id].worker_id for lease in leases}
        if owners & self.frozen:
            raise StorageUnavailable("frozen")
        return await super().renew(queue, leases, lease_ms)


async def test_a_zombie_cannot_overwrite_the_result_of_the_second_run() -> None:
    clock = ManualClock()
    storage = Frozen(clock)
    queue: Queue[object, object] = Queue("frozen", storage)
    gates = {"zombie": asyncio.Event(), "heir": asyncio.Event()}
    lost: dict[str, bool] = {}

    async def handler(job: Ctx) -> object:
        await gates[job.worker_id].wait()
        lost[job.worker_id] = job.lost
        return job.worker_id

    await queue.enqueue("j", None)
    async with Worker(queue, handler, lease=5, reap_interval=1, worker_id="zombie"):
        await clock.settle()
        storage.frozen = {"zombie"}
        async with Worker(queue, handler, lease=5, reap_interval=1, worker_id="heir"):
            await clock.advance(7)
            job = await queue.get_job("j")
            assert job is not None
            assert (job.state, job.worker_id, job.stalls) == (State.ACTIVE, "heir", 1)
            gates["heir"].set()
            await clock.settle()
            assert await queue.get_result("j") == "heir"
            gates["zombie"].set()
            await clock.settle()
    job = await queue.get_job("j")
    assert job is not None
    assert (job.result, job.attempts_made, job.attempts_started) == ("heir", 1, 2)
    assert lost["heir"] is False
    await queue.stop()
