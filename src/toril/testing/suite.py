"""Collect the contract's checks and tell which of them apply to a storage."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count as count_from
from typing import Final, TypeVar

from toril.errors import StorageUnavailable, UnsupportedFeature
from toril.event import Cursor, Event, EventKind
from toril.ids import check_name
from toril.ids import token as new_token
from toril.job import DEFAULT_TERMS, JobRecord, JobSpec, State, Terms
from toril.outcome import Answer, Completed, Failed, Failure, Lease, Outcome
from toril.storage.protocol import (
    Batch,
    Claim,
    Claimed,
    Edits,
    Ending,
    Ends,
    Feature,
    Limits,
    Notes,
    Rate,
    Reaped,
    Receipt,
    Settlement,
    Storage,
)
from toril.testing.rig import Rig

LEASE_MS: Final = 30_000
REAP_MS: Final = 1_000
PATIENCE_S: Final = 5.0
"""Real seconds until a blocked call counts as stuck; a check that passes uses none of them."""

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


class Bench:
    """A rig with one queue and short words for what checks do all the time."""

    def __init__(self, rig: Rig, queue: str = "checks") -> None:
        self.rig = rig
        self.queue = queue
        self._origins = count_from(1)

    @property
    def storage(self) -> Storage:
        """The storage under test."""
        return self.rig.storage

    @property
    def notes(self) -> Notes:
        """The storage as its facet `Notes`."""
        storage = self.rig.storage
        assert isinstance(storage, Notes)
        return storage

    @property
    def edits(self) -> Edits:
        """The storage as its facet `Edits`."""
        storage = self.rig.storage
        assert isinstance(storage, Edits)
        return storage

    @property
    def ends(self) -> Ends:
        """The storage as its facet `Ends`."""
        storage = self.rig.storage
        assert isinstance(storage, Ends)
        return storage

    @property
    def limits(self) -> Limits:
        """The storage as its facet `Limits`."""
        storage = self.rig.storage
        assert isinstance(storage, Limits)
        return storage

    def spec(
        self,
        job_id: str,
        terms: Terms | None = None,
        *,
        name: str = "job",
        payload: bytes = b'{"n":1}',
        origin: str | None = None,
        reply: bool = False,
        requeue_failed: bool = False,
    ) -> JobSpec:
        """Describe a job; each call is a hand-in of its own."""
        return JobSpec(
            id=check_name("job", job_id),
            name=name,
            payload=payload,
            terms=terms or DEFAULT_TERMS,
            origin=origin or f"o{next(self._origins)}",
            reply=reply,
            requeue_failed=requeue_failed,
        )

    async def add(
        self,
        *ids: str,
        terms: Terms | None = None,
        name: str = "job",
        payload: bytes = b'{"n":1}',
        reply: bool = False,
        requeue_failed: bool = False,
    ) -> list[Receipt]:
        """Hand in jobs of the given ids."""
        specs = [
            self.spec(
                job_id,
                terms,
                name=name,
                payload=payload,
                reply=reply,
                requeue_failed=requeue_failed,
            )
            for job_id in ids
        ]
        return list(await self.storage.enqueue(self.queue, specs))

    def wish(
        self,
        count: int = 1,
        *,
        worker: str = "w1",
        token: str | None = None,
        lease_ms: int = LEASE_MS,
        rate: Rate | None = None,
    ) -> Claim:
        """Describe a claim, under a fresh token unless one is given."""
        return Claim(
            token=token or new_token(),
            worker_id=worker,
            count=count,
            lease_ms=lease_ms,
            rate=rate,
        )

    async def claim(
        self,
        count: int = 1,
        *,
        worker: str = "w1",
        token: str | None = None,
        lease_ms: int = LEASE_MS,
        rate: Rate | None = None,
    ) -> Batch:
        """Claim jobs."""
        wish = self.wish(count, worker=worker, token=token, lease_ms=lease_ms, rate=rate)
        return await self.storage.claim(self.queue, wish)

    async def take(self, *, worker: str = "w1") -> Claimed:
        """Claim exactly one job."""
        (job,) = (await self.claim(worker=worker)).jobs
        return job

    async def take_many(self, count: int, *, worker: str = "w1") -> list[Claimed]:
        """Claim `count` jobs, in as many calls as the storage wants; a claim may bring fewer."""
        jobs: list[Claimed] = []
        while len(jobs) < count:
            batch = await self.claim(count - len(jobs), worker=worker)
            assert batch.jobs, f"the line ended after {len(jobs)} of {count} jobs"
            jobs += batch.jobs
        return jobs

    async def order(self, count: int) -> list[str]:
        """Claim `count` jobs one by one and tell in which order they came."""
        return [(await self.take()).spec.id for _ in range(count)]

    async def run(self, *ids: str, terms: Terms | None = None, result: bytes = b'"ok"') -> None:
        """Hand in jobs and complete each in turn, in an otherwise empty queue."""
        for job_id in ids:
            await self.add(job_id, terms=terms)
            await self.complete(await self.take(), result)

    async def settle(self, *outcomes: Outcome, refill: Claim | None = None) -> Settlement:
        """Settle outcomes."""
        return await self.storage.settle(self.queue, outcomes, refill)

    async def complete(self, job: Claimed, result: bytes = b'"ok"') -> Settlement:
        """Complete one job."""
        return await self.settle(Completed(lease=job.lease, result=result))

    async def fail(self, job: Claimed, reason: str = "boom") -> Settlement:
        """Fail one job for good."""
        failure = Failure(kind="ValueError", reason=reason)
        return await self.settle(Failed(lease=job.lease, failure=failure))

    async def answer(self, outcome: Outcome) -> Answer:
        """Settle one outcome and read its answer."""
        (answer,) = (await self.settle(outcome)).answers
        return answer

    async def record(self, job_id: str) -> JobRecord | None:
        """Read one job."""
        (record,) = await self.storage.get(self.queue, [job_id])
        return record

    async def known(self, job_id: str) -> JobRecord:
        """Read one job that must be there."""
        record = await self.record(job_id)
        assert record is not None, f"job {job_id!r} is gone"
        return record

    async def state(self, job_id: str) -> State | None:
        """Read one job's state."""
        record = await self.record(job_id)
        return None if record is None else record.state

    async def ending(self, job_id: str, block_ms: int = 0) -> Ending:
        """Read the ending of one job that must have one."""
        (ending,) = await self.storage.finished(self.queue, [job_id], block_ms)
        return ending

    async def events(self, after: Cursor = Cursor.START) -> list[Event]:
        """Read all events after a cursor, page by page."""
        found: list[Event] = []
        while page := await self.storage.events(self.queue, after, limit=1000):
            found += page
            after = page[-1].cursor
        return found

    async def kinds(self) -> list[str]:
        """Read the kinds of all events so far."""
        return [str(event.kind) for event in await self.events()]

    async def told(self, kind: EventKind, after: Cursor = Cursor.START) -> list[str | None]:
        """Read the job ids of all events of one kind."""
        return [event.job_id for event in await self.events(after) if event.kind is kind]

    async def unheard(self, verb: str, call: Callable[[], Awaitable[object]]) -> None:
        """Make a call of the verb whose effect happens and whose reply is lost."""
        self.rig.lose_reply(verb)
        await error_of(StorageUnavailable, call)

    async def stall(self, lease: Lease, max_stalls: int = 1) -> Reaped:
        """Let a lease lapse and reap until the storage has noticed.

        Two passes: a storage may mark first and sweep later, as BullMQ does.
        """
        await self.rig.lapse(self.queue, lease)
        stalled: list[str] = []
        doomed: list[str] = []
        for _ in range(2):
            reaped = await self.storage.reap(self.queue, max_stalls, REAP_MS)
            stalled += reaped.stalled
            doomed += reaped.doomed
            await self.rig.advance(REAP_MS + 1)
        return Reaped(stalled=stalled, doomed=doomed)

    async def spawn(self, call: Callable[[], Awaitable[T]]) -> asyncio.Task[T]:
        """Start a call that may block, and let it come to rest."""

        async def run() -> T:
            return await call()

        task = asyncio.create_task(run())
        await self.rig.advance(1)
        return task


