"""Hold the jobs of a batch: claim them, keep their leases alive, settle them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from toril.engine.journal import Journal
from toril.engine.outage import Outage
from toril.engine.reap import ReapLoop
from toril.errors import StorageError
from toril.ids import token
from toril.metrics import NoMetrics
from toril.outcome import Answer, AnswerKind, Failed, Failure, Lease, Outcome, Released
from toril.queue import Queue
from toril.retry import to_ms, to_seconds
from toril.spark.drained import is_drained
from toril.storage.protocol import Batch, Claim, Claimed
from toril.text import printable
from toril.worker_options import WorkerOptions

_LOG: Final = logging.getLogger("toril.spark.batch")
_CLAIMED_AT_ONCE: Final = 1000
_WAIT_MS: Final = 500
_LAST_WORDS_S: Final = 5.0


class Claims:
    """The leases of one driver; lives on an event loop that nothing blocks."""

    def __init__(self, queue: Queue[Any, Any], options: WorkerOptions) -> None:
        self._queue = queue
        self._storage = queue.storage
        self._options = options
        self._held: dict[Lease, Claimed] = {}
        self._settling: set[Lease] = set()
        self._lost: set[Lease] = set()
        self._duties: list[asyncio.Task[None]] = []
        journal = Journal(_LOG, queue.name, options.worker_id)
        self._outage = Outage(
            queue.clock, journal, NoMetrics(), max_tries=options.max_reconnect_attempts
        )
        self._reap = ReapLoop(
            storage=self._storage,
            queue=queue.name,
            clock=queue.clock,
            interval_ms=to_ms(to_seconds("reap_interval", options.reap_interval)),
            max_stalls=options.max_stalls,
            journal=journal,
            metrics=NoMetrics(),
            stalled=lambda _job_id, _doomed: None,
            failed=lambda _error: None,
        )

    async def open(self) -> None:
        """Reach the storage and begin to renew and to reap."""
        await self._storage.open()
        await self._storage.counts(self._queue.name)
        self._duties = [asyncio.create_task(one) for one in (self._beat(), self._reap.run())]

    async def close(self) -> None:
        """Hand back what is still held, and let the storage go."""
        for duty in self._duties:
            duty.cancel()
        with suppress(StorageError, TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                await self.release()
                await self._storage.leave(self._queue.name, self._options.worker_id)
        await self._storage.close()

    async def take(self, most: int) -> Sequence[Claimed]:
        """Claim up to so many jobs; none if there is nothing to do now."""
        limiter = self._options.limiter
        taken: list[Claimed] = []
        while len(taken) < most:
            wish = Claim(
                token=token(),
                worker_id=self._options.worker_id,
                count=min(most - len(taken), _CLAIMED_AT_ONCE),
                lease_ms=self._options.lease_ms,
                rate=None if limiter is None else limiter.rate(),
                worker_name=self._options.name,
            )
            batch = await self._claim(wish)
            self._held.update((one.lease, one) for one in batch.jobs)
            taken += batch.jobs
            if not batch.jobs:
                break
        return taken

    async def _claim(self, wish: Claim) -> Batch:
        return await self._outage.insist(lambda: self._storage.claim(self._queue.name, wish))

    async def idle(self) -> None:
        """Wait for work, half a second at most."""
        with suppress(StorageError):  # the claim that follows waits until it is back
            await self._storage.wait([self._queue.name], _WAIT_MS)

    async def drained(self) -> bool:
        """Tell whether no work is left, also none in the hands of others."""
        name = self._queue.name
        counts = await self._outage.insist(lambda: self._storage.counts(name))
        return await self._outage.insist(
            lambda: is_drained(self._storage, name, counts, self._queue.clock)
        )

    async def settle(self, outcomes: Sequence[Outcome]) -> Sequence[tuple[Outcome, bool]]:
        """End attempts; tell for each outcome whether it was recorded, as it was in the end."""
        kept = [one for one in outcomes if one.lease not in self._lost]
        self._settling.update(one.lease for one in kept)
        try:
            settled = await self._record(kept)
            refused = [
                _as_failed(outcome, answer)
                for outcome, answer in settled
                if answer.kind is AnswerKind.REFUSED
            ]
            done = [one for one in settled if one[1].kind is not AnswerKind.REFUSED]
            done += await self._record(refused)
        finally:
            self._settling.clear()
            for one in outcomes:
                self._held.pop(one.lease, None)
                self._lost.discard(one.lease)
        told = {outcome.lease for outcome, _ in done}
        lost = [(one, False) for one in outcomes if one.lease not in told]
        return [(one, answer.kind is AnswerKind.DONE) for one, answer in done] + lost

    async def release(self) -> None:
        """Hand back all that is held; the attempts do not count."""
        if self._held:
            await self.settle([Released(lease=lease) for lease in tuple(self._held)])

    async def _record(self, outcomes: Sequence[Outcome]) -> list[tuple[Outcome, Answer]]:
        if not outcomes:
            return []
        settlement = await self._outage.insist(
            lambda: self._storage.settle(self._queue.name, outcomes)
        )
        return list(zip(outcomes, settlement.answers, strict=True))

    async def _beat(self) -> None:
        """Renew all leases, three times within each; no job can be told of a cancel."""
        tick = min(self._options.heartbeat_s, self._options.lease_ms / 3000)
        while True:
            await asyncio.sleep(tick)
            leases = tuple(self._held)
            if not leases:
                continue
            try:
                renewal = await self._storage.renew(
                    self._queue.name, leases, self._options.lease_ms
                )
            except StorageError as error:
                _LOG.warning(
                    "batch on '%s': %d leases could not be renewed: %s",
                    self._queue.name,
                    len(leases),
                    printable(error),
                )
                continue
            # The lease of an attempt that is being ended is gone because we ended it.
            gone = {one for one in renewal.lost if one in self._held} - self._settling
            if gone:
                self._lost |= gone
                for lease in gone:
                    del self._held[lease]
                _LOG.warning("batch on '%s': %d leases were lost", self._queue.name, len(gone))


def _as_failed(outcome: Outcome, answer: Answer) -> Failed:
    reason = f"storage refused the result: {answer.reason}"
    return Failed(lease=outcome.lease, failure=Failure(kind="PermanentError", reason=reason))
