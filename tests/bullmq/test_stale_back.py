"""What a lease that is over says changes nothing, not even what was told before."""

from __future__ import annotations

import pytest

from tests.servers import Server
from toril.event import Cursor, EventKind
from toril.ids import ulid
from toril.job import JobSpec, Terms
from toril.outcome import Failure, Outcome, Postponed, Released, Retried
from toril.storage.bullmq import BullmqStorage
from toril.storage.protocol import Claim


@pytest.mark.parametrize("kind", [Postponed, Released])
async def test_a_retry_stays_one_though_its_old_lease_hands_the_job_back(
    server: Server, kind: type[Postponed] | type[Released]
) -> None:
    storage = BullmqStorage(f"bullmq+{server.url}?prefix=s{ulid()}")
    await storage.open()
    await storage.enqueue("q", [JobSpec(id="a", terms=Terms(attempts=3))])
    claim = Claim(token="t", worker_id="w", count=1, lease_ms=30_000)
    (job,) = (await storage.claim("q", claim)).jobs
    failure = Failure(kind="E", reason="r")
    await storage.settle("q", [Retried(lease=job.lease, failure=failure, delay_ms=0)])
    before = await storage.events("q", Cursor.START, None, 100)
    stale: Outcome = Released(lease=job.lease)
    if kind is Postponed:
        stale = Postponed(lease=job.lease, delay_ms=700)
    await storage.settle("q", [stale])
    assert EventKind.RETRYING in [event.kind for event in before]
    assert await storage.events("q", Cursor.START, None, 100) == before
    await storage.close()
