"""Hand jobs in, read them, take them back, wait for their endings."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple, cast

from toril.drafts import Drafts
from toril.ids import token
from toril.job import JobRecord, JobSpec
from toril.storage.bullmq import codec
from toril.storage.bullmq.codes import refused
from toril.storage.bullmq.intake import (
    NONE,
    add_command,
    added,
    added_alone,
    created,
    first_state,
    script_for,
)
from toril.storage.bullmq.joins import Joins
from toril.storage.bullmq.keys import Keys
from toril.storage.bullmq.link import ENDING_KEPT_MS, Link, chunks
from toril.storage.bullmq.scripts import Command, call
from toril.storage.bullmq.texts import Texts, write_texts
from toril.storage.bullmq.waits import Endings, Tell, read_ending
from toril.storage.created import join
from toril.storage.protocol import Cancellation, Ending, Receipt, Removal
from toril.storage.quick import new_receipt

_ADDED_AT_ONCE: Final = 50
"""Jobs per call of a batch script: under a millisecond of server time."""
_OFFICIALLY: Final = 25
"""Jobs per pipeline of official scripts."""
_UNDER_WAY: Final = 4
"""Calls of batch scripts that may be without a reply."""
_TERMS: Final = attrgetter("terms")
_WORTH_A_BATCH: Final = 5
"""So many jobs for one script among others are worth a call of their own."""
_CANCELLATIONS: Final = {
    "x": Cancellation.CANCELLED,
    "n": Cancellation.NOT_FOUND,
    "a": Cancellation.PROCESSING,
    "r": Cancellation.REQUESTED,
    "c": Cancellation.COMPLETED,
    "f": Cancellation.FAILED,
}
_REMOVALS: Final = {"x": Removal.REMOVED, "n": Removal.NOT_FOUND, "a": Removal.ACTIVE}


class Piece(NamedTuple):
    """Jobs that are added together: by one call of a batch script, or each officially."""

    script: str
    jobs: Sequence[JobSpec]


class Flight(NamedTuple):
    """A call of a batch script that is under way; `last`: id and options of its last job."""

    piece: Piece
    sending: asyncio.Task[int]
    last: tuple[str, str]


class Produce(Link):
    """The producer's verbs."""

    async def enqueue(self, queue: str, jobs: Sequence[JobSpec]) -> Sequence[Receipt]:
        """Store each job unless its id or dedup key is taken."""
        keys = await self.meet(queue)
        if not jobs:
            return ()
        _check_payloads(jobs)
        script = self._script_for(jobs[0]) if len(jobs) == 1 else NONE
        if script and self.takes(script, queue):
            receipts: Sequence[Receipt] = [await self._joins_of(script, queue).hand_in(jobs[0])]
        else:
            receipts = await self._add_all(keys, queue, jobs)
        await self.secure(queue)
        return receipts

    def _joins_of(self, script: str, queue: str) -> Joins:
        joins = self._joins.get((script, queue))
        if joins is None:
            keys = self.keys(queue)
            add_one = partial(self._add_one, keys, queue, script)
            joins = Joins(partial(self._add_all, keys, queue), add_one)
            self._joins[script, queue] = joins
        return joins

    async def _add_all(self, keys: Keys, queue: str, jobs: Sequence[JobSpec]) -> Sequence[Receipt]:
        """Add jobs in pieces; some are written and sent while the server works on others.

        Each call of a batch script names the last job of the one before, and leaves everything
        if it is not there; so jobs line up in order, whatever becomes of the calls under way.
        """
        receipts: list[Sequence[Receipt]] = []
        flights: deque[Flight] = deque()
        try:
            for piece in self._pieces(queue, jobs):
                if not piece.script:
                    receipts.append(await self._land(keys, queue, flights))
                    receipts.append(await self._add_officially(keys, queue, piece.jobs))
                    continue
                guard = flights[-1].last if flights else ("", "")
                options = write_texts(piece.jobs)
                adding = self._add_batch(queue, piece, options, guard)
                if len(piece.jobs) == len(jobs):  # no other piece to go out meanwhile
                    done = await adding
                    there = created(piece.script, jobs[:done])
                    if done == len(jobs):
                        return there
                    return join([there, await self._add_left(keys, queue, jobs[done:])])
                sending, last = asyncio.create_task(adding), piece.jobs[-1].id
                flights.append(Flight(piece, sending, (last, options.last(last))))
                await asyncio.sleep(0)  # it goes out
                if len(flights) >= _UNDER_WAY or piece.script not in self._answered:
                    receipts.append(await self._land(keys, queue, flights, wait_for=1))
            receipts.append(await self._land(keys, queue, flights))
            return join(receipts)
        finally:
            for flight in flights:
                flight.sending.cancel()
            await asyncio.gather(*(one.sending for one in flights), return_exceptions=True)

    async def _add_batch(
        self, queue: str, piece: Piece, options: Texts, guard: tuple[str, str]
    ) -> int:
        """Call a batch script; tell how many of the jobs it added."""
        script, jobs = piece
        awaited = [] if isinstance(jobs, Drafts) else [spec.id for spec in jobs if spec.reply]
        arguments = added(script, jobs, options, guard)
        return await self._run(queue, script, arguments, len(jobs), awaited)

    async def _add_one(self, keys: Keys, queue: str, script: str, spec: JobSpec) -> Receipt:
        """Add a job that nothing goes out with."""
        awaited = (spec.id,) if spec.reply else ()
        if await self._run(queue, script, added_alone(script, spec), 1, awaited):
            return new_receipt(id=spec.id, created=True, state=first_state(spec))
        (receipt,) = await self._add_left(keys, queue, (spec,))
        return receipt

    async def _run(
        self,
        queue: str,
        script: str,
        arguments: Sequence[str | bytes],
        count: int,
        awaited: Sequence[str],
    ) -> int:
        """Call a batch script; tell how many of the `count` jobs it added."""
        see = self._endings_of(queue).expect(awaited, count) if awaited else None
        done = cast("tuple[int, bytes]", await self.own(script, queue, *arguments, see=see))[0]
        self._answered.add(script)
        if done < 0:
            self.refuses(script, queue)
        return max(0, done)

    async def _land(
        self, keys: Keys, queue: str, flights: deque[Flight], wait_for: int = _UNDER_WAY
    ) -> Sequence[Receipt]:
        """Read what became of the oldest calls; add what they left, before anything else."""
        receipts: list[Sequence[Receipt]] = []
        left: list[JobSpec] = []
        while flights and (wait_for > 0 or left):
            done = await flights[0].sending
            script, jobs = flights.popleft().piece
            wait_for -= 1
            receipts.append(created(script, jobs[:done]))
            left += jobs[done:]
        if left:
            receipts.append(await self._add_left(keys, queue, left))
        return join(receipts)

    async def _add_left(self, keys: Keys, queue: str, left: Sequence[JobSpec]) -> list[Receipt]:
        """Add by the official scripts what a batch script left."""
        receipts: list[Receipt] = []
        for some in chunks(left, _OFFICIALLY):
            receipts += await self._add_officially(keys, queue, some)
        return receipts

    def _pieces(self, queue: str, jobs: Sequence[JobSpec]) -> Iterator[Piece]:
        """Cut jobs into pieces: runs for one batch script, and what is between them."""
        if isinstance(jobs, Drafts) and jobs.alike:
            script = self._script_for(jobs[0])
            if script and self.takes(script, queue):
                yield from (Piece(script, some) for some in chunks(jobs, _ADDED_AT_ONCE))
                return
        others: list[JobSpec] = []
        for script, run in self._runs(jobs):
            worth = len(run) >= min(_WORTH_A_BATCH, len(jobs))
            if not (script and worth and self.takes(script, queue)):
                others += run
                continue
            yield from (Piece(NONE, some) for some in chunks(others, _OFFICIALLY))
            others = []
            yield from (Piece(script, some) for some in chunks(run, _ADDED_AT_ONCE))
        yield from (Piece(NONE, some) for some in chunks(others, _OFFICIALLY))

    def _runs(self, jobs: Sequence[JobSpec]) -> Iterator[tuple[str, list[JobSpec]]]:
        """Find jobs in a row for the same script; added together, they mostly share their terms."""
        if self.ids == "counter":
            for script, group in groupby(jobs, self._script_for):
                yield script, list(group)
            return
        row: list[JobSpec] = []
        script_of_row = NONE
        for terms, group in groupby(jobs, _TERMS):
            script = script_for(terms)
            if script != script_of_row and row:
                yield script_of_row, row
                row = []
            script_of_row = script
            row += group
        yield script_of_row, row

    async def _add_officially(
        self, keys: Keys, queue: str, jobs: Sequence[JobSpec]
    ) -> list[Receipt]:
        """Add jobs by the official scripts, each in a transaction, in one pipeline."""
        commands = [
            command for spec in jobs for command in await self._transaction(keys, queue, spec)
        ]
        counted = any(map(self._is_counted, jobs))
        replies = await self.pipe(queue, commands, once=counted)
        return [
            await self._read_added(queue, spec, reply)
            for spec, reply in zip(jobs, replies[3::4], strict=True)
        ]

    async def _read_added(self, queue: str, spec: JobSpec, reply: Any) -> Receipt:
        """Read what became of a job that was added officially."""
        if self._is_counted(spec):
            return await self._counted_receipt(queue, spec, *reply)
        return await self._receipt(queue, spec, *reply)

    async def _transaction(self, keys: Keys, queue: str, spec: JobSpec) -> list[Command]:
        """Write the commands that ask who has an id and add the job by the official script."""
        now = await (self.later if spec.terms.delay_ms else self.now)(queue)
        if self._is_counted(spec):
            add = add_command(keys, replace(spec, id=""), now)
            return [("MULTI",), add, ("GET", keys.of("id")), ("EXEC",)]
        dedup = spec.terms.dedup
        return [
            ("MULTI",),
            self.own_command(
                "ready",
                queue,
                *(spec.id, spec.origin, int(spec.requeue_failed)),
                "" if dedup is None else dedup.key,
            ),
            add_command(keys, spec, now),
            ("EXEC",),
        ]

    async def _counted_receipt(
        self, queue: str, spec: JobSpec, added: bytes | int, counter: bytes
    ) -> Receipt:
        """Tell a new job, which has the newest number, from the one that held its dedup key."""
        if isinstance(added, int) and added < 0:
            raise refused("add", spec.id, added)
        job_id = _decode(added)
        if job_id == counter.decode():
            return Receipt(id=job_id, created=True, state=first_state(spec))
        (record,) = await self.get(queue, [job_id])
        state = None if record is None else record.state
        return Receipt(id=job_id, created=False, state=state, deduplicated=True)

    def _is_counted(self, spec: JobSpec) -> bool:
        """Whether the id was made for the hand-in, and the counter is to make it instead."""
        return self.ids == "counter" and spec.fresh

    def _script_for(self, spec: JobSpec) -> str:
        return NONE if self._is_counted(spec) else script_for(spec.terms)

    async def _receipt(
        self, queue: str, spec: JobSpec, there: Sequence[bytes], added: bytes | int
    ) -> Receipt:
        if isinstance(added, int) and added < 0:
            raise refused("add", spec.id, added)
        holder = _decode(added)
        if there and there[2]:
            holder = there[2].decode()
        if not there and holder == spec.id:
            return Receipt(id=spec.id, created=True, state=first_state(spec))
        if holder != spec.id or (there and there[2]):
            if spec.reply:
                await self.own("mark", queue, holder)
            (record,) = await self.get(queue, [holder])
            state = None if record is None else record.state
            return Receipt(id=holder, created=False, state=state, deduplicated=True)
        ours = there[1] == b"1"
        if spec.reply and not ours:
            await self.own("mark", queue, spec.id)
        return Receipt(id=spec.id, created=ours, state=codec.STATES[there[0]])

    async def get(self, queue: str, ids: Sequence[str]) -> Sequence[JobRecord | None]:
        """Read jobs."""
        records: list[JobRecord | None] = []
        for some in chunks(ids):
            found = await self.own("get", queue, *some)
            records += [read_found(job_id, one) for job_id, one in zip(some, found, strict=True)]
        return records

    async def cancel(
        self, queue: str, ids: Sequence[str], running: bool = False
    ) -> Sequence[Cancellation]:
        """Delete jobs that have not started; with `running`, ask the owners of those that have."""
        letters = await self._drop("request" if running else "cancel", queue, ids)
        return [_CANCELLATIONS[letter] for letter in letters]

    async def remove(self, queue: str, ids: Sequence[str]) -> Sequence[Removal]:
        """Delete jobs in any state but active."""
        return [_REMOVALS[letter] for letter in await self._drop("remove", queue, ids)]

    async def _drop(self, mode: str, queue: str, ids: Sequence[str]) -> str:
        letters = ""
        for some in chunks(ids):
            raw = await self.own("drop", queue, mode, ENDING_KEPT_MS, token(), *some)
            for job_id, letter in zip(some, raw.decode(), strict=True):
                letters += await self.drop_officially(queue, job_id) if letter == "o" else letter
        return letters

    async def drop_officially(self, queue: str, job_id: str) -> str:
        """Remove a job that belongs to a flow or a scheduler, with all that hangs on it."""
        keys = self.keys(queue)
        command = call("removeJob", keys, job_id, "1", keys.base, job_id=job_id)
        code = cast("int", await self.official(queue, command))
        if code < 0:
            raise refused("removeJob", job_id, code)
        return "x" if code else "a"

    async def keep(self, queue: str, ids: Sequence[str], keep_ms: int | None) -> Sequence[bool]:
        """Restart the keep time of finished jobs."""
        flags = ""
        for some in chunks(ids):
            till = "" if keep_ms is None else keep_ms
            flags += (await self.own("keep", queue, till, *some)).decode()
        return [flag == "1" for flag in flags]

    async def finished(self, queue: str, ids: Sequence[str], block_ms: int) -> Sequence[Ending]:
        """Return the endings known now, or wait for the first one."""
        endings = self._endings_of(queue)
        asked = list(dict.fromkeys(ids))

        async def ask() -> Sequence[Ending]:
            found: list[Ending] = []
            for some in chunks(asked):
                answers = await self.own("ended", queue, *some)
                for job_id, answer in zip(some, answers, strict=True):
                    if answer is not None:
                        found.append(read_ending(job_id, answer, endings.told(job_id)))
            return found

        deadline = self.clock.monotonic() + block_ms / 1000
        return await endings.wait(asked, self.clock, deadline, ask)

    def hear(self, queue: str, job_id: str, tell: Tell) -> bool:
        """Tell of the ending that the events bring, of a job handed in just now."""
        return self._endings_of(queue).hear(job_id, tell)

    def _endings_of(self, queue: str) -> Endings:
        endings = self._endings.get(queue)
        if endings is None:
            key = self.keys(queue).of("events")
            endings = self._endings[queue] = Endings(self.client, key)
        return endings


def _check_payloads(jobs: Sequence[JobSpec]) -> None:
    """Refuse data that Node could not read; most is ASCII, and none of that is looked at."""
    payloads = jobs.payloads if isinstance(jobs, Drafts) else [spec.payload for spec in jobs]
    if all(map(bytes.isascii, payloads)):
        return
    for number, payload in enumerate(payloads):
        if not payload.isascii():
            codec.check_payload(f"data of job {jobs[number].id!r}", payload)


def _decode(raw: bytes | int) -> str:
    return raw.decode() if isinstance(raw, bytes) else str(raw)


def read_found(job_id: str, found: Sequence[Any] | None) -> JobRecord | None:
    """Read what `get.lua` found of one job."""
    if found is None:
        return None
    state, score, flat = found
    due_ms = None if score is None else int(float(score)) // 4096
    return codec.read_record(job_id, codec.fields_of(flat), codec.STATES[state], due_ms)
