"""Leave a claim with the server, to run when the marker says that there may be work."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from toril.outcome import Released
from toril.resp.client import Reply
from toril.resp.wakeups import BLOCK_S, came_before
from toril.storage.bullmq.crew import client_name, worker_name
from toril.storage.bullmq.official import own
from toril.storage.bullmq.settle import Settle
from toril.storage.bullmq.work import BATCH, Catch
from toril.storage.protocol import EMPTY_BATCH, Batch, Claim


class AwaitClaims(Settle):
    """Claims that wait at the server."""

    async def await_claim(
        self, queue: str, claim: Claim, timeout_ms: int, cut: asyncio.Future[None]
    ) -> Batch:
        """Claim when the marker comes: the server runs it right then, without a way to us."""
        if self.now_ms or claim.rate is not None or not self.takes("finish", queue):
            # The official scripts are told the time, and it has to be the right one.
            if not await came_before(cut, self.wait([queue], timeout_ms)):
                return EMPTY_BATCH
            return await self.claim(queue, claim)
        keys = await self.meet(queue)
        await self.show(queue, claim)
        self.know(claim.token)
        stem, want = f"{self.wire_token(claim.token)}.", min(claim.count, BATCH)
        seconds = max(0.001, min(timeout_ms / 1000, BLOCK_S))

        async def release(reply: Reply) -> None:
            catch = Catch()
            self.read_granted(queue, _granted(reply), stem, want, catch)
            await self.settle(queue, [Released(lease=job.lease) for job in catch.jobs])

        reply = await self.client.run_after(
            ("BZPOPMIN", keys.of("marker"), f"{seconds:.3f}"),
            own("finish"),
            keys.base,
            *(-1, *self.finish_arguments(claim, stem, want)),
            timeout_s=seconds,
            cut=cut,
            orphan=release,
            name=client_name(keys, worker_name(claim)),
        )
        if reply is None:
            # Who is leaving takes no more; what it may have been granted lapses.
            return EMPTY_BATCH if cut.done() else await self.claim(queue, claim)
        catch = Catch()
        more = self.read_granted(queue, _granted(reply), stem, want, catch)
        if (more or catch.rest) and len(catch.jobs) < claim.count:
            await self.fill(keys, queue, claim, catch)
        return await self.go_on(queue, catch)


def _granted(reply: Reply) -> Sequence[Any]:
    return cast("Sequence[Any]", reply)
