"""See the workers of a queue: toril's by our own list, Node's by the names of connections."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from toril.errors import StorageError
from toril.storage.bullmq.keys import Keys
from toril.storage.bullmq.link import Link
from toril.storage.protocol import Claim, WorkerInfo

_SEEN_MS: Final = 30_000
"""How long a worker that said nothing is still called seen lately."""
_SEEN_EVERY_S: Final = 5.0


def worker_name(claim: Claim) -> str:
    """What the wire calls a worker."""
    return claim.worker_name or claim.worker_id


def client_name(keys: Keys, worker: str) -> str | None:
    """The name of a blocking connection by which Node's getWorkers() knows a worker."""
    return _client_name(keys.prefix, keys.name, worker)


@lru_cache(256)
def _client_name(prefix: str, queue: str, worker: str) -> str | None:
    name = f"{_stem_of(prefix, queue)}:w:{worker}"
    # CLIENT SETNAME takes printable ASCII without spaces.
    return name if name.isascii() and name.isprintable() and " " not in name else None


def _stem(keys: Keys) -> str:
    return _stem_of(keys.prefix, keys.name)


@lru_cache(256)
def _stem_of(prefix: str, name: str) -> str:
    return f"{prefix}:{base64.b64encode(name.encode()).decode()}"


class Crew(Link):
    """Shows the workers of a queue."""

    async def show(self, queue: str, claim: Claim) -> None:
        """Let others see a worker that claims, in our list and on its blocking connection."""
        place, now = (queue, claim.worker_id), self.clock.monotonic()
        if self._seen.get(place, float("-inf")) > now - _SEEN_EVERY_S:
            return
        self._seen[place] = now
        keys = self.keys(queue)
        self.wake(queue).name = client_name(keys, worker_name(claim))
        member = claim.worker_id
        if claim.worker_name is not None:
            member = f"{member}\n{claim.worker_name}"
        key = keys.of("toril-workers")
        await self.client.call(key, "ZADD", key, await self.now(queue), member)

    async def leave(self, queue: str, worker_id: str) -> None:
        """Strike a worker off the list."""
        self._seen.pop((queue, worker_id), None)
        key = self.keys(queue).of("toril-workers")
        (members,) = await self.pipe(queue, [("ZRANGE", key, 0, -1)])
        mine = [one for one in members if one.decode().partition("\n")[0] == worker_id]
        if mine:
            await self.client.call(key, "ZREM", key, *mine)

    async def workers(self, queue: str) -> Sequence[WorkerInfo]:
        """Name the workers seen lately, also Node's."""
        seen, counts = await self.own("workers", queue, _SEEN_MS)
        running = {counts[at].decode(): counts[at + 1] for at in range(0, len(counts), 2)}
        found: dict[str, WorkerInfo] = {}
        for at in range(0, len(seen), 2):
            worker_id, _, name = seen[at].decode().partition("\n")
            found[name or worker_id] = WorkerInfo(
                id=worker_id,
                name=name or None,
                seen_ms_ago=seen[at + 1],
                active=running.get(name or worker_id, 0),
            )
        for worker in await self._strangers(queue, running):
            found.setdefault(worker.name or worker.id, worker)
        return list(found.values())

    async def _strangers(self, queue: str, running: Mapping[str, int]) -> list[WorkerInfo]:
        """Read Node's workers from the list of connections, as Node itself does."""
        keys = self.keys(queue)
        try:
            reply = await self.client.call(keys.base, "CLIENT", "LIST", "TYPE", "normal")
        except StorageError:  # an ACL may forbid it
            return []
        return list(read_clients(keys, reply if isinstance(reply, bytes) else b"", running))


def read_clients(keys: Keys, text: bytes, running: Mapping[str, int]) -> Iterator[WorkerInfo]:
    """Find the workers of a queue among the connections of a server."""
    stem = _stem(keys)
    for line in text.decode(errors="replace").splitlines():
        facts = dict(part.partition("=")[::2] for part in line.split(" "))
        head, mark, name = facts.get("name", "").partition(":w:")
        if head == stem:
            yield WorkerInfo(
                id=name or facts.get("addr", ""),
                name=name if mark else None,
                seen_ms_ago=int(facts.get("idle") or 0) * 1000,
                active=running.get(name, 0),
            )
