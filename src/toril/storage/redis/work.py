"""Hand out jobs, prolong and end their leases, and find those whose owner is gone."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any, Final, cast

from toril.outcome import CANCELLED, Answer, Completed, Lease, Outcome, Released
from toril.resp.client import Reply
from toril.resp.wakeups import BLOCK_S, came_before
from toril.storage.protocol import EMPTY_BATCH, Batch, Claim, Rate, Reaped, Renewal, Settlement
from toril.storage.redis import codec
from toril.storage.redis.layout import CHUNK, chunks
from toril.storage.redis.leases import lease_arguments, read_renewal
from toril.storage.redis.link import Argument, Link
from toril.storage.redis.scripts import script

_TOKENS: Final = 4096
"""Claim tokens remembered, to know a repeated claim by."""
_LISTED_S: Final = 15.0
"""How long a worker that waits is not listed anew; the list forgets it after twice the time."""


class Work(Link):
    """The worker's verbs."""

    async def claim(self, queue: str, claim: Claim) -> Batch:
        """Lease up to `count` jobs that may start now."""
        if queue not in self._met:
            await self._meet(queue)
        reply = await self._run("claim", queue, *self._wish(claim), again=1)
        return self._batch(queue, claim, reply)

    async def await_claim(
        self, queue: str, claim: Claim, timeout_ms: int, cut: asyncio.Future[None]
    ) -> Batch:
        """Claim when word of work comes: the server runs it right then, without a way to us."""
        self._check_open()
        if self.now_ms:  # a time that is told from here has to be the right one
            if not await came_before(cut, self.wait([queue], timeout_ms)):
                return EMPTY_BATCH
            return await self.claim(queue, claim)
        if queue not in self._met:
            await self._meet(queue)
        self._outlooks.pop(queue, None)
        base, seconds = self._base(queue), max(0.001, min(timeout_ms / 1000, BLOCK_S))
        if queue not in self._awaiting:
            # Later it would say that it does not know it when there is a job to hand out.
            await self._client.call(base, "SCRIPT", "LOAD", script("claim_alone").text)
            self._awaiting.add(queue)
        *terms, again = self._wish(claim)
        terms.append(int(self._is_unlisted(queue, claim.worker_id)))

        async def release(reply: Reply) -> None:
            granted = self._batch(queue, claim, cast("Sequence[Any]", reply)).jobs
            await self.settle(queue, [Released(lease=job.lease) for job in granted])

        reply = await self._client.run_after(
            ("BLPOP", f"{base}wake", f"{seconds:.3f}"),
            script("claim_alone"),
            base,
            *(0, *terms, again),
            timeout_s=seconds,
            cut=cut,
            orphan=release,
        )
        if reply is not None:
            return self._batch(queue, claim, cast("Sequence[Any]", reply))
        if cut.done():  # who is leaving takes no more; what it may have been granted lapses
            return EMPTY_BATCH
        return self._batch(queue, claim, await self._run("claim_alone", queue, *terms, 1))

    def _is_unlisted(self, queue: str, worker_id: str) -> bool:
        """Tell whether a worker that waits in vain should be entered into the list anew."""
        now, last = self.clock.monotonic(), self._listed.get((queue, worker_id))
        if last is not None and now < last + _LISTED_S:
            return False
        self._listed[queue, worker_id] = now
        return True

    def _batch(self, queue: str, claim: Claim, reply: Sequence[Any]) -> Batch:
        """Read a batch; one that came up short tells all that `wait` would ask for."""
        batch = codec.read_batch(claim.token, reply)
        if len(batch.jobs) < min(claim.count, CHUNK) and not batch.limited_for_ms:
            due = math.inf if batch.next_in_ms is None else batch.next_in_ms / 1000
            self._outlooks[queue] = self.clock.monotonic() + due
        return batch

    def _wish(self, claim: Claim) -> tuple[Argument, ...]:
        rate = claim.rate or Rate(max=0, duration_ms=0)
        again = claim.token in self._tokens
        self._tokens[claim.token] = None
        if len(self._tokens) > _TOKENS:
            self._tokens.popitem(last=False)
        worker = claim.worker_id
        if claim.worker_name is not None:
            worker = f"{worker}\n{claim.worker_name}"
        return (
            claim.token,
            worker,
            min(claim.count, CHUNK),
            claim.lease_ms,
            rate.max,
            rate.duration_ms,
            int(again),
        )

    async def wait(self, queues: Sequence[str], timeout_ms: int) -> None:
        """Return when one of the queues may have work."""
        self._check_open()
        wait_ms = min([timeout_ms, *[await self._outlook(queue) for queue in queues]])
        if wait_ms <= 0:
            return
        if len(queues) == 1:
            await self._wake(queues[0]).wait(self.clock, wait_ms / 1000)
            return
        waits = [
            asyncio.ensure_future(self._wake(queue).wait(self.clock, wait_ms / 1000))
            for queue in queues
        ]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        for one in done:
            one.result()

    async def _outlook(self, queue: str) -> float:
        """Tell in how many ms a claim can bring something, as far as is known.

        Right after a claim that came up short there is nothing to ask: whatever changes later
        leaves word, and that is what a wait waits for.
        """
        due = self._outlooks.pop(queue, None)
        if due is not None:
            return math.ceil((due - self.clock.monotonic()) * 1000) if due < math.inf else due
        ms = int(await self._run("outlook", queue))
        return ms if ms >= 0 else math.inf

    def poke(self) -> None:
        """Let blocked calls look again; for tests that move the clock."""
        for wakes in self._wakes.values():
            wakes.poke()

    async def renew(self, queue: str, leases: Sequence[Lease], lease_ms: int) -> Renewal:
        """Prolong the leases still held; report the ones that are gone."""
        lost: list[Lease] = []
        cancelled: list[Lease] = []
        for some in chunks(leases):
            args = lease_arguments(some)
            read_renewal(some, await self._run("renew", queue, lease_ms, *args), lost, cancelled)
        return Renewal(lost=lost, cancelled=cancelled)

    async def settle(
        self, queue: str, outcomes: Sequence[Outcome], refill: Claim | None = None
    ) -> Settlement:
        """End attempts under their leases, then claim the next jobs."""
        answers: list[Answer] = []
        batch = EMPTY_BATCH
        groups = list(chunks(outcomes)) or [()]
        for number, some in enumerate(groups):
            args: list[Argument] = [codec.pack_outcomes(some)]
            alone = len(some) == 1 and refill is None and isinstance(some[0], Completed)
            again = None
            if refill is not None and number == len(groups) - 1:
                args += self._wish(refill)
                again = 1
            name = "settle_alone" if alone else "settle"
            letters, claimed = await self._run(name, queue, *args, durable=True, again=again)
            answers += [codec.ANSWERS[letter] for letter in letters.decode()]
            if claimed and refill is not None:
                batch = self._batch(queue, refill, claimed)
        return Settlement(answers=answers, batch=batch)

    async def reap(self, queue: str, max_stalls: int, interval_ms: int) -> Reaped:
        """Put jobs with lapsed leases back in front."""
        stalled: list[str] = []
        doomed: list[str] = []
        while True:
            wait, some_stalled, some_doomed = await self._run(
                "reap",
                queue,
                *(max_stalls, interval_ms, CANCELLED, "JobStalled"),
                "stalled %d times; allowed are %d (max_stalls=)",
            )
            stalled += [one.decode() for one in some_stalled]
            doomed += [one.decode() for one in some_doomed]
            if wait > 0 or not (some_stalled or some_doomed):
                return Reaped(stalled=stalled, doomed=doomed, next_in_ms=wait)

    async def lease_left_ms(self, queue: str, lease: Lease) -> int | None:
        """How long a lease has to go, None if its job does not run; for tests that set `now_ms`."""
        key = self._base(queue) + "processing"
        until = await self._call(key, "ZSCORE", key, lease.job_id)
        if until is None:
            return None
        return int(float(cast("bytes", until))) - self.now_ms

    async def leave(self, queue: str, worker_id: str) -> None:
        """Strike a worker off the list."""
        self._listed.pop((queue, worker_id), None)
        key = self._base(queue) + "workers"
        members = cast("list[bytes]", await self._call(key, "ZRANGE", key, 0, -1))
        mine = [one for one in members if one.decode().partition("\n")[0] == worker_id]
        if mine:
            await self._call(key, "ZREM", key, *mine)
