"""Jobs on Redis or Valkey in a lean layout of our own; see `lua/prelude.lua` for the keys.

Each verb is one script call. The scripts take the server's time, check ownership and write
state and event together, so no two clients and no two clocks can disagree.
"""

from __future__ import annotations

from toril.storage.protocol import Beat
from toril.storage.redis.edits import EditJobs, WriteNotes
from toril.storage.redis.heart import RedisBeat
from toril.storage.redis.observe import Observe
from toril.storage.redis.tend import Tend
from toril.storage.redis.work import Work


class RedisStorage(EditJobs, Work, Observe, Tend, WriteNotes):
    """Jobs on a Redis or Valkey server, alone, behind sentinels or as a cluster."""

    def heartbeat(self) -> Beat:
        """Make a heart with a connection of its own."""
        return RedisBeat(self._client.sync(), self._base, lambda: self.now_ms)
