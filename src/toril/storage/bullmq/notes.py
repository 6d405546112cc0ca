"""Write progress and logs under leases; set the limits of queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from toril.outcome import DONE, GONE, LOST, Answer, Lease
from toril.storage.bullmq import codec
from toril.storage.bullmq.link import Link, chunks
from toril.storage.protocol import Rate

_ANSWERS: Final[Mapping[str, Answer]] = {"D": DONE, "L": LOST, "G": GONE}


class WriteNotes(Link):
    """The facet `Notes`."""

    async def progress(self, queue: str, notes: Sequence[tuple[Lease, bytes]]) -> Sequence[Answer]:
        """Record the newest progress of running jobs."""
        texts = [
            (lease, codec.check_payload(f"progress of job {lease.job_id!r}", value))
            for lease, value in notes
        ]
        return await self._note("p", queue, texts)

    async def log(self, queue: str, notes: Sequence[tuple[Lease, str]]) -> Sequence[Answer]:
        """Append lines to the logs of running jobs."""
        return await self._note("l", queue, [(lease, codec.clean(line)) for lease, line in notes])

    async def _note(
        self, kind: str, queue: str, notes: Sequence[tuple[Lease, str]]
    ) -> list[Answer]:
        answers: list[Answer] = []
        for some in chunks(notes):
            args = [part for lease, text in some for part in (lease.job_id, lease.token, text)]
            letters = (await self.own("note", queue, kind, *args)).decode()
            answers += [_ANSWERS[letter] for letter in letters]
        return answers

    async def logs(
        self, queue: str, job_id: str, start: int = 0, stop: int | None = None
    ) -> Sequence[str]:
        """Read kept lines, oldest first."""
        if stop is not None and stop <= start:
            return ()
        key = self.keys(queue).logs(job_id)
        last = -1 if stop is None else stop - 1
        lines = cast("list[bytes]", await self.client.call(key, "LRANGE", key, start, last))
        return [line.decode(errors="replace") for line in lines]


class SetLimits(Link):
    """The facet `Limits`."""

    async def tune(
        self,
        queue: str,
        *,
        concurrency: int | None = None,
        rate: Rate | None = None,
        events_kept: int | None = None,
    ) -> None:
        """Set the bounds of a queue, which Node's workers obey too."""
        await self.own(
            "tune",
            queue,
            "" if concurrency is None else concurrency,
            "" if rate is None else rate.max,
            "" if rate is None else rate.duration_ms,
            "" if events_kept is None else events_kept,
        )
