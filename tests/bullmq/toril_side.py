"""Play a scenario with toril's storage; the counterpart of `NodeSide`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack
from uuid import uuid4

from tests.bullmq.options import TermsGiven, terms_of
from tests.bullmq.sides import INTERVAL_MS, LEASE_MS, WORKER, Lab, New, json_text, stack_of
from toril import Queue
from toril.errors import PermanentError
from toril.job import JobSpec
from toril.outcome import DONE, Completed, Failed, Failure, Outcome, Postponed, Released, Retried
from toril.retry import Again, RetryPolicy
from toril.storage.protocol import (
    Batch,
    Claim,
    Claimed,
    Edits,
    Limits,
    Notes,
    Rate,
    Storage,
)
from toril.worker_options import Limiter


class TorilSide:
    """Drives the verbs of the contract, and `Queue` for what operators do."""

    def __init__(self, lab: Lab, storage: Storage) -> None:
        self.lab = lab
        self._storage = storage
        self._queue: Queue[Any, Any] = Queue(lab.name, storage)
        self._held: dict[str, tuple[str, Claimed, Claim]] = {}

    async def add(
        self, job_id: str, data: Any = None, name: str = "job", **terms: Unpack[TermsGiven]
    ) -> None:
        await self.add_many([New(job_id, data, name, terms)])

    async def add_many(self, jobs: Sequence[New]) -> None:
        specs = [
            JobSpec(
                id=job.id,
                name=job.name,
                payload=json_text(job.data),
                terms=terms_of(job.terms or {}),
                origin=str(uuid4()),
            )
            for job in jobs
        ]
        await self._storage.enqueue(self.lab.name, specs)

    # -- work ------------------------------------------------------------------------------

    async def claim(
        self,
        count: int = 1,
        *,
        rate: tuple[int, int] | None = None,
        worker: str | None = None,
        child: bool = False,
    ) -> list[str]:
        claim = Claim(
            token=str(uuid4()),
            worker_id=WORKER,
            count=count,
            lease_ms=LEASE_MS,
            rate=None if rate is None else Rate(max=rate[0], duration_ms=rate[1]),
            worker_name=worker,
        )
        where = self.lab.child_name if child else self.lab.name
        return self._take(where, await self._storage.claim(where, claim), claim)

    def _take(self, queue: str, batch: Batch, claim: Claim) -> list[str]:
        for claimed in batch.jobs:
            self._held[claimed.spec.id] = (queue, claimed, claim)
        return [claimed.spec.id for claimed in batch.jobs]

    async def _settle(self, job_id: str, outcome: Outcome, fetch: bool = False) -> list[str]:
        return await self._settle_many(job_id, [outcome], int(fetch))

    async def _settle_many(self, job_id: str, outcomes: list[Outcome], fetch: int) -> list[str]:
        queue, _, claim = self._held[job_id]
        refill = replace(claim, token=str(uuid4()), count=fetch) if fetch else None
        settled = await self._storage.settle(queue, outcomes, refill)
        assert list(settled.answers) == [DONE] * len(outcomes)
        return [] if refill is None else self._take(queue, settled.batch, refill)

    async def complete(self, job_id: str, value: Any = None, *, fetch: bool = False) -> list[str]:
        lease = self._held[job_id][1].lease
        return await self._settle(job_id, Completed(lease=lease, result=json_text(value)), fetch)

    async def complete_many(self, job_ids: Sequence[str], *, fetch: int = 0) -> list[str]:
        outcomes: list[Outcome] = [
            Completed(lease=self._held[job_id][1].lease, result=json_text(job_id))
            for job_id in job_ids
        ]
        return await self._settle_many(job_ids[0], outcomes, fetch)

    async def fail(
        self, job_id: str, reason: str = "no", *, for_good: bool = False, fetch: bool = False
    ) -> list[str]:
        claimed = self._held[job_id][1]
        terms, lease = claimed.spec.terms, claimed.lease
        if claimed.doom is not None:
            assert claimed.doom.reason == reason
        failure = Failure(kind="Error", reason=reason, stack=stack_of(reason))
        verdict = RetryPolicy().judge(
            PermanentError(reason) if for_good else RuntimeError(reason),
            attempt=lease.attempt,
            attempts=terms.attempts,
            backoff=terms.backoff,
            spread=0.5,
        )
        outcome: Outcome
        if isinstance(verdict, Again):
            outcome = Retried(lease=lease, failure=failure, delay_ms=verdict.delay_ms)
        else:
            outcome = Failed(lease=lease, failure=failure, exhausted=verdict.exhausted)
        return await self._settle(job_id, outcome, fetch)

    async def postpone(self, job_id: str, delay_ms: int) -> None:
        lease = self._held[job_id][1].lease
        await self._settle(job_id, Postponed(lease=lease, delay_ms=delay_ms))

    async def release(self, job_id: str) -> None:
        await self._settle(job_id, Released(lease=self._held[job_id][1].lease))

    async def progress(self, job_id: str, value: Any) -> None:
        assert isinstance(self._storage, Notes)
        queue, claimed, _ = self._held[job_id]
        assert await self._storage.progress(queue, [(claimed.lease, json_text(value))]) == [DONE]

    async def log(self, job_id: str, line: str) -> None:
        assert isinstance(self._storage, Notes)
        queue, claimed, _ = self._held[job_id]
        assert await self._storage.log(queue, [(claimed.lease, line)]) == [DONE]

    async def renew(self, job_id: str) -> None:
        queue, claimed, _ = self._held[job_id]
        renewal = await self._storage.renew(queue, [claimed.lease], LEASE_MS)
        assert not renewal.lost

    async def reap(self, max_stalls: int = 1) -> None:
        self.lab.forget_check()
        await self._storage.reap(self.lab.name, max_stalls, INTERVAL_MS)

    # -- tend ------------------------------------------------------------------------------

    async def pause(self) -> None:
        await self._queue.pause()

    async def resume(self) -> None:
        await self._queue.resume()

    async def drain(self, *, delayed: bool = False) -> None:
        await self._queue.drain(delayed=delayed)

    async def clean(self, state: str, limit: int = 1000) -> None:
        await self._queue.clean(0, limit, state)

    async def obliterate(self, *, force: bool = False) -> None:
        await self._queue.obliterate(force=force)

    async def remove(self, job_id: str) -> None:
        assert await self._queue.remove_job(job_id)

    async def promote(self, job_id: str) -> None:
        assert await self._queue.promote(job_id)

    async def retry(self, job_id: str, state: str = "failed") -> None:
        # Node lets the attempts made count on; `Queue.retry_job` does not.
        assert isinstance(self._storage, Edits)
        assert await self._storage.revive(self.lab.name, [job_id], reset_attempts=False) == [True]

    async def reprioritize(self, job_id: str, priority: int) -> None:
        assert await self._queue.change_priority(job_id, priority)

    async def reschedule(self, job_id: str, delay_ms: int) -> None:
        assert await self._queue.change_delay(job_id, delay_ms / 1000)

    async def update(self, job_id: str, data: Any) -> None:
        assert await self._queue.update_data(job_id, data)

    async def limit(
        self, *, concurrency: int | None = None, rate: tuple[int, int] | None = None
    ) -> None:
        assert isinstance(self._storage, Limits)
        limiter = None if rate is None else Limiter(rate[0], rate[1] / 1000)
        await self._queue.tune(concurrency=concurrency, limiter=limiter)

    async def close(self) -> None:
        """Let the storage go."""
        await self._queue.stop()
