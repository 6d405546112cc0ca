"""Renew leases, also from a thread, on a connection of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from toril.outcome import Lease
from toril.resp.sync import SyncClient
from toril.storage.bullmq import codec
from toril.storage.bullmq.keys import Keys
from toril.storage.bullmq.link import CHUNK, Link, check_reply
from toril.storage.bullmq.official import scripts
from toril.storage.bullmq.scripts import Command, call
from toril.storage.protocol import Beat, Renewal


def renew_commands(
    keys: Keys, leases: Sequence[Lease], lease_ms: int, size: int
) -> Iterator[tuple[Sequence[Lease], list[Command]]]:
    """Write the commands that renew leases, some at a time.

    extendLocks names the jobs whose lock it did not find, so no call may hold two leases of one
    job: an old and a new one could not be told apart.
    """
    left = list(leases)
    while left:
        some: dict[str, Lease] = {}
        rest: list[Lease] = []
        for lease in left:
            if lease.job_id in some or len(some) >= size:
                rest.append(lease)
            else:
                some[lease.job_id] = lease
        left = rest
        ids, tokens = list(some), [lease.token for lease in some.values()]
        extend = call("extendLocks", keys, keys.base, codec.pack(tokens), codec.pack(ids), lease_ms)
        yield list(some.values()), [extend, ("HMGET", keys.of("toril-cancel"), *ids)]


def read_renewal(
    leases: Sequence[Lease], replies: Sequence[Any], lost: list[Lease], cancelled: list[Lease]
) -> None:
    """Sort leases by what the server said of them."""
    gone = {one.decode() for one in replies[0]}
    for lease, asked in zip(leases, replies[1], strict=True):
        if lease.job_id in gone:
            lost.append(lease)
        elif asked == lease.token.encode():
            cancelled.append(lease)


def in_order(leases: Sequence[Lease], lost: list[Lease], cancelled: list[Lease]) -> Renewal:
    """Report leases in the order they were asked for."""
    return Renewal(lost=_among(leases, lost), cancelled=_among(leases, cancelled))


def _among(leases: Sequence[Lease], some: Sequence[Lease]) -> Sequence[Lease]:
    if not some:
        return ()
    held = {(lease.job_id, lease.token) for lease in some}
    return [lease for lease in leases if (lease.job_id, lease.token) in held]


class BullmqBeat:
    """A synchronous heart; used from one thread."""

    def __init__(self, client: SyncClient, keys: Callable[[str], Keys]) -> None:
        client.learn(scripts()["extendLocks"])
        self._client = client
        self._keys = keys

    def renew(self, queue: str, leases: Sequence[Lease], lease_ms: int) -> Renewal:
        """Prolong the leases still held; report the ones that are gone."""
        keys = self._keys(queue)
        lost: list[Lease] = []
        cancelled: list[Lease] = []
        for some, commands in renew_commands(keys, leases, lease_ms, CHUNK):
            replies = self._client.pipeline(keys.base, commands)
            for reply in replies:
                check_reply(reply)
            read_renewal(some, replies, lost, cancelled)
        return in_order(leases, lost, cancelled)

    def close(self) -> None:
        """Let the connection go."""
        self._client.close()


class Hearts(Link):
    """The facet `Beats`."""

    def heartbeat(self) -> Beat:
        """Make a heart with a connection of its own."""
        return BullmqBeat(self.client.sync(), self.keys)
