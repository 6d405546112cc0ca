"""Hand jobs in, read them, take them back, wait for their endings."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import chain
from typing import Final, cast

from toril.drafts import Drafts
from toril.job import JobRecord, JobSpec
from toril.storage.created import Created, ids_of, join
from toril.storage.protocol import Cancellation, Ending, Receipt, Removal
from toril.storage.redis import codec
from toril.storage.redis.intake import KNOWN
from toril.storage.redis.layout import CHUNK, chunks
from toril.storage.redis.link import Link
from toril.storage.redis.waits import Known, Replies, Tell

_FIRST: Final = 64
_UNDER_WAY: Final = 2
"""Calls of one `enqueue` that the server has not answered: it works on one, reads the next."""
_ASK_MS: Final = 1_000
"""How long a wait for a result trusts the push before it asks."""

_CANCELLATIONS: Final = {
    "x": Cancellation.CANCELLED,
    "n": Cancellation.NOT_FOUND,
    "a": Cancellation.PROCESSING,
    "r": Cancellation.REQUESTED,
    "c": Cancellation.COMPLETED,
    "f": Cancellation.FAILED,
}
_REMOVALS: Final = {"r": Removal.REMOVED, "n": Removal.NOT_FOUND, "a": Removal.ACTIVE}


class Produce(Link):
    """The producer's verbs."""

    async def enqueue(self, queue: str, jobs: Sequence[JobSpec]) -> Sequence[Receipt]:
        """Store each job unless its id or dedup key is taken."""
        self._check_open()
        if not jobs:
            return ()
        if not self._is_registered(queue):
            await self._register(queue)
        if len(jobs) > CHUNK:
            return await self._enqueue_many(queue, jobs)
        return await self._hand_in(queue, jobs)

    async def _hand_in(self, queue: str, jobs: Sequence[JobSpec]) -> Sequence[Receipt]:
        args = self._intake.pack(jobs)
        awaited: dict[str, str] = {}
        if not isinstance(jobs, Drafts):
            awaited = {spec.id: spec.origin for spec in jobs if spec.reply and spec.origin}
        if awaited:
            self._mailbox(queue).promise(awaited, self.clock.monotonic())
        try:
            answers = cast(
                "int | list[bytes]",
                await self._run("enqueue", queue, *args, durable=True, again=KNOWN),
            )
            self._answered = True
            if isinstance(answers, int):
                return Created(ids_of(jobs))
            if answers[-1] == b"?":  # everything was deleted, the list of queues too
                answers.pop()
                await self._register(queue)
        except BaseException:
            for job_id in awaited:
                self._mailbox(queue).forgive(job_id)
            raise
        if awaited:
            for spec, answer in zip(jobs, answers, strict=True):
                if spec.reply and answer[:1] != b"+":  # another job, which may have ended
                    self._mailbox(queue).forgive(spec.id)
        return [
            _receipt(job_id, answer) for job_id, answer in zip(ids_of(jobs), answers, strict=True)
        ]

    async def _enqueue_many(self, queue: str, jobs: Sequence[JobSpec]) -> Sequence[Receipt]:
        """Send in pieces; the first is small, so that the server begins early."""
        receipts: list[Sequence[Receipt]] = []
        calls: deque[asyncio.Task[Sequence[Receipt]]] = deque()
        try:
            for some in chain((jobs[:_FIRST],), chunks(jobs[_FIRST:])):
                calls.append(asyncio.create_task(self._hand_in(queue, some)))
                await asyncio.sleep(0)  # it goes out; the next are packed while the server works
                while len(calls) > (_UNDER_WAY if self._answered else 0):
                    receipts.append(await calls.popleft())
            while calls:
                receipts.append(await calls.popleft())
        finally:
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        return join(receipts)

    async def cancel(
        self, queue: str, ids: Sequence[str], running: bool = False
    ) -> Sequence[Cancellation]:
        """Delete jobs that have not started; with `running`, ask the owners of those that have."""
        letters = await self._letters("cancel", queue, ids, int(running))
        return [_CANCELLATIONS[letter] for letter in letters]

    async def get(self, queue: str, ids: Sequence[str]) -> Sequence[JobRecord | None]:
        """Read jobs."""
        records: list[JobRecord | None] = []
        for some in chunks(ids):
            records += codec.read_records(some, await self._run("get", queue, *some))
        return records

    async def remove(self, queue: str, ids: Sequence[str]) -> Sequence[Removal]:
        """Delete jobs in any state but active."""
        return [_REMOVALS[letter] for letter in await self._letters("remove", queue, ids)]

    async def keep(self, queue: str, ids: Sequence[str], keep_ms: int | None) -> Sequence[bool]:
        """Restart the keep time of finished jobs."""
        till = "" if keep_ms is None else keep_ms
        return await self._flags("keep", queue, ids, till)

    async def finished(self, queue: str, ids: Sequence[str], block_ms: int) -> Sequence[Ending]:
        """Return the endings known now, or wait for the first one."""
        self._check_open()
        replies = self._mailbox(queue)

        async def ask() -> Known:
            flat = await self._run("finished", queue, self._me, *dict.fromkeys(ids))
            endings: list[Ending] = []
            origins: dict[str, str] = {}
            for at in range(0, len(flat), 3):
                job_id, letter, payload = flat[at].decode(), flat[at + 1].decode(), flat[at + 2]
                if letter == "p":
                    origins[job_id] = payload.decode()
                else:
                    endings.append(codec.read_ending(job_id, letter, payload))
            return endings, origins

        deadline = self.clock.monotonic() + block_ms / 1000
        while self._opened:
            until = min(deadline, self.clock.monotonic() + _ASK_MS / 1000)
            endings = await replies.wait(ids, self.clock, until, ask)
            if endings or self.clock.monotonic() >= deadline:
                return endings
        return ()

    def hear(self, queue: str, job_id: str, tell: Tell) -> bool:
        """Tell of the ending that is pushed to us, of a job handed in just now."""
        return self._mailbox(queue).hear(job_id, self.clock, tell)

    def _mailbox(self, queue: str) -> Replies:
        replies = self._replies.get(queue)
        if replies is None:
            key = f"{self._base(queue)}reply:{self._me}"
            replies = self._replies[queue] = Replies(self._client, key)
        return replies


def _receipt(job_id: str, answer: bytes) -> Receipt:
    kind, letter, holder = answer[:1], answer[1:2].decode(), answer[3:].decode()
    if kind == b"~":
        return Receipt(id=holder, created=False, state=codec.STATES.get(letter), deduplicated=True)
    return Receipt(id=job_id, created=kind == b"+", state=codec.STATES[letter])
