"""Read events, counts, jobs by state, queues and workers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

from toril.clock import wait_future
from toril.errors import StorageClosed
from toril.event import Cursor, Event
from toril.job import JobRecord, State
from toril.storage.protocol import Counts, WorkerInfo
from toril.storage.redis import codec
from toril.storage.redis.layout import PREFIX, check_trimmed
from toril.storage.redis.produce import Produce


class Observe(Produce):
    """The observer's verbs."""

    async def events(
        self,
        queue: str,
        after: Cursor,
        until: Cursor | None = None,
        limit: int = 1000,
        block_ms: int = 0,
    ) -> Sequence[Event]:
        """Read events after one cursor up to another; wait if there are none."""
        found = await self._read_events(queue, after, until, limit)
        if found or block_ms <= 0:
            return found
        news = asyncio.ensure_future(self._news(queue, after, block_ms))
        try:
            await wait_future(self.clock, news, block_ms / 1000)
        finally:
            news.cancel()
        if news.done() and not news.cancelled():
            news.result()
        return await self._read_events(queue, after, until, limit) if self._opened else ()

    async def _news(self, queue: str, after: Cursor, block_ms: int) -> None:
        """Return when there is an event after the cursor, or the storage closes."""
        key = self._base(queue) + "events"
        block = ("XREAD", "COUNT", 1, "BLOCK", block_ms, "STREAMS", key, f"{after.major}-0")
        with suppress(StorageClosed):
            await self._client.block(key, *block, timeout_s=block_ms / 1000)

    async def _read_events(
        self, queue: str, after: Cursor, until: Cursor | None, limit: int
    ) -> list[Event]:
        key, meta = self._base(queue) + "events", self._base(queue) + "meta"
        # First how far they go: one that is added in between must not count as trimmed.
        last = int(cast("bytes | None", await self._call(meta, "HGET", meta, "e")) or 0)
        stop = last if until is None else min(until.major, last)
        if after.major >= stop:
            return []
        entries = cast(
            "list[list[Any]]",
            await self._call(key, "XRANGE", key, f"({after.major}", "+", "COUNT", limit),
        )
        events = [event for entry in entries for event in codec.read_entry(entry[0], entry[1][1])]
        first = events[0].cursor.major if events else last + 1
        check_trimmed(queue, after.major, first, stop)
        return [event for event in events if after < event.cursor and event.cursor.major <= stop][
            :limit
        ]

    async def cursor(self, queue: str) -> Cursor:
        """The place after the newest event."""
        meta = self._base(queue) + "meta"
        return Cursor(int(cast("bytes | None", await self._call(meta, "HGET", meta, "e")) or 0))

    async def counts(self, queue: str) -> Counts:
        """Count the jobs by state."""
        waiting, prioritized, delayed, active, completed, failed, paused = await self._run(
            "counts", queue
        )
        return Counts(
            waiting=waiting,
            prioritized=prioritized,
            delayed=delayed,
            active=active,
            completed=completed,
            failed=failed,
            paused=bool(paused),
        )

    async def peek(self, queue: str, state: State, start: int, stop: int) -> Sequence[JobRecord]:
        """Read one page of a state."""
        if state is State.WAITING_CHILDREN:
            return ()
        letter = codec.LETTERS[state]
        ids = [one.decode() for one in await self._run("peek", queue, letter, start, stop, 0)]
        return [record for record in await self.get(queue, ids) if record is not None]

    async def queues(self) -> Sequence[str]:
        """Name the queues that hold anything."""
        names = f"{self.address.prefix or PREFIX}:queues"
        found = cast("list[bytes]", await self._call(names, "SMEMBERS", names))
        return sorted(name.decode() for name in found)

    async def workers(self, queue: str) -> Sequence[WorkerInfo]:
        """Name the workers seen lately."""
        flat = await self._run("workers", queue)
        found: list[WorkerInfo] = []
        for at in range(0, len(flat), 3):
            worker, _, name = flat[at].decode().partition("\n")
            found.append(
                WorkerInfo(
                    id=worker, name=name or None, seen_ms_ago=flat[at + 1], active=flat[at + 2]
                )
            )
        return found
