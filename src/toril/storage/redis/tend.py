"""Look after queues: pause, purge, destroy, limits, and the ends of finished jobs."""

from __future__ import annotations

from collections.abc import Sequence

from toril.errors import InvalidOption, QueueBusy
from toril.job import State
from toril.storage.protocol import Rate, Seen
from toril.storage.redis import codec
from toril.storage.redis.layout import CHUNK, PREFIX
from toril.storage.redis.link import Link


class Tend(Link):
    """The caretaker's verbs."""

    async def pause(self, queue: str, paused: bool) -> None:
        """Stop or resume handing out jobs."""
        self._check_open()
        await self._register(queue)
        await self._run("pause", queue, int(paused))

    async def purge(
        self, queue: str, states: Sequence[State], older_ms: int, limit: int | None = None
    ) -> Sequence[str]:
        """Delete jobs that are in their state for long enough, oldest first."""
        if State.ACTIVE in states:
            raise InvalidOption("running jobs cannot be purged; cancel them, or destroy the queue")
        letters = "".join(codec.LETTERS[s] for s in states if s is not State.WAITING_CHILDREN)
        gone: list[str] = []
        for letter in letters:
            gone += await self._purge_state(queue, letter, older_ms, limit, len(gone))
        return gone

    async def _purge_state(
        self, queue: str, letter: str, older_ms: int, limit: int | None, so_far: int
    ) -> Sequence[str]:
        """Delete from the old end of one state until nothing there is old enough."""
        gone: list[str] = []
        skipped = 0
        while limit is None or so_far + len(gone) < limit:
            room = CHUNK if limit is None else min(CHUNK, limit - so_far - len(gone))
            page = await self._run("peek", queue, letter, skipped, skipped + room, 1)
            if not page:
                break
            deleted = await self._run("purge", queue, older_ms, letter, *page)
            gone += [one.decode() for one in deleted]
            skipped += len(page) - len(deleted)
        return gone

    async def destroy(self, queue: str, force: bool = False) -> None:
        """Delete everything."""
        active = await self._run("destroy", queue, int(force))
        if active >= 0:
            raise QueueBusy(
                f"queue {queue!r}: {active} jobs are running; wait for them, "
                "or destroy it with force=True"
            )
        names = f"{self.address.prefix or PREFIX}:queues"
        await self._call(names, "SREM", names, queue)
        self._registered.pop(queue, None)

    async def discard(self, queue: str, seen: Sequence[Seen]) -> Sequence[bool]:
        """Delete finished jobs that still have the end that was seen."""
        return [letter == "r" for letter in await self._letters("discard", queue, _pairs(seen))]

    async def rerun(self, queue: str, seen: Sequence[Seen]) -> Sequence[bool]:
        """Put finished jobs back in line that still have the end that was seen."""
        return await self._flags("edit", queue, _pairs(seen), "rerun", 1)

    async def tune(
        self,
        queue: str,
        *,
        concurrency: int | None = None,
        rate: Rate | None = None,
        events_kept: int | None = None,
    ) -> None:
        """Set the bounds of a queue."""
        await self._run(
            "tune",
            queue,
            "" if concurrency is None else concurrency,
            "" if rate is None else rate.max,
            "" if rate is None else rate.duration_ms,
            "" if events_kept is None else events_kept,
        )


def _pairs(seen: Sequence[Seen]) -> list[str]:
    """Write ids and times one after the other; chunks are of even size, so no pair is divided."""
    return [text for one in seen for text in (one.id, str(one.finished_ms))]
