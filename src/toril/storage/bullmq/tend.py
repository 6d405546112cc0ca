"""Pause, purge and destroy queues; edit jobs; set limits; write notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from toril.errors import InvalidOption, QueueBusy
from toril.job import PENDING, State
from toril.storage.bullmq.keys import OWN_KEYS
from toril.storage.bullmq.produce import Produce
from toril.storage.bullmq.scripts import call

_READY: Final = {State.WAITING, State.PRIORITIZED}
_CLEANED_AT_ONCE: Final = 1000
_DRAINED_AT_ONCE: Final = 100
_DESTROYED_AT_ONCE: Final = 500
_BUSY: Final = -2


class Tend(Produce):
    """The verbs of upkeep."""

    async def pause(self, queue: str, paused: bool) -> None:
        """Stop or resume handing out jobs."""
        await self.meet(queue)
        await self.own("pause", queue, "paused" if paused else "resumed", "")

    async def purge(
        self, queue: str, states: Sequence[State], older_ms: int, limit: int | None = None
    ) -> Sequence[str]:
        """Delete jobs that are in their state for long enough, oldest first."""
        if State.ACTIVE in states:
            raise InvalidOption("running jobs cannot be purged; cancel them, or destroy the queue")
        if older_ms <= 0 and limit is None and _READY <= set(states) <= PENDING:
            return await self._drain(queue, states)
        gone: list[str] = []
        for state in states:
            for container in await self._containers(queue, state):
                room = None if limit is None else limit - len(gone)
                gone += await self._clean(queue, container, older_ms, room)
        return gone

    async def _drain(self, queue: str, states: Sequence[State]) -> list[str]:
        """Empty the lines; what BullMQ calls draining, and tells nobody of."""
        lines = ["wait", "paused"]
        lines += [state.value for state in states if state is not State.WAITING]
        gone: list[str] = []
        stuck: set[str] = set()
        while True:
            some, left = await self.own("drain", queue, _DRAINED_AT_ONCE, *lines)
            tied = [one.decode() for one in left if one.decode() not in stuck]
            for job_id in tied:
                if await self.drop_officially(queue, job_id) == "x":
                    gone.append(job_id)
            stuck.update(tied)
            gone += [one.decode() for one in some]
            if not some and not tied:
                return gone

    async def _containers(self, queue: str, state: State) -> Sequence[str]:
        """Where the jobs of a state are; both lists of the waiting hold some only beside 6.x."""
        if state is not State.WAITING:
            return (state.value,)
        keys = self.keys(queue)
        names = ("wait", "paused")
        found = await self.pipe(queue, [("EXISTS", keys.of(name)) for name in names])
        return [name for name, there in zip(names, found, strict=True) if there] or names[:1]

    async def _clean(
        self, queue: str, container: str, older_ms: int, limit: int | None
    ) -> list[str]:
        keys = self.keys(queue)
        # None is too young where no age is asked for, whatever clock told when it was added.
        before = await self.now(queue) - older_ms if older_ms > 0 else await self.later(queue)
        gone: list[str] = []
        while limit is None or len(gone) < limit:
            room = _CLEANED_AT_ONCE if limit is None else min(_CLEANED_AT_ONCE, limit - len(gone))
            args = (keys.base, before, room, container)
            (some,) = await self.pipe(
                queue, [call("cleanJobsInSet", keys, *args, special=container)]
            )
            gone += [one.decode() for one in some]
            if len(some) < room:
                break
        return gone

    async def destroy(self, queue: str, force: bool = False) -> None:
        """Delete everything but the numbers of its events, which go on after it."""
        keys = self.keys(queue)
        paused_here = await self.own("pause", queue, "paused", "1")
        while True:
            command = call("obliterate", keys, _DESTROYED_AT_ONCE, "force" if force else "")
            replies = await self.pipe(
                queue,
                [
                    ("MULTI",),
                    self.own_command("remember", queue, "save"),
                    command,
                    self.own_command("remember", queue, "restore"),
                    ("EXEC",),
                ],
            )
            code = replies[-1][1]
            if code == _BUSY:
                if paused_here:
                    await self.own("pause", queue, "resumed", "1")
                raise QueueBusy(
                    f"queue {queue!r}: jobs are running; wait for them, "
                    "or destroy it with force=True"
                )
            if code == 0:
                break
        await self.own("raze", queue)
        for name in ("limiter", "marker", *OWN_KEYS):
            await self.client.call(keys.base, "DEL", keys.of(name))
        self._known.pop(queue, None)
