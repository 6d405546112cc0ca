"""Wait on a queue's lists: for word of work, and for the endings pushed to this client."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, cast

from toril.clock import Clock, Timer, give_way
from toril.errors import StorageError
from toril.resp.client import Client, Reply
from toril.resp.wakeups import WakeUps, resolve
from toril.storage.protocol import Ending
from toril.storage.redis import codec
from toril.storage.redis.scripts import script

_BLOCK_S: Final = 5.0
_POPPED: Final = 500
_SURE_S: Final = 1.0
"""How long it is trusted that the server will write, before it is asked."""

_PROMISED: Final = 4096
"""Endings kept for callers that have not asked yet."""

_TURNS: Final = 2
"""The turns of the loop in which a caller learns of its result and hands in the next job."""


def wake_ups(client: Client, base: str) -> WakeUps:
    """Wait for word that a queue may have work."""

    async def ring(_told: Reply) -> None:
        """Leave word again; a script may, also when memory is short."""
        # A server that is away or forgot needs no word: whoever reconnects claims.
        with suppress(StorageError):
            await client.run(script("ring"), base, 0)

    return WakeUps(client, f"{base}wake", "BLPOP", ring)


Tell = Callable[[Ending | None], None]
"""Takes an ending, or None if it has to be asked for."""

Known = tuple[Sequence[Ending], Mapping[str, str]]
"""What the server told: endings, and the origins of jobs that go on."""


class Replies:
    """Receives the endings that scripts push to this client's list, and hands them out.

    An id may be used again while word of its first job is under way, hence the origins: an ending
    counts for the job it belongs to.
    """

    def __init__(self, client: Client, key: str) -> None:
        self._client = client
        self._key = key
        self._watchers: dict[str, set[asyncio.Future[None]]] = {}
        self._hearers: dict[str, Tell] = {}
        self._late: Timer | None = None
        self._origins: dict[str, str] = {}
        self._sure: dict[str, float] = {}
        self._news: dict[str, Ending] = {}
        self._promised: OrderedDict[str, None] = OrderedDict()
        self._unclaimed: list[str] = []
        self._task: asyncio.Task[None] | None = None

    def promise(self, origins: Mapping[str, str], now: float) -> None:
        """Expect the endings of jobs that go out now with our address; keep them until asked."""
        for job_id in origins:
            self._unhear(job_id)  # an ending of the job before would now be taken for another's
            self._promised[job_id] = None
            self._news.pop(job_id, None)
        self._expect(origins, now)
        self._bound()
        self._start()

    def forgive(self, job_id: str) -> None:
        """Take a promise back: the server has to be asked."""
        self._unhear(job_id)
        self._promised.pop(job_id, None)
        self._origins.pop(job_id, None)
        self._sure.pop(job_id, None)
        self._forget(job_id)

    def hear(self, job_id: str, clock: Clock, tell: Tell) -> bool:
        """Tell of a promised ending when it comes; False if it is not sure that it will."""
        now = clock.monotonic()
        if job_id not in self._promised or self._sure.get(job_id, -_SURE_S) <= now - _SURE_S:
            return False
        self._unhear(job_id)
        self._hearers[job_id] = tell
        if job_id in self._news:
            self._tell(job_id, self._news[job_id])
        elif self._late is None:
            self._late = clock.call_later(_SURE_S, lambda: self._trust_less(clock))
        self._start()
        return True

    def _trust_less(self, clock: Clock) -> None:
        """Let those ask who have heard nothing for long."""
        self._late = None
        since = clock.monotonic() - _SURE_S
        for job_id in [one for one in self._hearers if self._sure.get(one, since) <= since]:
            self._unhear(job_id)
        if self._hearers:
            self._late = clock.call_later(_SURE_S, lambda: self._trust_less(clock))

    def _tell(self, job_id: str, ending: Ending | None) -> None:
        tell = self._hearers.pop(job_id)
        if ending is not None:
            self._promised.pop(job_id, None)
            self._forget(job_id)
        tell(ending)

    def _unhear(self, job_id: str) -> None:
        if job_id in self._hearers:
            self._tell(job_id, None)

    async def wait(
        self,
        ids: Sequence[str],
        clock: Clock,
        until: float,
        ask: Callable[[], Awaitable[Known]],
    ) -> Sequence[Ending]:
        """Return endings that are known, or told when asked, or pushed in time."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for job_id in ids:
            self._watchers.setdefault(job_id, set()).add(future)
            self._promised.pop(job_id, None)
        try:
            now = clock.monotonic()
            if until > now and all(self._sure.get(one, -_SURE_S) > now - _SURE_S for one in ids):
                endings = self._known(ids)
            else:
                endings, origins = await ask()
                self._expect(origins, now)
            seconds = until - clock.monotonic()
            if endings or seconds <= 0:
                return endings
            self._start()
            timer = clock.call_later(seconds, lambda: resolve(future))
            try:
                await future
            finally:
                timer.cancel()
            return self._known(ids)
        finally:
            for job_id in ids:
                watchers = self._watchers.get(job_id)
                if watchers is not None:
                    watchers.discard(future)
                    if not watchers:
                        del self._watchers[job_id]
                        self._leave(job_id)

    async def close(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._late is not None:
            self._late.cancel()
        for job_id in list(self._hearers):
            self._unhear(job_id)
        for watchers in self._watchers.values():
            for future in watchers:
                resolve(future)

    def _known(self, ids: Sequence[str]) -> Sequence[Ending]:
        return [self._news[job_id] for job_id in ids if job_id in self._news]

    def _expect(self, origins: Mapping[str, str], now: float) -> None:
        """Know that the server has our address, and that it will write."""
        self._origins.update(origins)
        self._sure.update(dict.fromkeys(origins, now))

    def _bound(self) -> None:
        while len(self._promised) > _PROMISED:
            self.forgive(next(iter(self._promised)))

    def _leave(self, job_id: str) -> None:
        """Nobody waits just now; whoever waits for many comes back for those that go on."""
        if job_id in self._sure and job_id not in self._news:
            self._promised[job_id] = None
            self._bound()
        else:
            self._forget(job_id)

    def _sweep(self) -> None:
        """Give up on those nobody came back for between two silences."""
        for job_id in self._unclaimed:
            if job_id in self._promised:
                self.forgive(job_id)
        self._unclaimed = list(self._promised)

    def _forget(self, job_id: str) -> None:
        if job_id not in self._watchers and job_id not in self._promised:
            for facts in (self._news, self._origins, self._sure):
                facts.pop(job_id, None)

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        while self._watchers or self._promised:
            try:
                reply = await self._client.block(
                    self._key,
                    *("BLMPOP", str(_BLOCK_S), 1, self._key, "LEFT", "COUNT", _POPPED),
                    timeout_s=_BLOCK_S,
                    see=self._hand_out,
                )
            except StorageError:
                return  # those who wait ask again by themselves
            if not reply:
                self._sweep()
            elif self._watchers or self._promised:
                await give_way(_TURNS)  # those told go on first, and may send at once

    def _hand_out(self, reply: Reply) -> None:
        """Tell what was pushed, before anything else goes on."""
        _, messages = cast("tuple[bytes, list[bytes]]", reply or (b"", ()))
        for message in messages:
            self._deliver(message)

    def _deliver(self, message: bytes) -> None:
        job_id, letter, payload, origin = codec.read_message(message)
        watchers = self._watchers.get(job_id, ())
        expected = self._origins.get(job_id, origin)
        if expected != origin or not (watchers or job_id in self._promised):
            return
        # A large result is not sent along; its waiter asks for it, and must not find an older one.
        self._news.pop(job_id, None)
        if letter in "xg" or payload is not None:
            self._news[job_id] = codec.read_ending(job_id, letter, payload)
        else:
            self._sure.pop(job_id, None)
        for future in watchers:
            resolve(future)
        if job_id in self._hearers:
            self._tell(job_id, self._news.get(job_id))
