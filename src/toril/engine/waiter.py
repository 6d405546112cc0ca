"""Let many callers wait for results through few calls to the storage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from toril.clock import Clock
from toril.errors import StorageError
from toril.storage.protocol import Ending, Storage

_GROUP: Final = 64
_BLOCK_MS: Final = 5_000
_RETRY_S: Final = 0.25


class Waiter:
    """Gathers the ids that callers wait for and follows them in groups.

    Ids that come in the same turn of the loop share a call, and everybody who waits for one
    id shares its answer.
    """

    def __init__(self, storage: Storage, queue: str, clock: Clock) -> None:
        self._storage = storage
        self._queue = queue
        self._clock = clock
        self._futures: dict[str, asyncio.Future[Ending]] = {}
        self._watchers: dict[str, int] = {}
        self._new: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def watch(self, job_id: str) -> asyncio.Future[Ending]:
        """Return the shared future of a job's ending; pair with `unwatch`."""
        self._watchers[job_id] = self._watchers.get(job_id, 0) + 1
        future = self._futures.get(job_id)
        # A future that is done belongs to an earlier run of the id.
        if future is None or future.done():
            loop = asyncio.get_running_loop()
            future = self._futures[job_id] = loop.create_future()
            if not self._new:
                loop.call_soon(self._follow_new)
            self._new.append(job_id)
        return future

    def unwatch(self, job_id: str) -> None:
        """Stop waiting; the last one to go forgets the job."""
        self._watchers[job_id] -= 1
        if not self._watchers[job_id]:
            del self._watchers[job_id]
            self._futures.pop(job_id, None)

    async def close(self) -> None:
        """Stop following; those who still wait are cancelled."""
        for future in self._futures.values():
            future.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _follow_new(self) -> None:
        ids, self._new = self._new, []
        for first in range(0, len(ids), _GROUP):
            task = asyncio.create_task(self._follow(ids[first : first + _GROUP]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _follow(self, ids: Sequence[str]) -> None:
        """Ask for a group of jobs until each has ended or nobody waits for it."""
        while waiting := [job_id for job_id in ids if self._open(job_id)]:
            try:
                endings = await self._storage.finished(self._queue, waiting, _BLOCK_MS)
            except StorageError:
                # The callers have time limits of their own; go on asking until then.
                await self._clock.sleep(_RETRY_S)
                continue
            for ending in endings:
                future = self._futures.get(ending.id)
                if future is not None and not future.done():
                    future.set_result(ending)

    def _open(self, job_id: str) -> bool:
        future = self._futures.get(job_id)
        return future is not None and not future.done()
