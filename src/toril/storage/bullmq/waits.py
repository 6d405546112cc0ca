"""Wait on a queue: for its marker, and for the events that tell of endings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, cast

from toril.clock import Clock, wait_future
from toril.errors import StorageError
from toril.resp.client import Client, Reply
from toril.resp.wakeups import WakeUps
from toril.storage.protocol import Ending

_TAIL_S: Final = 1.0
"""How long a wait for a result trusts the events before it asks."""
_PAGE: Final = 1000
_BUSY: Final = 500
"""Events in one read from which on asking for the awaited jobs is cheaper than listening."""
_BUSY_PAUSE_S: Final = 0.05
_ENDS: Final = frozenset({b"completed", b"failed", b"removed", b"cancelled"})


def wake_ups(client: Client, key: str) -> WakeUps:
    """Wait for the marker that says a queue may have work."""

    async def mark(told: Reply) -> None:
        """Put a marker back; a newer one of its kind is left alone."""
        _, member, score = cast("list[bytes]", told or [b"", b"0", b"0"])
        # A server that is away needs no marker: whoever reconnects claims.
        with suppress(StorageError):
            await client.call(key, "ZADD", key, "NX", score, member)

    return WakeUps(client, key, "BZPOPMIN", mark)


class Endings:
    """Follows the events of a queue for those who wait for jobs to end."""

    def __init__(self, client: Client, key: str) -> None:
        self._client = client
        self._key = key
        self._watchers: dict[str, set[asyncio.Future[None]]] = {}
        self._told: dict[str, tuple[bytes, ...]] = {}
        self._task: asyncio.Task[None] | None = None
        self._last = b"0-0"

    async def wait(
        self,
        ids: Sequence[str],
        clock: Clock,
        until: float,
        ask: Callable[[], Awaitable[Sequence[Ending]]],
    ) -> Sequence[Ending]:
        """Ask for endings until there are some or the time is up."""
        future: asyncio.Future[None] | None = None
        try:
            while True:
                future = asyncio.get_running_loop().create_future()
                for job_id in ids:
                    self._watchers.setdefault(job_id, set()).add(future)
                if clock.monotonic() < until:
                    await self._listen_from_now()
                known = await ask()
                seconds = until - clock.monotonic()
                if known or seconds <= 0:
                    return known
                await wait_future(clock, future, seconds)
                if self._task is None:  # closed
                    return ()
                self._leave(ids, future)
        finally:
            if future is not None:
                self._leave(ids, future)

    def told(self, job_id: str) -> tuple[bytes, ...] | None:
        """What the events said of a job that somebody waits for: kind, and result or reason."""
        return self._told.get(job_id)

    async def close(self) -> None:
        """Stop listening."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._wake(self._watchers)

    def _leave(self, ids: Sequence[str], future: asyncio.Future[None]) -> None:
        for job_id in ids:
            watchers = self._watchers.get(job_id)
            if watchers is not None:
                watchers.discard(future)
                if not watchers:
                    del self._watchers[job_id]
                    self._told.pop(job_id, None)

    async def _listen_from_now(self) -> None:
        """See to it that every event from here on is heard."""
        if self._task is not None and not self._task.done():
            return
        newest = await self._newest()
        if self._task is None or self._task.done():
            self._last = newest
            self._task = asyncio.create_task(self._listen())

    async def _newest(self) -> bytes:
        entries = cast(
            "list[list[bytes]]",
            await self._client.call(self._key, "XREVRANGE", self._key, "+", "-", "COUNT", 1),
        )
        return entries[0][0] if entries else b"0-0"

    async def _listen(self) -> None:
        asked = time.monotonic()
        while self._watchers:
            try:
                entries = await self._read()
                if len(entries) >= _BUSY:
                    await asyncio.sleep(_BUSY_PAUSE_S)
                    self._last = await self._newest()
            except StorageError:
                entries = ()
                await asyncio.sleep(_BUSY_PAUSE_S)
            # Silence may mean that the stream is gone, and a busy stream is not read to its end;
            # whoever waits then looks for himself, and once a second in any case.
            everybody = not entries or len(entries) >= _BUSY
            if everybody or time.monotonic() - asked >= _TAIL_S:
                asked = time.monotonic()
                self._wake(self._watchers)

    async def _read(self) -> Sequence[tuple[bytes, list[bytes]]]:
        """Wait for events and hand them to those who wait for them."""
        reply = await self._client.block(
            self._key,
            *("XREAD", "COUNT", _PAGE, "BLOCK", round(_TAIL_S * 1000)),
            *("STREAMS", self._key, self._last),
            timeout_s=_TAIL_S,
        )
        entries = cast("list[list[list[tuple[bytes, list[bytes]]]]]", reply)[0][1] if reply else []
        for raw_id, flat in entries:
            self._last = raw_id
            if flat[1] in _ENDS and flat[3].decode(errors="replace") in self._watchers:
                job_id = flat[3].decode()
                self._told[job_id] = (flat[1], *flat[5:6])
                self._wake([job_id])
        return entries

    def _wake(self, ids: Iterable[str]) -> None:
        for job_id in list(ids):
            for future in self._watchers.get(job_id, ()):
                if not future.done():
                    future.set_result(None)
