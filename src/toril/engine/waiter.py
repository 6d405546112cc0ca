"""Let many callers wait for results through few calls to the storage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from toril.clock import Clock
from toril.errors import StorageClosed, StorageError
from toril.storage.protocol import Ending, Storage

_GROUP: Final = 64
_BLOCK_MS: Final = 5_000
_RETRY_S: Final = 0.25

Watch = asyncio.Future[Ending | None]


class Waiter:
    """Gathers the ids that callers wait for and follows them in groups.

    Ids that come in the same turn of the loop share a call, and everybody who waits for one
    id shares its answer.
    """

    def __init__(self, storage: Storage, queue: str, clock: Clock) -> None:
        self._storage = storage
        self._queue = queue
        self._clock = clock
        self._watchers: dict[str, set[Watch]] = {}
        self._new: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def wait(self, job_id: str, seconds: float | None) -> Ending | None:
        """Give a job's ending, None when the time is up; raises StorageClosed after `close`."""
        loop = asyncio.get_running_loop()
        future: Watch = loop.create_future()
        watchers = self._watchers.get(job_id)
        if watchers is None:
            self._watchers[job_id] = {future}
            if not self._new:
                loop.call_soon(self._follow_new)
            self._new.append(job_id)
        else:
            watchers.add(future)
        timer = None
        if seconds is not None:
            timer = self._clock.call_later(max(seconds, 0), lambda: _tell(future, None))
        try:
            return await future
        finally:
            if timer is not None:
                timer.cancel()
            self._leave(job_id, future)

    async def close(self) -> None:
        """Stop following; those who still wait are told so."""
        for job_id, watchers in self._watchers.items():
            text = f"queue {self._queue!r} was stopped while job {job_id!r} was waited for"
            for future in watchers:
                if not future.done():
                    future.set_exception(StorageClosed(f"{text}; the job goes on"))
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _leave(self, job_id: str, future: Watch) -> None:
        """The last one to go forgets the job."""
        watchers = self._watchers.get(job_id)
        if watchers is not None:
            watchers.discard(future)
            if not watchers:
                del self._watchers[job_id]

    def _follow_new(self) -> None:
        ids, self._new = self._new, []
        for first in range(0, len(ids), _GROUP):
            task = asyncio.create_task(self._follow(ids[first : first + _GROUP]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _follow(self, ids: Sequence[str]) -> None:
        """Ask for a group of jobs until each has ended or nobody waits for it."""
        while waiting := [job_id for job_id in ids if job_id in self._watchers]:
            try:
                endings = await self._storage.finished(self._queue, waiting, _BLOCK_MS)
            except StorageError:
                # The callers have time limits of their own; go on asking until then.
                await self._clock.sleep(_RETRY_S)
                continue
            for ending in endings:
                # Whoever comes after this asks about a later run of the id.
                for future in self._watchers.pop(ending.id, ()):
                    _tell(future, ending)


def _tell(future: Watch, ending: Ending | None) -> None:
    if not future.done():
        future.set_result(ending)
