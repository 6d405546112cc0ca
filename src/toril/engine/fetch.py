"""Bring jobs for free places, and wait without polling when there are none."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Final, Generic

from toril.clock import Clock, give_way
from toril.engine.hand import Hand
from toril.engine.outage import Outage
from toril.errors import StorageError
from toril.ids import token
from toril.job import In
from toril.storage.protocol import Awaits, Batch, Claim, Rate, Storage

# The turns of the loop in which a handler starts, ends, and its outcome is written.
_TURNS: Final = 3

# The first jobs of a large hand begin while the next ones are claimed: else all wait for the last,
# and end together as they began.
_AT_ONCE: Final = 100

# A claim that waits at the storage may be granted to a machine that is gone. So its first lease
# is short, though longer than it takes to notice a silent connection and to ask again on a new one;
# the heart makes it longer.
_FIRST_LEASE_MS: Final = 15_000


# Whoever waits for the outcome that was just sent may wait for this core, too.
_LET_GO: Final[Callable[[], None]] = getattr(os, "sched_yield", lambda: None)


class Fetcher(Generic[In]):
    """Claims as many jobs as there are free places, then blocks until there may be more."""

    def __init__(
        self,
        *,
        storage: Storage,
        queue: str,
        worker_id: str,
        hand: Hand[In],
        outage: Outage,
        clock: Clock,
        lease_ms: int,
        block_ms: int,
        rate: Rate | None,
        worker_name: str | None,
        deliver: Callable[[Batch], None],
    ) -> None:
        self._storage = storage
        self._awaits = storage if isinstance(storage, Awaits) else None
        self._queue = queue
        self._worker_id = worker_id
        self._hand = hand
        self._outage = outage
        self._clock = clock
        self._lease_ms = lease_ms
        self._block_ms = block_ms
        self._rate = rate
        self._worker_name = worker_name
        self._deliver = deliver
        self._limited_until = 0.0
        self._napping: asyncio.Task[object] | None = None
        self._short: Batch | None = None
        self._resting = False
        self._cut: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Fetch until the hand closes. A claim under way is always finished, never cut."""
        while not self._hand.closing:
            self._short = None
            await self._hand.room()
            places = min(self._hand.free, _AT_ONCE)
            if self._hand.closing or places <= 0:
                continue
            batch = self._short
            if batch is None:
                batch = await self._claim(places)
                if len(batch.jobs) == places:
                    continue
            # Fewer than asked for: there are no more now, or word of them is there already.
            short: Batch | None = batch
            while short is not None:
                short = await self._rest(short)

    def close(self) -> None:
        """Claim no more; wake up if waiting."""
        self._hand.close()
        if not self._cut.done():
            self._cut.set_result(None)
        if self._napping is not None:
            self._napping.cancel()

    def wish(self, count: int, lease_ms: int | None = None) -> Claim | None:
        """Describe a claim for `count` jobs; None while no job should be taken."""
        if self._hand.closing or self._clock.monotonic() < self._limited_until:
            return None
        return Claim(
            token=token(),
            worker_id=self._worker_id,
            count=count,
            lease_ms=lease_ms or self._lease_ms,
            rate=self._rate,
            worker_name=self._worker_name,
        )

    def refill(self, count: int) -> Claim | None:
        """Describe what a settlement should bring along.

        Nothing for a job that was alone while word of new ones is awaited anyhow: to look for more
        would only keep its caller waiting.
        """
        alone = count == 1 and len(self._hand.runs) == 1
        return None if alone and self._resting else self.wish(count)

    def refilled(self, claim: Claim, batch: Batch) -> None:
        """Note what a settlement brought; after a short one there is nothing to claim."""
        self._short = batch if len(batch.jobs) < claim.count else None

    def note_limit(self, batch: Batch) -> None:
        """Hold back claims for as long as a rate limit says."""
        if batch.limited_for_ms > 0:
            self._limited_until = self._clock.monotonic() + batch.limited_for_ms / 1000

    async def _claim(self, places: int) -> Batch:
        wish = self.wish(places)
        if wish is None:
            left = self._limited_until - self._clock.monotonic()
            return Batch(limited_for_ms=max(1, round(left * 1000)))
        return await self._granted(places, lambda: self._storage.claim(self._queue, wish))

    async def _rest(self, batch: Batch) -> Batch | None:
        """Wait for more after a claim that came up short; give the next one, if it did too."""
        self._resting = True
        try:
            if batch.jobs:  # a quick one is settled before we wait for more
                await give_way(_TURNS)
                if self._awaits is not None:
                    _LET_GO()
            places = self._hand.free
            if self._awaits is None or not self._is_calm(batch) or places <= 0:
                await self._idle(batch)
                return None
            more = await self._await_claim(self._awaits, places)
        finally:
            self._resting = False
        return more if more is not None and len(more.jobs) < places else None

    def _is_calm(self, batch: Batch) -> bool:
        """Whether only word of new jobs can end the wait: a time is kept better on this side."""
        due = batch.next_in_ms
        return not batch.limited_for_ms and (due is None or due >= self._block_ms)

    async def _await_claim(self, storage: Awaits, places: int) -> Batch | None:
        """Leave a claim with the storage for when there is work; None if no job should be taken."""
        wish = self.wish(places, min(self._lease_ms, _FIRST_LEASE_MS))
        if wish is None:
            return None
        waiting = True

        def claim() -> Awaitable[Batch]:
            nonlocal waiting
            if waiting:
                waiting = False
                return storage.await_claim(self._queue, wish, self._block_ms, self._cut)
            return self._storage.claim(self._queue, wish)

        return await self._granted(places, claim)

    async def _granted(self, places: int, claim: Callable[[], Awaitable[Batch]]) -> Batch:
        """Claim until the storage answers, with the places held meanwhile."""
        self._hand.take(places)
        try:
            batch = await self._outage.insist(claim)
        finally:
            self._hand.give_back(places)
        self._deliver(batch)
        return batch

    async def _idle(self, batch: Batch) -> None:
        """Wait for work, for the next delayed job, or for a limit to end."""
        if self._hand.closing:
            return
        if batch.limited_for_ms > 0:
            waiting = self._clock.sleep(min(batch.limited_for_ms, self._block_ms) / 1000)
        else:
            due = self._block_ms if batch.next_in_ms is None else batch.next_in_ms
            waiting = self._wait(min(due, self._block_ms))
        task = self._napping = asyncio.current_task()
        try:
            await waiting
        except asyncio.CancelledError:
            if not self._hand.closing or task is None or task.uncancel():
                raise  # else it was `close` alone that ended it
        finally:
            self._napping = None

    async def _wait(self, timeout_ms: int) -> None:
        begun = self._clock.monotonic()
        try:
            await self._storage.wait([self._queue], timeout_ms)
        except StorageError as error:
            # The claim that follows finds out whether it is back.
            self._outage.failed(error)
            await self._outage.rest(begun)
