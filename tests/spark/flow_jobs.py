"""Put jobs into a storage and look at them, for the tests of the flows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from toril.ids import token
from toril.job import JobRecord, JobSpec, State
from toril.outcome import Completed, Failed, Failure
from toril.storage import open_storage
from toril.storage.protocol import Claim, Counts, Storage

T = TypeVar("T")


def on(url: str, do: Callable[[Storage], Awaitable[T]]) -> T:
    """Do something with an open storage."""

    async def run() -> T:
        storage = open_storage(url)
        await storage.open()
        try:
            return await do(storage)
        finally:
            await storage.close()

    return asyncio.run(run())


def finish(
    url: str,
    queue: str,
    done: Mapping[str, bytes] | None = None,
    failed: Mapping[str, str] | None = None,
    payload: bytes = b'{"n":1}',
) -> None:
    """Let jobs complete with their results, and others fail for their reasons."""
    done, failed = done or {}, failed or {}

    async def run(storage: Storage) -> None:
        ids = [*done, *failed]
        await storage.enqueue(queue, [JobSpec(id=one, payload=payload, origin=one) for one in ids])
        while True:
            claim = Claim(token=token(), worker_id="w", count=500, lease_ms=60_000)
            jobs = (await storage.claim(queue, claim)).jobs
            if not jobs:
                return
            await storage.settle(
                queue,
                [
                    Completed(lease=job.lease, result=done[job.spec.id])
                    if job.spec.id in done
                    else Failed(
                        lease=job.lease,
                        failure=Failure(kind="Error", reason=failed[job.spec.id]),
                        exhausted=False,
                    )
                    for job in jobs
                ],
            )

    on(url, run)


def counts(url: str, queue: str) -> Counts:
    """Count the jobs of a queue."""
    return on(url, lambda storage: storage.counts(queue))


def records(url: str, queue: str, ids: Sequence[str]) -> Sequence[JobRecord | None]:
    """Read jobs."""
    return on(url, lambda storage: storage.get(queue, ids))


def states(url: str, queue: str, ids: Sequence[str]) -> list[State | None]:
    """Tell where jobs are; None for those that are gone."""
    return [None if one is None else one.state for one in records(url, queue, ids)]


def retry(url: str, queue: str, ids: Sequence[str]) -> None:
    """Put finished jobs back in line."""

    async def run(storage: Storage) -> None:
        from toril.storage.protocol import Edits

        assert isinstance(storage, Edits)
        assert all(await storage.revive(queue, ids))

    on(url, run)
