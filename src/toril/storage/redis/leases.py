"""Leases as scripts take them and speak of them."""

from __future__ import annotations

from collections.abc import Sequence

from toril.outcome import Lease


def lease_arguments(leases: Sequence[Lease]) -> list[str]:
    """Flatten leases for a script."""
    args: list[str] = []
    for lease in leases:
        args += (lease.job_id, lease.token, lease.note)
    return args


def read_renewal(
    leases: Sequence[Lease], reply: bytes, lost: list[Lease], cancelled: list[Lease]
) -> None:
    """Sort leases by what `renew.lua` said of them."""
    for lease, letter in zip(leases, reply.decode(), strict=True):
        if letter == "L":
            lost.append(lease)
        elif letter == "C":
            cancelled.append(lease)
