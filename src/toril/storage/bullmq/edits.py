"""Change jobs that are not running."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toril.job import PENDING
from toril.storage.bullmq import codec
from toril.storage.bullmq.link import chunks
from toril.storage.bullmq.produce import Produce
from toril.storage.bullmq.scripts import Command, call
from toril.storage.protocol import Seen


class EditJobs(Produce):
    """The facets `Edits` and `Ends`."""

    async def promote(self, queue: str, ids: Sequence[str]) -> Sequence[bool]:
        """Let delayed jobs start now, at the place their priority gives them."""
        keys = self.keys(queue)
        return await self._flags(queue, [call("promote", keys, keys.base, one) for one in ids])

    async def reprioritize(self, queue: str, ids: Sequence[str], priority: int) -> Sequence[bool]:
        """Give pending jobs another priority."""
        keys = self.keys(queue)
        records = await self.get(queue, ids)
        fit = [one for one in records if one is not None and one.state in PENDING]
        changed = await self._flags(
            queue,
            [
                call(
                    "changePriority",
                    keys,
                    *(priority, keys.base, one.spec.id, int(one.spec.terms.lifo)),
                )
                for one in fit
            ],
        )
        done = {one.spec.id for one, flag in zip(fit, changed, strict=True) if flag}
        return [job_id in done for job_id in ids]

    async def reschedule(self, queue: str, ids: Sequence[str], delay_ms: int) -> Sequence[bool]:
        """Let delayed jobs start at another time."""
        keys, now = self.keys(queue), await self.later(queue)
        flags: list[bool] = []
        for some in chunks(ids):
            commands: list[Command] = []
            for one in some:
                change = call("changeDelay", keys, delay_ms, now, one, keys.of(one))
                back = self.own_command("back", queue, one, "")
                commands += (("MULTI",), change, back, ("EXEC",))
            flags += [code == 0 for code, _ in (await self.pipe(queue, commands))[3::4]]
        return flags

    async def replace(self, queue: str, job_id: str, payload: bytes) -> bool:
        """Give a pending job other data."""
        codec.check_payload(f"data of job {job_id!r}", payload)
        return bool(await self.own("replace", queue, job_id, payload))

    async def revive(
        self, queue: str, ids: Sequence[str], reset_attempts: bool = True
    ) -> Sequence[bool]:
        """Put finished jobs back in line."""
        flags = ""
        for some in chunks(ids):
            flags += (await self.own("revive", queue, int(reset_attempts), 0, *some)).decode()
        return [flag == "1" for flag in flags]

    async def rerun(self, queue: str, seen: Sequence[Seen]) -> Sequence[bool]:
        """Put finished jobs back in line that still have the end that was seen."""
        flags = ""
        for some in chunks(seen):
            flags += (await self.own("revive", queue, 1, 1, *_pairs(some))).decode()
        return [flag == "1" for flag in flags]

    async def discard(self, queue: str, seen: Sequence[Seen]) -> Sequence[bool]:
        """Delete finished jobs that still have the end that was seen.

        Jobs of flows and schedulers are looked at and deleted in two steps.
        """
        gone: list[bool] = []
        for some in chunks(seen):
            letters = (await self.own("discard", queue, *_pairs(some))).decode()
            for one, letter in zip(some, letters, strict=True):
                tied = letter == "o" and await self.drop_officially(queue, one.id) == "x"
                gone.append(letter == "x" or tied)
        return gone

    async def _flags(self, queue: str, commands: Sequence[Command]) -> list[bool]:
        flags: list[bool] = []
        for some in chunks(commands):
            flags += [code == 0 for code in await self.pipe(queue, some)]
        return flags


def _pairs(seen: Sequence[Seen]) -> Iterator[str | int]:
    for one in seen:
        yield from (one.id, one.finished_ms)
