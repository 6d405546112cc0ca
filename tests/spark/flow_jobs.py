"""Put jobs into a storage and look at them, for the tests of the flows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from toril.context import JobContext
from toril.errors import PermanentError
from toril.ids import token
from toril.job import JobRecord, JobSpec, State
from toril.outcome import Completed, Failed, Failure, Lease, Outcome
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
    ids = [*done, *failed]
    specs = [JobSpec(id=one, payload=payload, origin=one) for one in ids]
    on(url, lambda storage: storage.enqueue(queue, specs))
    take_all(url, queue, done.get, failed)


def take_all(
    url: str,
    queue: str,
    result: Callable[[str], bytes | None],
    reasons: Mapping[str, str] | None = None,
) -> None:
    """Work all jobs: each has a result, or else fails."""
    told = reasons or {}

    def end(lease: Lease) -> Outcome:
        found = result(lease.job_id)
        if found is not None:
            return Completed(lease=lease, result=found)
        failure = Failure(kind="Error", reason=told.get(lease.job_id, "no"))
        return Failed(lease=lease, failure=failure, exhausted=False)

    async def run(storage: Storage) -> None:
        while True:
            claim = Claim(token=token(), worker_id="w", count=500, lease_ms=60_000)
            jobs = (await storage.claim(queue, claim)).jobs
            if not jobs:
                return
            await storage.settle(queue, [end(job.lease) for job in jobs])

    on(url, run)


def known(url: str, queue: str, ids: Sequence[str]) -> list[JobRecord]:
    """Read jobs that are there."""
    return [one for one in records(url, queue, ids) if one is not None]


def counts(url: str, queue: str) -> Counts:
    """Count the jobs of a queue."""
    return on(url, lambda storage: storage.counts(queue))


def records(url: str, queue: str, ids: Sequence[str]) -> Sequence[JobRecord | None]:
    """Read jobs."""
    return on(url, lambda storage: storage.get(queue, ids))


def peek(url: str, queue: str, count: int) -> Sequence[JobRecord]:
    """Read some completed jobs."""
    return on(url, lambda storage: storage.peek(queue, State.COMPLETED, 0, count))


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


def greet(job: JobContext[dict[str, str]]) -> str:
    """Greet everybody but Bob: a handler to be named on a command line."""
    if job.data["name"] == "bob":
        raise PermanentError("not Bob")
    return f"hello {job.data['name']}"
