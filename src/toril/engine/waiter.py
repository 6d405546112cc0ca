"""Let many callers wait for results through few calls to the storage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from toril.clock import Clock
from toril.errors import StorageClosed, StorageError
from toril.storage.protocol import Ending, Hears, Storage

_GROUP: Final = 64
_BLOCK_MS: Final = 5_000
_RETRY_S: Final = 0.25

Watch = asyncio.Future[Ending | None]
Group = dict[str, list[Watch]]


class Waiter:
    """Gathers the ids that callers wait for and follows them in groups.

    Where the storage tells of the end of a job handed in just now by itself, nobody asks for it.
    Ids that come in the same turn of the loop share a call. Whoever comes later asks anew, also
    for an id that is followed already: an answer that is under way may tell of an earlier run.
    """

    def __init__(self, storage: Storage, queue: str, clock: Clock) -> None:
        self._storage = storage
        self._hears = storage if isinstance(storage, Hears) else None
        self._queue = queue
        self._clock = clock
        self._new: Group = {}
        self._open: dict[Watch, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def wait(self, job_id: str, seconds: float | None) -> Ending | None:
        """Give a job's ending, None when the time is up; raises StorageClosed after `close`."""
        future: Watch = asyncio.get_running_loop().create_future()
        self._open[future] = job_id
        if not self._listen(job_id, future):
            self._ask(job_id, future)
        timer = None
        if seconds is not None:
            timer = self._clock.call_later(max(seconds, 0), lambda: _tell(future, None))
        try:
            return await future
        finally:
            if timer is not None:
                timer.cancel()
            del self._open[future]

    async def close(self) -> None:
        """Stop following; those who still wait are told so."""
        for future, job_id in self._open.items():
            text = f"queue {self._queue!r} was stopped while job {job_id!r} was waited for"
            if not future.done():
                future.set_exception(StorageClosed(f"{text}; the job goes on"))
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _listen(self, job_id: str, future: Watch) -> bool:
        if self._hears is None:
            return False

        def tell(ending: Ending | None) -> None:
            if ending is not None:
                _tell(future, ending)
            elif not future.done():
                self._ask(job_id, future)

        return self._hears.hear(self._queue, job_id, tell)

    def _ask(self, job_id: str, future: Watch) -> None:
        if not self._new:
            asyncio.get_running_loop().call_soon(self._follow_new)
        self._new.setdefault(job_id, []).append(future)

    def _follow_new(self) -> None:
        new, self._new = list(self._new.items()), {}
        for first in range(0, len(new), _GROUP):
            task = asyncio.create_task(self._follow(dict(new[first : first + _GROUP])))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _follow(self, group: Group) -> None:
        """Ask for a group of jobs until each has ended or nobody waits for it."""
        while waiting := [job_id for job_id, those in group.items() if _are_left(those)]:
            try:
                endings = await self._storage.finished(self._queue, waiting, _BLOCK_MS)
            except StorageError:
                # The callers have time limits of their own; go on asking until then.
                await self._clock.sleep(_RETRY_S)
                continue
            for ending in endings:
                for future in group.get(ending.id, ()):
                    _tell(future, ending)


def _are_left(watches: Sequence[Watch]) -> bool:
    return not all(future.done() for future in watches)


def _tell(future: Watch, ending: Ending | None) -> None:
    if not future.done():
        future.set_result(ending)
