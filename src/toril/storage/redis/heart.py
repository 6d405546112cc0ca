"""Renew leases from a thread, on a connection of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from toril.outcome import Lease
from toril.resp.sync import SyncClient
from toril.storage.protocol import Renewal
from toril.storage.redis.layout import CHUNK
from toril.storage.redis.leases import lease_arguments, read_renewal
from toril.storage.redis.scripts import script


class RedisBeat:
    """A synchronous heart; used from one thread."""

    def __init__(
        self, client: SyncClient, base: Callable[[str], str], now_ms: Callable[[], int]
    ) -> None:
        self._client = client
        self._base = base
        self._now_ms = now_ms

    def renew(self, queue: str, leases: Sequence[Lease], lease_ms: int) -> Renewal:
        """Prolong the leases still held; report the ones that are gone."""
        lost: list[Lease] = []
        cancelled: list[Lease] = []
        for first in range(0, len(leases), CHUNK):
            some = leases[first : first + CHUNK]
            head = (self._now_ms(), lease_ms)
            reply = self._client.run(
                script("renew"), self._base(queue), *head, *lease_arguments(some)
            )
            read_renewal(some, cast("bytes", reply), lost, cancelled)
        return Renewal(lost=lost, cancelled=cancelled)

    def close(self) -> None:
        """Let the connection go."""
        self._client.close()
