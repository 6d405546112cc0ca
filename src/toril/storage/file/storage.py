"""Jobs in a directory of this machine: durable, shared by many processes, without a server.

Each verb is a function over one queue inside a transaction (`produce`, `work`, `tend`, `edits`,
`observe`); here they are handed to the threads that run them, and blocked calls are woken.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from toril.clock import Clock, SystemClock, wait_future
from toril.errors import InvalidOption, StorageClosed, StorageError
from toril.event import Cursor, Event
from toril.job import JobRecord, JobSpec, State
from toril.outcome import Answer, Lease, Outcome
from toril.storage.file import edits, observe, produce, tend, work
from toril.storage.file.address import TIMEOUT_S, FileAddress, address_of, parse_file_url
from toril.storage.file.bells import Bells, News, Waker
from toril.storage.file.codec import NUMBERS
from toril.storage.file.desk import Desk
from toril.storage.file.endings import ending_of
from toril.storage.file.heart import FileBeat
from toril.storage.file.lines import claimable_in
from toril.storage.file.shelf import Shelf
from toril.storage.protocol import (
    ALL_FEATURES,
    EMPTY_BATCH,
    Batch,
    Beat,
    Cancellation,
    Claim,
    Counts,
    Ending,
    EndingKind,
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

_MOMENT_S: Final = 1e-6
"""Less than this is no time to wait: sums of times in floating point are not exact."""

_TOKENS: Final = 4096
"""Claim tokens remembered, to know a repeated claim by."""

_CHUNK: Final = 500
"""Items per change: a larger one would keep the lock from others for too long."""

_POLL_S: Final = 5.0

T = TypeVar("T")
A = TypeVar("A")


class FileStorage:
    """Jobs in a directory; honours every feature and facet.

    `durability="local"`: an answer means that the change is on the disk. `"memory"`: it is with
    the operating system; it survives the process, and a loss of power may take the newest.
    `timeout` is how long to wait, in seconds, for another process that holds the write lock.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        durability: str = "local",
        timeout: float = TIMEOUT_S,
        poll: float = _POLL_S,
        clock: Clock | None = None,
    ) -> None:
        self.address: FileAddress = address_of(directory, durability, timeout)
        self.clock: Clock = clock or SystemClock()
        self._poll_s = poll
        self._pid = 0
        self._opened = 0
        self._opening = asyncio.Lock()
        self._bells = Bells()
        self._tokens: OrderedDict[str, None] = OrderedDict()
        self._desk: Desk | None = None

    @classmethod
    def at(cls, url: str) -> FileStorage:
        """Make the storage that a `file:` URL names."""
        address = parse_file_url(url)
        return cls(address.directory, durability=address.durability, timeout=address.timeout)

    def __repr__(self) -> str:
        return f"FileStorage({self.url!r})"

    @property
    def features(self) -> frozenset[Feature]:
        """Everything."""
        return ALL_FEATURES

    @property
    def url(self) -> str:
        """What another process of this machine would open."""
        return self.address.url

    # -- life ------------------------------------------------------------------------------

    async def open(self) -> None:
        """Check the directory and open the database; pairs with `close`."""
        async with self._opening:
            self._check_process()
            if not self._opened:
                self._desk = await asyncio.to_thread(
                    Desk, self.address, self.clock, self._bells, self._poll_s
                )
                self._pid = os.getpid()
            self._opened += 1

    async def close(self) -> None:
        """End one `open`; at the last one blocked calls return."""
        async with self._opening:
            self._check_process()
            self._opened = max(0, self._opened - 1)
            if not self._opened:
                desk, self._desk = self._desk, None
                self._bells.ring_all()
                if desk is not None:
                    await asyncio.to_thread(desk.close)

    def _check_process(self) -> None:
        if self._opened and self._pid != os.getpid():
            raise StorageError(
                f"{self!r} was opened by process {self._pid}, this is its child {os.getpid()}; "
                "SQLite does not survive a fork: make a FileStorage of its own here"
            )

    def _at_work(self) -> Desk:
        self._check_process()
        if self._desk is None:
            raise StorageClosed(f"{self!r} is not open; use `async with`, or await open() first")
        return self._desk

    async def _change(self, queue: str, act: Callable[[Shelf], T]) -> T:
        return await self._at_work().writer.ask(queue, act)

    async def _each(self, queue: str, items: Sequence[T], act: Callable[[Shelf, T], A]) -> list[A]:
        """Run a change per item, many of them at once."""
        self._at_work()
        answers: list[A] = []
        for some in _chunks(items):
            answers += await self._change(queue, partial(_over, act, some))
        return answers

    async def _look(self, queue: str, look: Callable[[Shelf], T], unknown: T) -> T:
        """Read from a snapshot; a queue nobody used is answered without one."""
        return await self._at_work().reader.ask(
            queue, lambda shelf, _db: unknown if shelf is None else look(shelf)
        )

    # -- produce ---------------------------------------------------------------------------

    async def enqueue(self, queue: str, jobs: Sequence[JobSpec]) -> Sequence[Receipt]:
        """Store each job unless its id or dedup key is taken."""
        return await self._each(queue, jobs, produce.enqueue)

    async def cancel(
        self, queue: str, ids: Sequence[str], running: bool = False
    ) -> Sequence[Cancellation]:
        """Delete jobs that have not started; with `running`, ask the owners of those that have."""
        return await self._each(queue, ids, lambda q, one: produce.cancel(q, one, running))

    async def get(self, queue: str, ids: Sequence[str]) -> Sequence[JobRecord | None]:
        """Read jobs."""
        unknown: list[JobRecord | None] = [None] * len(ids)
        return await self._look(queue, lambda q: [observe.get(q, one) for one in ids], unknown)

    async def remove(self, queue: str, ids: Sequence[str]) -> Sequence[Removal]:
        """Delete jobs in any state but active."""
        return await self._each(queue, ids, produce.remove)

    async def keep(self, queue: str, ids: Sequence[str], keep_ms: int | None) -> Sequence[bool]:
        """Restart the keep time of finished jobs."""
        return await self._each(queue, ids, lambda q, one: produce.keep(q, one, keep_ms))

    async def finished(self, queue: str, ids: Sequence[str], block_ms: int) -> Sequence[Ending]:
        """Return the endings known now, or wait for the first one."""

        def known(q: Shelf) -> list[Ending]:
            return [end for one in ids if (end := ending_of(q, one)) is not None]

        gone = [Ending(id=one, kind=EndingKind.GONE) for one in ids]
        found = await self._look(queue, known, gone)
        if found or block_ms <= 0 or not ids:
            return found
        await self._each(queue, ids, produce.await_ending)
        return await self._block(
            [queue], News.ENDINGS, lambda: self._look(queue, known, gone), block_ms, ids
        )

    async def _block(
        self,
        queues: Sequence[str],
        news: News,
        look: Callable[[], Awaitable[list[T]]],
        block_ms: int,
        ids: Sequence[str] | None = None,
    ) -> list[T]:
        """Look, and look again at every news, until there is something or the time is up."""
        deadline = self.clock.monotonic() + block_ms / 1000
        waker = Waker(ids)
        self._bells.add(queues, news, waker)
        try:
            self._at_work().listener.arm()
            while True:
                waker.rearm()
                found = await look()
                left = deadline - self.clock.monotonic()
                if found or left < _MOMENT_S:
                    return found
                await wait_future(self.clock, waker.future, left)
                if self._desk is None:
                    return []
        finally:
            self._bells.discard(queues, news, waker)

    # -- work ------------------------------------------------------------------------------

    async def claim(self, queue: str, claim: Claim) -> Batch:
        """Lease up to `count` jobs that may start now."""
        again = self._is_repeat(claim)
        return await self._change(queue, lambda q: work.claim(q, claim, again=again))

    def _is_repeat(self, claim: Claim | None) -> bool:
        if claim is None:
            return False
        again = claim.token in self._tokens
        self._tokens[claim.token] = None
        if len(self._tokens) > _TOKENS:
            self._tokens.popitem(last=False)
        return again

    async def wait(self, queues: Sequence[str], timeout_ms: int) -> None:
        """Return when one of the queues may have work."""
        deadline = self.clock.monotonic() + timeout_ms / 1000
        waker = Waker()
        self._bells.add(queues, News.WORK, waker)
        try:
            self._at_work().listener.arm()
            while self._desk is not None:
                waker.rearm()
                dues = [await self._look(queue, claimable_in, None) for queue in queues]
                left = deadline - self.clock.monotonic()
                wait_s = min([left, *(ms / 1000 for ms in dues if ms is not None)])
                if wait_s < _MOMENT_S:
                    return
                await wait_future(self.clock, waker.future, wait_s)
        finally:
            self._bells.discard(queues, News.WORK, waker)

    async def renew(self, queue: str, leases: Sequence[Lease], lease_ms: int) -> Renewal:
        """Prolong the leases still held; report the ones that are gone."""
        return await self._change(queue, lambda q: work.renew(q, leases, lease_ms))

    async def settle(
        self, queue: str, outcomes: Sequence[Outcome], refill: Claim | None = None
    ) -> Settlement:
        """End attempts under their leases, then claim the next jobs."""
        answers: list[Answer] = []
        batch = EMPTY_BATCH
        again = self._is_repeat(refill)
        groups = list(_chunks(outcomes)) or [()]
        for number, some in enumerate(groups, 1):
            wish = refill if number == len(groups) else None
            settle = partial(work.settle, outcomes=some, refill=wish, again=again)
            settlement = await self._change(queue, settle)
            answers += settlement.answers
            batch = settlement.batch
        return Settlement(answers=answers, batch=batch)

    async def reap(self, queue: str, max_stalls: int, interval_ms: int) -> Reaped:
        """Put jobs with lapsed leases back in front."""
        return await self._change(queue, lambda q: tend.reap(q, max_stalls, interval_ms))

    async def lease_left_ms(self, queue: str, lease: Lease) -> int | None:
        """How long a lease has to go, None if it is not held; for tests that move the clock."""

        def left(q: Shelf) -> int | None:
            row = q.load(lease.job_id)
            held = row is not None and row.owned_by(lease)
            return row.lease_until_ms - q.now if row is not None and held else None

        return await self._look(queue, left, None)

    async def leave(self, queue: str, worker_id: str) -> None:
        """Strike a worker off the list."""
        await self._change(queue, lambda q: tend.leave(q, worker_id))

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

        async def read() -> list[Event]:
            return await self._look(queue, lambda q: observe.events(q, after, until, limit), [])

        found = await read()
        if found or block_ms <= 0:
            return found
        return await self._block([queue], News.EVENTS, read, block_ms)

    async def cursor(self, queue: str) -> Cursor:
        """The place after the newest event."""
        return await self._look(queue, lambda q: Cursor(q.last), Cursor.START)

    async def counts(self, queue: str) -> Counts:
        """Count the jobs by state."""
        return await self._look(queue, observe.counts, Counts())

    async def peek(self, queue: str, state: State, start: int, stop: int) -> Sequence[JobRecord]:
        """Read one page of a state."""
        return await self._look(queue, lambda q: observe.peek(q, state, start, stop), [])

    async def queues(self) -> Sequence[str]:
        """Name the queues that hold anything."""
        return await self._at_work().reader.ask("", lambda _shelf, db: observe.queues(db))

    async def lapsed(self, queue: str, most: int) -> Sequence[str]:
        """Name running jobs whose lease is over, for a look at the storage's health."""
        return await self._look(queue, lambda q: observe.lapsed(q, most), [])

    async def workers(self, queue: str) -> Sequence[WorkerInfo]:
        """Name the workers seen lately."""
        return await self._look(queue, observe.workers, [])

    # -- tend ------------------------------------------------------------------------------

    async def pause(self, queue: str, paused: bool) -> None:
        """Stop or resume handing out jobs."""
        await self._change(queue, lambda q: tend.pause(q, paused))

    async def purge(
        self, queue: str, states: Sequence[State], older_ms: int, limit: int | None = None
    ) -> Sequence[str]:
        """Delete jobs that entered their state long enough ago."""
        if State.ACTIVE in states:
            raise InvalidOption("running jobs cannot be purged; cancel them, or destroy the queue")
        numbers = [NUMBERS[state] for state in states if state in NUMBERS]

        def choose(q: Shelf) -> tuple[list[int], int]:
            before_ms = q.now - older_ms
            return observe.oldest(q, numbers, before_ms, limit), before_ms

        # Chosen in one look, deleted in parts; who started or ran meanwhile is spared.
        none: tuple[list[int], int] = ([], 0)
        chosen, before_ms = await self._look(queue, choose, none)
        gone: list[str] = []
        for some in _chunks(chosen):
            purge = partial(tend.purge, numbers=some, states=numbers, before_ms=before_ms)
            gone += await self._change(queue, purge)
        return gone

    async def destroy(self, queue: str, force: bool = False) -> None:
        """Delete everything."""
        await self._change(queue, lambda q: tend.destroy(q, force))

    # -- Notes -----------------------------------------------------------------------------

    async def progress(self, queue: str, notes: Sequence[tuple[Lease, bytes]]) -> Sequence[Answer]:
        """Record the newest progress of running jobs."""
        return await self._each(queue, notes, lambda q, note: edits.progress(q, *note))

    async def log(self, queue: str, notes: Sequence[tuple[Lease, str]]) -> Sequence[Answer]:
        """Append lines to the logs of running jobs."""
        return await self._each(queue, notes, lambda q, note: edits.log(q, *note))

    async def logs(
        self, queue: str, job_id: str, start: int = 0, stop: int | None = None
    ) -> Sequence[str]:
        """Read kept lines, oldest first."""
        return await self._look(queue, lambda q: observe.logs(q, job_id, start, stop), [])

    # -- Edits -----------------------------------------------------------------------------

    async def promote(self, queue: str, ids: Sequence[str]) -> Sequence[bool]:
        """Let delayed jobs start now."""
        return await self._each(queue, ids, edits.promote)

    async def reprioritize(self, queue: str, ids: Sequence[str], priority: int) -> Sequence[bool]:
        """Give pending jobs another priority."""
        return await self._each(queue, ids, lambda q, one: edits.reprioritize(q, one, priority))

    async def reschedule(self, queue: str, ids: Sequence[str], delay_ms: int) -> Sequence[bool]:
        """Let delayed jobs start at another time."""
        return await self._each(queue, ids, lambda q, one: edits.reschedule(q, one, delay_ms))

    async def replace(self, queue: str, job_id: str, payload: bytes) -> bool:
        """Give a pending job other data."""
        return await self._change(queue, lambda q: edits.replace_payload(q, job_id, payload))

    async def revive(
        self, queue: str, ids: Sequence[str], reset_attempts: bool = True
    ) -> Sequence[bool]:
        """Put finished jobs back in line."""
        return await self._each(queue, ids, lambda q, one: edits.revive(q, one, reset_attempts))

    # -- Ends ------------------------------------------------------------------------------

    async def discard(self, queue: str, seen: Sequence[Seen]) -> Sequence[bool]:
        """Delete finished jobs that still have the end that was seen."""
        self._at_work()
        gone: list[bool] = []
        for some in _chunks(seen):
            gone += await self._change(queue, partial(tend.discard, seen=some))
        return gone

    async def rerun(self, queue: str, seen: Sequence[Seen]) -> Sequence[bool]:
        """Put finished jobs back in line that still have the end that was seen."""
        return await self._each(queue, seen, edits.rerun)

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
        await self._change(queue, lambda q: tend.tune(q, concurrency, rate, events_kept))

    # -- Beats -----------------------------------------------------------------------------

    def heartbeat(self) -> Beat:
        """Make a heart with a connection of its own."""
        self._at_work()
        return FileBeat(self.address, self.clock)


def _over(act: Callable[[Shelf, T], A], items: Sequence[T], shelf: Shelf) -> list[A]:
    return [act(shelf, item) for item in items]


def _chunks(items: Sequence[T]) -> Iterable[Sequence[T]]:
    return (items[first : first + _CHUNK] for first in range(0, len(items), _CHUNK))
