"""Look at a queue and tend it: everything that is neither handing in nor working."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Generic

from toril.errors import (
    EventsTrimmed,
    InvalidOption,
    InvalidPayload,
    JobError,
    UnsupportedFeature,
)
from toril.event import Cursor, Event
from toril.ids import NAME_LIMIT
from toril.job import FINISHED, In, Job, JobRecord, Out, State, Terms
from toril.options import JobOptions, options_size, whole
from toril.retry import Seconds, to_ms, to_seconds
from toril.serde import JsonSerde, Serde, check_size
from toril.storage.protocol import (
    Counts,
    Edits,
    Feature,
    Limits,
    Notes,
    Removal,
    Storage,
    WorkerInfo,
)
from toril.text import printable, suggest
from toril.whence import caller_and_function

if TYPE_CHECKING:
    from toril.worker_options import Limiter

BATCH: Final = 1000
"""How many jobs one call to a storage carries at most."""

_OPTIONS_ROOM: Final = 8192
"""More than options can take: data this far below the limit needs no exact sum."""

_EVENTS_BLOCK_MS: Final = 5_000
_OTHER_SERDE: Final = ", or set serde="
_ANNOTATE: Final = "annotate the task's parameter so that toril converts it"


class TendedQueue(Generic[In, Out]):
    """The part of a queue that operators use; `Queue` adds producing and working."""

    def __init__(
        self,
        name: str,
        storage: Storage,
        serde: Serde[In],
        result_serde: Serde[Out],
        defaults: JobOptions,
    ) -> None:
        self.name = name
        self.storage = storage
        self.serde = serde
        self.result_serde = result_serde
        self.defaults = defaults
        readable = getattr(serde, "max_bytes", None)
        self._readable = readable if isinstance(readable, int) else None
        roomy = defaults.size_limit - _OPTIONS_ROOM
        self._roomy = roomy if self._readable is None else min(roomy, self._readable)
        """So large may data be without another look, if the job has no options of its own."""
        self._opened = False
        self._opening = asyncio.Lock()

    async def _open(self) -> None:
        """Open the storage at first use; `_close` undoes it."""
        if self._opened:
            return
        async with self._opening:
            if not self._opened:
                await self.storage.open()
                self._opened = True

    async def _close(self) -> None:
        if self._opened:
            self._opened = False
            await self.storage.close()

    def require(self, feature: Feature, what: str) -> None:
        """Refuse an option the storage would have to ignore."""
        if feature not in self.storage.features:
            raise UnsupportedFeature(
                f"queue {self.name!r}: {what} is not supported by {self.storage.url} ({feature})"
            )

    def _encode(self, job_id: str, data: In, terms: Terms, size_limit: int) -> bytes:
        try:
            payload = self.serde.dumps(data)
        except InvalidPayload as error:
            raise unstorable(error) from None
        self._check_payload(job_id, payload, terms, size_limit)
        return payload

    def _check_payload(self, job_id: str, payload: bytes, terms: Terms, size_limit: int) -> None:
        """Refuse what is too large to store, or to read again."""
        if len(payload) > size_limit - _OPTIONS_ROOM:
            size = len(payload) + options_size(terms)
            check_size(f"data and options of job {job_id!r}", size, size_limit)
        if self._readable is not None and len(payload) > self._readable:
            raise InvalidPayload(
                f"data of job {job_id!r} takes {len(payload):,} bytes; this queue's serde reads "
                f"{self._readable:,}: raise size_limit= in its defaults, or max_bytes= of its serde"
            )

    def _result(self, payload: bytes | None) -> Out | None:
        return None if payload is None else self.result_serde.loads(payload)

    def _edits(self) -> Edits:
        if not isinstance(self.storage, Edits):
            raise UnsupportedFeature(f"{self.storage.url} cannot change jobs")
        return self.storage

    def _notes(self) -> Notes:
        if not isinstance(self.storage, Notes):
            raise UnsupportedFeature(f"{self.storage.url} keeps no progress and logs")
        return self.storage

    def _limits(self) -> Limits:
        if not isinstance(self.storage, Limits):
            raise UnsupportedFeature(f"{self.storage.url} has no limits per queue")
        return self.storage

    # -- look ------------------------------------------------------------------------------

    async def _get(self, ids: Sequence[str]) -> Sequence[JobRecord | None]:
        known = [known_id(job_id) for job_id in ids]
        await self._open()
        return await self.storage.get(self.name, known)

    async def get_job(self, id: str) -> Job[In, Out] | None:
        """Read a job, None if it is unknown."""
        (record,) = await self._get([id])
        return None if record is None else self._job(record)

    async def get_jobs(
        self, state: State | str, start: int = 0, stop: int = 100
    ) -> Sequence[Job[In, Out]]:
        """Read jobs start <= n < stop of a state: next to run first, newest finished first."""
        chosen = _state(state)
        whole("start", start, 0)
        whole("stop", stop, 0)
        await self._open()
        return [self._job(r) for r in await self.storage.peek(self.name, chosen, start, stop)]

    def _job(self, record: JobRecord) -> Job[In, Out]:
        spec = record.spec
        return Job(
            id=spec.id,
            name=spec.name,
            queue=self.name,
            data=self.serde.loads(spec.payload),
            state=record.state,
            terms=spec.terms,
            created_at=to_time(record.created_ms),
            due_at=_optional_time(record.due_ms),
            attempts_made=record.attempts_made,
            attempts_started=record.attempts_started,
            stalls=record.stalls,
            processed_at=_optional_time(record.processed_ms),
            finished_at=_optional_time(record.finished_ms),
            worker_id=record.worker_id,
            progress=None if record.progress is None else JsonSerde().loads(record.progress),
            result=self._result(record.result),
            error=record.failure,
            stacktrace=record.stacktrace,
        )

    async def get_job_counts(self) -> Counts:
        """Count the jobs by state."""
        await self._open()
        return await self.storage.counts(self.name)

    async def get_workers(self) -> Sequence[WorkerInfo]:
        """Name the workers seen lately."""
        await self._open()
        return await self.storage.workers(self.name)

    async def logs(self, id: str, start: int = 0, stop: int | None = None) -> Sequence[str]:
        """Read a job's log lines, oldest first."""
        job_id = known_id(id)
        notes = self._notes()
        await self._open()
        return await notes.logs(self.name, job_id, start, stop)

    async def events(
        self, after: Cursor | None = None, *, skip_trimmed: bool = False
    ) -> AsyncIterator[Event]:
        """Follow what happens, from now on or after a cursor, without end.

        Raises `EventsTrimmed` when events were dropped before they could be read, unless
        `skip_trimmed`.
        """
        await self._open()
        place = await self.storage.cursor(self.name) if after is None else after
        while True:
            try:
                events = await self.storage.events(self.name, place, block_ms=_EVENTS_BLOCK_MS)
            except EventsTrimmed as gap:
                if not skip_trimmed:
                    raise
                place = gap.resume
                continue
            for event in events:
                place = event.cursor
                yield event

    # -- tend ------------------------------------------------------------------------------

    async def pause(self) -> None:
        """Let workers everywhere take no more jobs; running ones go on."""
        await self._open()
        await self.storage.pause(self.name, True)

    async def resume(self) -> None:
        """Let workers take jobs again."""
        await self._open()
        await self.storage.pause(self.name, False)

    async def is_paused(self) -> bool:
        """Whether the queue is paused."""
        return (await self.get_job_counts()).paused

    async def remove_job(self, id: str) -> bool:
        """Delete a job; False if it is unknown. A running one is refused."""
        job_id = known_id(id)
        await self._open()
        (removal,) = await self.storage.remove(self.name, [job_id])
        if removal is Removal.ACTIVE:
            raise JobError(
                f"job {id!r} is running; cancel it with cancel(id, running=True)", job_id=id
            )
        return removal is Removal.REMOVED

    async def clean(
        self, grace: Seconds = 0, limit: int = 1000, state: State | str = State.COMPLETED
    ) -> Sequence[str]:
        """Delete up to `limit` jobs that are in `state` for `grace` or longer; return their ids."""
        older_ms = to_ms(to_seconds("grace", grace))
        chosen = _state(state)
        whole("limit", limit, 1)
        await self._open()
        return await self.storage.purge(self.name, [chosen], older_ms, limit)

    async def drain(self, *, delayed: bool = False) -> int:
        """Delete the jobs that wait, with `delayed` also those that wait for their time."""
        states = [State.WAITING, State.PRIORITIZED, *([State.DELAYED] if delayed else [])]
        await self._open()
        return len(await self.storage.purge(self.name, states, 0))

    async def obliterate(self, *, force: bool = False) -> None:
        """Delete the queue and all it holds; with `force` even if jobs are running."""
        await self._open()
        await self.storage.destroy(self.name, force)

    async def retry_jobs(self, state: State | str = State.FAILED, limit: int | None = None) -> int:
        """Put finished jobs back in line with all their attempts; return how many."""
        chosen = _state(state)
        if chosen not in FINISHED:
            raise InvalidOption(
                f"state={chosen.value!r}: only completed or failed jobs are retried"
            )
        edits = self._edits()
        return await self._sweep(chosen, limit, lambda ids: edits.revive(self.name, ids))

    async def promote_jobs(self, limit: int | None = None) -> int:
        """Let delayed jobs start now; return how many."""
        edits = self._edits()
        return await self._sweep(State.DELAYED, limit, lambda ids: edits.promote(self.name, ids))

    async def _sweep(
        self,
        state: State,
        limit: int | None,
        change: Callable[[Sequence[str]], Awaitable[Sequence[bool]]],
    ) -> int:
        """Change the jobs now in a state, page by page: oldest finished, or next to run, first."""
        most = None if limit is None else whole("limit", limit, 1)
        await self._open()
        left = (await self.storage.counts(self.name)).of(state)
        if most is not None:
            left = min(left, most)
        done = 0
        while left > 0:
            ids = await self._first_ids(state, min(left, BATCH))
            if not ids:
                break
            done += sum(await change(ids))
            left -= len(ids)
        return done

    async def _first_ids(self, state: State, size: int) -> list[str]:
        if state not in FINISHED:
            return [r.spec.id for r in await self.storage.peek(self.name, state, 0, size)]
        # The newest finished comes first, so the oldest are at the end.
        there = (await self.storage.counts(self.name)).of(state)
        page = await self.storage.peek(self.name, state, max(0, there - size), there)
        return [record.spec.id for record in reversed(page)]

    async def promote(self, id: str) -> bool:
        """Let a delayed job start now; False if it is not delayed."""
        edits, job_id = self._edits(), known_id(id)
        await self._open()
        return (await edits.promote(self.name, [job_id]))[0]

    async def retry_job(self, id: str) -> bool:
        """Put a finished job back in line; False if it is not finished."""
        edits, job_id = self._edits(), known_id(id)
        await self._open()
        return (await edits.revive(self.name, [job_id]))[0]

    async def change_priority(self, id: str, priority: int) -> bool:
        """Give a job that waits another priority (1 = most urgent, 0 = none)."""
        JobOptions(priority=priority)
        edits, job_id = self._edits(), known_id(id)
        await self._open()
        return (await edits.reprioritize(self.name, [job_id], priority))[0]

    async def change_delay(self, id: str, delay: Seconds) -> bool:
        """Let a delayed job start `delay` from now."""
        delay_ms = to_ms(to_seconds("delay", delay))
        edits, job_id = self._edits(), known_id(id)
        await self._open()
        return (await edits.reschedule(self.name, [job_id], delay_ms))[0]

    async def update_data(self, id: str, data: In) -> bool:
        """Give a job that has not started other data."""
        job_id = known_id(id)
        payload = self._encode(job_id, data, self.defaults.terms(), self.defaults.size_limit)
        edits = self._edits()
        await self._open()
        return await edits.replace(self.name, job_id, payload)

    async def tune(
        self,
        *,
        concurrency: int | None = None,
        limiter: Limiter | None = None,
        events_kept: int | None = None,
    ) -> None:
        """Bound the queue over all its workers; None lifts a bound."""
        if concurrency is not None:
            whole("concurrency", concurrency, 1)
        if events_kept is not None:
            whole("events_kept", events_kept, 1)
        rate = None if limiter is None else limiter.rate()
        if rate is not None:
            self.require(Feature.RATE_LIMIT, "limiter")
        limits = self._limits()
        await self._open()
        await limits.tune(self.name, concurrency=concurrency, rate=rate, events_kept=events_kept)


