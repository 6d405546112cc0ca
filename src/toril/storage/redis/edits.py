"""Change jobs that wait or ran, and note how far a running one is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from toril.job import JobSpec
from toril.outcome import Answer, Lease
from toril.storage.redis import codec
from toril.storage.redis.layout import chunks
from toril.storage.redis.link import Argument, Link
from toril.storage.redis.produce import Produce


class EditJobs(Produce):
    """The verbs of `Edits`."""

    async def promote(self, queue: str, ids: Sequence[str]) -> Sequence[bool]:
        """Let delayed jobs start now."""
        return await self._flags("edit", queue, ids, "promote", "")

    async def reprioritize(self, queue: str, ids: Sequence[str], priority: int) -> Sequence[bool]:
        """Give pending jobs another priority."""

        def change(spec: JobSpec) -> JobSpec:
            return replace(spec, terms=replace(spec.terms, priority=priority))

        return await self._respec("priority", queue, ids, priority, change)

    async def reschedule(self, queue: str, ids: Sequence[str], delay_ms: int) -> Sequence[bool]:
        """Let delayed jobs start at another time."""
        return await self._flags("edit", queue, ids, "delay", delay_ms)

    async def replace(self, queue: str, job_id: str, payload: bytes) -> bool:
        """Give a pending job other data."""

        def change(spec: JobSpec) -> JobSpec:
            return replace(spec, payload=payload)

        return (await self._respec("data", queue, [job_id], 0, change))[0]

    async def _respec(
        self,
        what: str,
        queue: str,
        ids: Sequence[str],
        value: int,
        change: Callable[[JobSpec], JobSpec],
    ) -> Sequence[bool]:
        """Send changed specs along; the script keeps or drops them with the rest of the change."""
        changed: list[bool] = []
        for some in chunks(ids):
            args: list[Argument] = []
            for job_id, record in zip(some, await self.get(queue, some), strict=True):
                spec = b"" if record is None else codec.pack_spec(change(record.spec))
                args += (job_id, spec)
            flags = await self._run("edit", queue, what, value, *args)
            changed += [bool(flag) for flag in flags]
        return changed

    async def revive(
        self, queue: str, ids: Sequence[str], reset_attempts: bool = True
    ) -> Sequence[bool]:
        """Put finished jobs back in line."""
        return await self._flags("edit", queue, ids, "revive", int(reset_attempts))


class WriteNotes(Link):
    """The verbs of `Notes`."""

    async def progress(self, queue: str, notes: Sequence[tuple[Lease, bytes]]) -> Sequence[Answer]:
        """Record the newest progress of running jobs."""
        return await self._note("p", queue, notes)

    async def log(self, queue: str, notes: Sequence[tuple[Lease, str]]) -> Sequence[Answer]:
        """Append lines to the logs of running jobs."""
        return await self._note("l", queue, notes)

    async def _note(
        self, kind: str, queue: str, notes: Sequence[tuple[Lease, str | bytes]]
    ) -> list[Answer]:
        answers: list[Answer] = []
        for some in chunks(notes):
            args: list[Argument] = []
            for lease, text in some:
                args += (lease.job_id, lease.token, lease.note, text)
            letters = await self._run("note", queue, kind, *args)
            answers += [codec.ANSWERS[letter] for letter in letters.decode()]
        return answers

    async def logs(
        self, queue: str, job_id: str, start: int = 0, stop: int | None = None
    ) -> Sequence[str]:
        """Read kept lines, oldest first."""
        key = f"{self._base(queue)}logs:{job_id}"
        last = -1 if stop is None else stop - 1
        if stop is not None and stop <= start:
            return ()
        lines = cast("list[bytes]", await self._call(key, "LRANGE", key, start, last))
        return [line.decode() for line in lines]
