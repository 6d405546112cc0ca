"""Look for jobs whose worker went silent, once per interval over all workers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from toril.clock import Clock, wait_future
from toril.engine.journal import Journal
from toril.errors import StorageError
from toril.job import State
from toril.metrics import MetricsCollector, NoMetrics
from toril.storage.protocol import Storage

_SPREAD: Final = 0.05


class ReapLoop:
    """Reaps one queue at start and then per interval.

    The storage lets one caller per interval do the work and tells the others when to come
    back, so the pass moves on to whoever is alive. A cycle that still runs when the next is
    due makes that one skip.
    """

    def __init__(
        self,
        *,
        storage: Storage,
        queue: str,
        clock: Clock,
        interval_ms: int,
        max_stalls: int,
        journal: Journal,
        metrics: MetricsCollector,
        stalled: Callable[[str, bool], None],
        failed: Callable[[BaseException], None],
        known_away: Callable[[], bool] = lambda: False,
    ) -> None:
        self._storage = storage
        self._queue = queue
        self._clock = clock
        self._interval_ms = interval_ms
        self._max_stalls = max_stalls
        self._journal = journal
        self._metrics = metrics
        self._stalled = stalled
        self._failed = failed
        self._known_away = known_away
        self.skipped = 0

    async def run(self) -> None:
        """Reap until cancelled."""
        while True:
            cycle = asyncio.create_task(self._cycle())
            try:
                while not await wait_future(self._clock, cycle, self._interval_ms / 1000):
                    self.skipped += 1
                    self._metrics.increment_stalled_checker_skipped(self._queue)
                    self._journal.reap_skipped()
            finally:
                cycle.cancel()
            spread = 1 + random.random() * _SPREAD
            await self._clock.sleep(cycle.result() / 1000 * spread)

    async def _cycle(self) -> int:
        """Reap once; return the milliseconds until it makes sense to come back."""
        try:
            reaped = await self._storage.reap(self._queue, self._max_stalls, self._interval_ms)
        except StorageError as error:
            if not self._known_away():  # else others have said so, and will say when it is back
                self._journal.reap_failed(error)
            self._failed(error)
            return self._interval_ms
        await self._measure()
        for doomed, ids in ((False, reaped.stalled), (True, reaped.doomed)):
            for job_id in ids:
                self._metrics.increment_stalled_jobs(self._queue)
                self._journal.stalled(job_id, doomed)
                self._stalled(job_id, doomed)
        return min(self._interval_ms, max(reaped.next_in_ms, 1))

    async def _measure(self) -> None:
        """Report how long the queue is, where somebody collects it."""
        if isinstance(self._metrics, NoMetrics):
            return
        try:
            counts = await self._storage.counts(self._queue)
        except StorageError:
            return  # the next pass measures again
        for state in State:
            self._metrics.set_queue_length(self._queue, state.value, counts.of(state))
