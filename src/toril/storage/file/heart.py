"""Renew leases from a thread, on a connection of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from toril.clock import Clock
from toril.outcome import Lease
from toril.storage.file.address import FileAddress
from toril.storage.file.database import connect
from toril.storage.file.ledger import transact
from toril.storage.file.work import renew
from toril.storage.protocol import Renewal


class FileBeat:
    """A synchronous heart; used from one thread.

    It connects at its first beat: a disk that fails meanwhile is a missed beat, no end of the
    thread. Leases need not survive a loss of power, so a beat does not wait for the disk.
    """

    def __init__(self, address: FileAddress, clock: Clock) -> None:
        self._address = address
        self._clock = clock
        self._db: sqlite3.Connection | None = None

    def renew(self, queue: str, leases: Sequence[Lease], lease_ms: int) -> Renewal:
        """Prolong the leases still held; report the ones that are gone."""
        if self._db is None:
            self._db = connect(self._address, durability="memory")
        renewal, _ = transact(
            self._db,
            self._address,
            self._clock,
            queue,
            lambda shelf: renew(shelf, leases, lease_ms),
        )
        return renewal

    def close(self) -> None:
        """Let the connection go."""
        db, self._db = self._db, None
        if db is not None:
            db.close()