async def soon(task: asyncio.Task[T]) -> T:
    """Return what a call that must not block any longer returns."""
    return await asyncio.wait_for(task, PATIENCE_S)


async def error_of(kind: type[E], call: Callable[[], Awaitable[object]]) -> E:
    """Make a call that must raise, and return what it raised."""
    try:
        answer = await call()
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}, got the answer {answer!r}")


Check = Callable[[Bench], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractCheck:
    """One promise as code; `name` is the promise as a sentence."""

    name: str
    run: Check
    facet: type | None = None
    feature: Feature | None = None

    def why_not(self, storage: Storage) -> str | None:
        """Say why the check does not apply to the storage, None if it does."""
        if self.facet is not None and not isinstance(storage, self.facet):
            return f"{type(storage).__name__} has no {self.facet.__name__}"
        if self.feature is not None and self.feature not in storage.features:
            return f"{type(storage).__name__} lacks {self.feature}"
        return None


CHECKS: list[ContractCheck] = []


def check(*, facet: type | None = None, feature: Feature | None = None) -> Callable[[Check], Check]:
    """Enter a check into the suite under its function's name."""

    def enter(run: Check) -> Check:
        name = getattr(run, "__name__", "")
        CHECKS.append(ContractCheck(name=name, run=run, facet=facet, feature=feature))
        return run

    return enter


async def run_check(check: ContractCheck, rig: Rig) -> None:
    """Run one check over a fresh rig; raises `AssertionError` where the promise is broken.

    Raises `UnsupportedFeature` where the check does not apply; ask `why_not` first to skip it.
    """
    if not __debug__:
        raise RuntimeError("the checks are plain asserts; run them without python -O")
    why_not = check.why_not(rig.storage)
    if why_not is not None:
        raise UnsupportedFeature(f"check {check.name!r} does not apply: {why_not}")
    await check.run(Bench(rig))