def unstorable(error: InvalidPayload) -> InvalidPayload:
    """Say what a serde refused in the words of the caller: which part of `data`, and where."""
    fact, _, way_out = str(error).replace("encode $", "encode data", 1).partition("; ")
    line = caller_and_function()
    where = f", called at {line}" if line else ""
    way_out = way_out.replace(_OTHER_SERDE, f", {_ANNOTATE}{_OTHER_SERDE}")
    fix = f". fix: {way_out}" if way_out else ""
    return InvalidPayload(f"toril[E04] {fact}{where}{fix}", path=error.path)


def known_id(job_id: object) -> str:
    """Check an id that is only looked up: it may be one that others made."""
    if not isinstance(job_id, str):
        raise InvalidOption(f"job id {printable(job_id, 60)}: use str, not {type(job_id).__name__}")
    if not 0 < len(job_id) <= NAME_LIMIT:
        raise InvalidOption(f"job id of {len(job_id)} characters: allowed 1..{NAME_LIMIT}")
    return job_id


def to_time(ms: int) -> datetime:
    """Read a storage's milliseconds."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def _optional_time(ms: int | None) -> datetime | None:
    return None if ms is None else to_time(ms)


def _state(state: State | str) -> State:
    try:
        return State(state)
    except ValueError:
        known = [str(one) for one in State]
        raise InvalidOption(
            f"unknown state {state!r}.{suggest(str(state), known)} Known: {', '.join(known)}"
        ) from None
