"""Jobs on Redis or Valkey in a lean layout of our own; see `lua/prelude.lua` for the keys.

Each verb is one script call. The scripts take the server's time, check ownership and write
state and event together, so no two clients and no two clocks can disagree.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any, Final, TypeVar, cast

from toril.clock import Clock, SystemClock, wait_future
from toril.drafts import Drafts
from toril.errors import InvalidOption, QueueBusy, StorageClosed
from toril.event import Cursor, Event
from toril.ids import token, ulid
from toril.job import JobRecord, JobSpec, State
from toril.outcome import (
    CANCELLED,
    Answer,
    Lease,
    Outcome,
    Released,
)
from toril.resp.client import Client, Reply, Settings
from toril.resp.embedded import EmbeddedServer
from toril.resp.fit import check_fit
from toril.resp.url import Address, parse_url
from toril.resp.wakeups import BLOCK_S, WakeUps, came_before
from toril.storage.created import Created, ids_of, join
from toril.storage.protocol import (
    ALL_FEATURES,
    EMPTY_BATCH,
    Batch,
    Beat,
    Cancellation,
    Claim,
    Counts,
    Ending,
    Feature,
    Rate,
    Reaped,
    Receipt,
    Removal,
    Renewal,
    Seen,
    Settlement,
    WorkerInfo,
)
from toril.storage.redis import codec
from toril.storage.redis.heart import RedisBeat
from toril.storage.redis.intake import Intake
from toril.storage.redis.layout import (
    CHUNK,
    LAYOUT,
    PREFIX,
    base_of,
    check_layout,
    check_trimmed,
    check_twin,
    chunks,
    twins_of,
)
from toril.storage.redis.leases import lease_arguments, read_renewal
from toril.storage.redis.scripts import script
from toril.storage.redis.waits import Known, Replies, Tell, wake_ups

_TOKENS: Final = 4096
"""Claim tokens remembered, to know a repeated claim by."""

_FIRST: Final = 64
_UNDER_WAY: Final = 2
"""Calls of one `enqueue` that the server has not answered: it works on one, reads the next."""

_REGISTERED_S: Final = 60.0
_ASK_MS: Final = 1_000
"""How long a wait for a result trusts the push before it asks."""

Argument = str | bytes | int
T = TypeVar("T")

_CANCELLATIONS: Final = {
    "x": Cancellation.CANCELLED,
    "n": Cancellation.NOT_FOUND,
    "a": Cancellation.PROCESSING,
    "r": Cancellation.REQUESTED,
    "c": Cancellation.COMPLETED,
    "f": Cancellation.FAILED,
}
_REMOVALS: Final = {"r": Removal.REMOVED, "n": Removal.NOT_FOUND, "a": Removal.ACTIVE}


class RedisStorage:
    """Jobs on a Redis or Valkey server, alone, behind sentinels or as a cluster."""

    def __init__(
        self,
        url: str | Address = "redis://127.0.0.1:6379",
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        allow_eviction: bool = False,
    ) -> None:
        self.address = parse_url(url) if isinstance(url, str) else url
        self.clock: Clock = clock or SystemClock()
        self.now_ms = 0
        """What the scripts take for the time; 0, outside of tests, for the server's clock."""
        self._allow_eviction = allow_eviction
        self._settings = settings
        self._server: EmbeddedServer | None = None
        self._link: Client | None = None
        self._opened = 0
        self._opening = asyncio.Lock()
        self._me = ulid()
        self._intake = Intake(self._me)
        self._tokens: OrderedDict[str, None] = OrderedDict()
        self._registered: dict[str, float] = {}
        self._outlooks: dict[str, float] = {}
        self._wakes: dict[str, WakeUps] = {}
        self._replies: dict[str, Replies] = {}

    def __repr__(self) -> str:
        return f"RedisStorage({self.url!r})"

    @property
    def features(self) -> frozenset[Feature]:
        """Everything."""
        return ALL_FEATURES

    @property
    def url(self) -> str:
        """Where it is, without secrets."""
        return self.address.safe

    # -- life ------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect and check the server; pairs with `close`."""
        async with self._opening:
            if not self._opened:
                await self._connect()
            self._opened += 1

    async def _connect(self) -> None:
        address = self.address
        try:
            if address.kind == "embedded":
                self._server = EmbeddedServer(address.path or None)
                await self._server.start()
                address = replace(address, kind="unix", path=str(self._server.socket))
            self._link = Client(address, self._settings)
            await self._link.open()
            server = await self._link.server_version()
            check_fit(self.url, server, allow_eviction=self._allow_eviction)
        except BaseException:
            await self._disconnect()
            raise

    async def _disconnect(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    @property
    def _client(self) -> Client:
        if self._link is None:
            raise StorageClosed(f"{self!r} is not open; use `async with`, or await open() first")
        return self._link

    async def close(self) -> None:
        """End one `open`; at the last one blocked calls return."""
        async with self._opening:
            self._opened = max(0, self._opened - 1)
            if not self._opened:
                await self._end_waits()
                await self._disconnect()

    async def _end_waits(self) -> None:
        waits: list[WakeUps | Replies] = [*self._wakes.values(), *self._replies.values()]
        self._wakes, self._replies = {}, {}
        await asyncio.gather(*(one.close() for one in waits))

    def _base(self, queue: str) -> str:
        return base_of(self.address.prefix, queue)

    def _run(
        self,
        name: str,
        queue: str,
        *args: Argument,
        durable: bool = False,
        again: Argument | None = None,
    ) -> Awaitable[Any]:
        return self._client.run(
            script(name), self._base(queue), self.now_ms, *args, durable=durable, again=again
        )

    def _is_registered(self, queue: str) -> bool:
        """Tell whether the queue was entered into the list of queues a short while ago."""
        entered = self._registered.get(queue)
        return entered is not None and entered > self.clock.monotonic() - _REGISTERED_S

    async def _register(self, queue: str) -> None:
        """Enter the queue into the list of queues; refuse a layout newer than ours."""
        now = self.clock.monotonic()
        for twin in twins_of(self.address, queue):
            check_twin(self.address, queue, twin, await self._client.exists(twin))
        meta = self._base(queue) + "meta"
        await self._client.call(meta, "HSETNX", meta, "layout", LAYOUT)
        layout = cast("bytes | None", await self._client.call(meta, "HGET", meta, "layout"))
        check_layout(layout, queue, self.url)
        names = f"{self.address.prefix or PREFIX}:queues"
        await self._client.call(names, "SADD", names, queue)
        self._registered[queue] = now

    # -- produce ---------------------------------------------------------------------------

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
                "int | list[bytes]", await self._run("enqueue", queue, *args, durable=True)
            )
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
                while len(calls) > _UNDER_WAY:
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

    # -- work ------------------------------------------------------------------------------

    async def claim(self, queue: str, claim: Claim) -> Batch:
        """Lease up to `count` jobs that may start now."""
        reply = await self._run("claim", queue, *self._wish(claim), again=1)
        return self._batch(queue, claim, reply)

    async def await_claim(
        self, queue: str, claim: Claim, timeout_ms: int, cut: asyncio.Future[None]
    ) -> Batch:
        """Claim when word of work comes: the server runs it right then, without a way to us."""
        self._check_open()
        if self.now_ms:  # a time that is told from here has to be the right one
            if not await came_before(cut, self.wait([queue], timeout_ms)):
                return EMPTY_BATCH
            return await self.claim(queue, claim)
        self._outlooks.pop(queue, None)
        base, seconds = self._base(queue), max(0.001, min(timeout_ms / 1000, BLOCK_S))

        async def release(reply: Reply) -> None:
            granted = self._batch(queue, claim, cast("Sequence[Any]", reply)).jobs
            await self.settle(queue, [Released(lease=job.lease) for job in granted])

        reply = await self._client.run_after(
            ("BLPOP", f"{base}wake", f"{seconds:.3f}"),
            script("claim"),
            base,
            *(0, *self._wish(claim)),
            timeout_s=seconds,
            cut=cut,
            orphan=release,
        )
        if reply is not None:
            return self._batch(queue, claim, cast("Sequence[Any]", reply))
        # Who is leaving takes no more; what it may have been granted lapses.
        return EMPTY_BATCH if cut.done() else await self.claim(queue, claim)

    def _batch(self, queue: str, claim: Claim, reply: Sequence[Any]) -> Batch:
        """Read a batch; one that came up short tells all that `wait` would ask for."""
        batch = codec.read_batch(claim.token, reply)
        if len(batch.jobs) < min(claim.count, CHUNK) and not batch.limited_for_ms:
            due = math.inf if batch.next_in_ms is None else batch.next_in_ms / 1000
            self._outlooks[queue] = self.clock.monotonic() + due
        return batch

    def _wish(self, claim: Claim) -> tuple[Argument, ...]:
        rate = claim.rate or Rate(max=0, duration_ms=0)
        again = claim.token in self._tokens
        self._tokens[claim.token] = None
        if len(self._tokens) > _TOKENS:
            self._tokens.popitem(last=False)
        worker = claim.worker_id
        if claim.worker_name is not None:
            worker = f"{worker}\n{claim.worker_name}"
        return (
            claim.token,
            worker,
            min(claim.count, CHUNK),
            claim.lease_ms,
            rate.max,
            rate.duration_ms,
            int(again),
        )

    async def wait(self, queues: Sequence[str], timeout_ms: int) -> None:
        """Return when one of the queues may have work."""
        self._check_open()
        wait_ms = min([timeout_ms, *[await self._outlook(queue) for queue in queues]])
        if wait_ms <= 0:
            return
        if len(queues) == 1:
            await self._wake(queues[0]).wait(self.clock, wait_ms / 1000)
            return
        waits = [
            asyncio.ensure_future(self._wake(queue).wait(self.clock, wait_ms / 1000))
            for queue in queues
        ]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        for one in done:
            one.result()

    async def _outlook(self, queue: str) -> float:
        """Tell in how many ms a claim can bring something, as far as is known.

        Right after a claim that came up short there is nothing to ask: whatever changes later
        leaves word, and that is what a wait waits for.
        """
        due = self._outlooks.pop(queue, None)
        if due is not None:
            return math.ceil((due - self.clock.monotonic()) * 1000) if due < math.inf else due
        ms = int(await self._run("outlook", queue))
        return ms if ms >= 0 else math.inf

    def _wake(self, queue: str) -> WakeUps:
        wakes = self._wakes.get(queue)
        if wakes is None:
            wakes = self._wakes[queue] = wake_ups(self._client, self._base(queue))
        return wakes

    def poke(self) -> None:
        """Let blocked calls look again; for tests that move the clock."""
        for wakes in self._wakes.values():
            wakes.poke()

    async def renew(self, queue: str, leases: Sequence[Lease], lease_ms: int) -> Renewal:
        """Prolong the leases still held; report the ones that are gone."""
        lost: list[Lease] = []
        cancelled: list[Lease] = []
        for some in chunks(leases):
            args = lease_arguments(some)
            read_renewal(some, await self._run("renew", queue, lease_ms, *args), lost, cancelled)
        return Renewal(lost=lost, cancelled=cancelled)

    async def settle(
        self, queue: str, outcomes: Sequence[Outcome], refill: Claim | None = None
    ) -> Settlement:
        """End attempts under their leases, then claim the next jobs."""
        answers: list[Answer] = []
        batch = EMPTY_BATCH
        groups = list(chunks(outcomes)) or [()]
        for number, some in enumerate(groups):
            args: list[Argument] = [codec.pack_outcomes(some)]
            again = None
            if refill is not None and number == len(groups) - 1:
                args += self._wish(refill)
                again = 1
            letters, claimed = await self._run("settle", queue, *args, durable=True, again=again)
            answers += [codec.ANSWERS[letter] for letter in letters.decode()]
            if claimed and refill is not None:
                batch = self._batch(queue, refill, claimed)
        return Settlement(answers=answers, batch=batch)

    async def reap(self, queue: str, max_stalls: int, interval_ms: int) -> Reaped:
        """Put jobs with lapsed leases back in front."""
        stalled: list[str] = []
        doomed: list[str] = []
        while True:
            wait, some_stalled, some_doomed = await self._run(
                "reap",
                queue,
                *(max_stalls, interval_ms, CANCELLED, "JobStalled"),
                "stalled %d times; allowed are %d (max_stalls=)",
            )
            stalled += [one.decode() for one in some_stalled]
            doomed += [one.decode() for one in some_doomed]
            if wait > 0 or not (some_stalled or some_doomed):
                return Reaped(stalled=stalled, doomed=doomed, next_in_ms=wait)

    async def lease_left_ms(self, queue: str, lease: Lease) -> int | None:
        """How long a lease has to go, None if its job does not run; for tests that set `now_ms`."""
        key = self._base(queue) + "processing"
        until = await self._call(key, "ZSCORE", key, lease.job_id)
        if until is None:
            return None
        return int(float(cast("bytes", until))) - self.now_ms

    async def leave(self, queue: str, worker_id: str) -> None:
        """Strike a worker off the list."""
        key = self._base(queue) + "workers"
        members = cast("list[bytes]", await self._call(key, "ZRANGE", key, 0, -1))
        mine = [one for one in members if one.decode().partition("\n")[0] == worker_id]
        if mine:
            await self._call(key, "ZREM", key, *mine)

    async def _call(self, key: str, *args: Argument) -> Reply:
        self._check_open()
        return await self._client.call(key, *args)

    def _check_open(self) -> None:
        _ = self._client

    # -- observe ---------------------------------------------------------------------------

    async def events(
        self,
        queue: str,
        after: Cursor,
        until: Cursor | None = None,
        limit: int = 1000,
        block_ms: int = 0,
    ) -> Sequence[Event]:
        """Read events after one cursor up to another; wait if there are none."""
        found = await self._read_events(queue, after, until, limit)
        if found or block_ms <= 0:
            return found
        news = asyncio.ensure_future(self._news(queue, after, block_ms))
        try:
            await wait_future(self.clock, news, block_ms / 1000)
        finally:
            news.cancel()
        if news.done() and not news.cancelled():
            news.result()
        return await self._read_events(queue, after, until, limit) if self._opened else ()

    async def _news(self, queue: str, after: Cursor, block_ms: int) -> None:
        """Return when there is an event after the cursor, or the storage closes."""
        key = self._base(queue) + "events"
        block = ("XREAD", "COUNT", 1, "BLOCK", block_ms, "STREAMS", key, f"{after.major}-0")
        with suppress(StorageClosed):
            await self._client.block(key, *block, timeout_s=block_ms / 1000)

    async def _read_events(
        self, queue: str, after: Cursor, until: Cursor | None, limit: int
    ) -> list[Event]:
        key, meta = self._base(queue) + "events", self._base(queue) + "meta"
        # First how far they go: one that is added in between must not count as trimmed.
        last = int(cast("bytes | None", await self._call(meta, "HGET", meta, "e")) or 0)
        stop = last if until is None else min(until.major, last)
        if after.major >= stop:
            return []
        entries = cast(
            "list[list[Any]]",
            await self._call(key, "XRANGE", key, f"({after.major}", "+", "COUNT", limit),
        )
        events = [event for entry in entries for event in codec.read_entry(entry[0], entry[1][1])]
        first = events[0].cursor.major if events else last + 1
        check_trimmed(queue, after.major, first, stop)
        return [event for event in events if after < event.cursor and event.cursor.major <= stop][
            :limit
        ]

    async def cursor(self, queue: str) -> Cursor:
        """The place after the newest event."""
        meta = self._base(queue) + "meta"
        return Cursor(int(cast("bytes | None", await self._call(meta, "HGET", meta, "e")) or 0))

    async def counts(self, queue: str) -> Counts:
        """Count the jobs by state."""
        waiting, prioritized, delayed, active, completed, failed, paused = await self._run(
            "counts", queue
        )
        return Counts(
            waiting=waiting,
            prioritized=prioritized,
            delayed=delayed,
            active=active,
            completed=completed,
            failed=failed,
            paused=bool(paused),
        )

    async def peek(self, queue: str, state: State, start: int, stop: int) -> Sequence[JobRecord]:
        """Read one page of a state."""
        if state is State.WAITING_CHILDREN:
            return ()
        letter = codec.LETTERS[state]
        ids = [one.decode() for one in await self._run("peek", queue, letter, start, stop, 0)]
        return [record for record in await self.get(queue, ids) if record is not None]

    async def queues(self) -> Sequence[str]:
        """Name the queues that hold anything."""
        names = f"{self.address.prefix or PREFIX}:queues"
        found = cast("list[bytes]", await self._call(names, "SMEMBERS", names))
        return sorted(name.decode() for name in found)

    async def workers(self, queue: str) -> Sequence[WorkerInfo]:
        """Name the workers seen lately."""
        flat = await self._run("workers", queue)
        found: list[WorkerInfo] = []
        for at in range(0, len(flat), 3):
            worker, _, name = flat[at].decode().partition("\n")
            found.append(
                WorkerInfo(
                    id=worker, name=name or None, seen_ms_ago=flat[at + 1], active=flat[at + 2]
                )
            )
        return found

    # -- tend ------------------------------------------------------------------------------

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

    # -- Notes -----------------------------------------------------------------------------

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

    # -- Edits -----------------------------------------------------------------------------

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

    # -- Ends ------------------------------------------------------------------------------

    async def discard(self, queue: str, seen: Sequence[Seen]) -> Sequence[bool]:
        """Delete finished jobs that still have the end that was seen."""
        return [letter == "r" for letter in await self._letters("discard", queue, _pairs(seen))]

    async def rerun(self, queue: str, seen: Sequence[Seen]) -> Sequence[bool]:
        """Put finished jobs back in line that still have the end that was seen."""
        return await self._flags("edit", queue, _pairs(seen), "rerun", 1)

    # -- Limits ----------------------------------------------------------------------------

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

    # -- Beats -----------------------------------------------------------------------------

    def heartbeat(self) -> Beat:
        """Make a heart with a connection of its own."""
        return RedisBeat(self._client.sync(), self._base, lambda: self.now_ms)

    # -- plumbing --------------------------------------------------------------------------

    async def _letters(
        self, name: str, queue: str, ids: Sequence[str], *args: Argument
    ) -> Sequence[str]:
        letters = ""
        for some in chunks(ids):
            # The last two: what a repeat is known by, and whether it is one.
            mine = (*args, *some, token(), 0)
            letters += (await self._run(name, queue, *mine, again=1)).decode()
        return letters

    async def _flags(
        self, name: str, queue: str, ids: Sequence[str], *args: Argument
    ) -> Sequence[bool]:
        flags: list[bool] = []
        for some in chunks(ids):
            flags += [bool(flag) for flag in await self._run(name, queue, *args, *some)]
        return flags


def _pairs(seen: Sequence[Seen]) -> list[str]:
    """Write ids and times one after the other; chunks are of even size, so no pair is divided."""
    return [text for one in seen for text in (one.id, str(one.finished_ms))]


def _receipt(job_id: str, answer: bytes) -> Receipt:
    kind, letter, holder = answer[:1], answer[1:2].decode(), answer[3:].decode()
    if kind == b"~":
        return Receipt(id=holder, created=False, state=codec.STATES.get(letter), deduplicated=True)
    return Receipt(id=job_id, created=kind == b"+", state=codec.STATES[letter])
