"""Keep jobs in this process: the reference storage, for tests and single-process use.

Plain functions over plain data under one lock, so threads (and event loops) may share it.
Nothing survives the process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from toril.clock import Clock, SystemClock, wait_future
from toril.errors import InvalidOption, StorageClosed
from toril.event import Cursor, Event
from toril.job import JobRecord, JobSpec, State
from toril.outcome import Answer, Lease, Outcome
from toril.storage.memory_queue import MemoryQueue
from toril.storage.protocol import (
    ALL_FEATURES,
    EMPTY_BATCH,
    Batch,
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

T = TypeVar("T")


class _Waker:
    """Wakes one blocked call on its own loop, from any thread."""

    __slots__ = ("_loop", "_thread", "future")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.future: asyncio.Future[None] = self._loop.create_future()

    def wake(self) -> None:
        if threading.get_ident() == self._thread:
            self._set()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._set)

    def _set(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class _Bell:
    """The blocked calls of one queue, by what they wait for."""

    __slots__ = ("endings", "events", "work")

    def __init__(self) -> None:
        self.work: set[_Waker] = set()
        self.events: set[_Waker] = set()
        self.endings: dict[str, set[_Waker]] = {}


class MemoryStorage:
    """Jobs in this process. Honours every feature and facet except `Beats` and `Bulk`."""

    def __init__(self, *, name: str = "", clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self._name = name
        self._queues: dict[str, MemoryQueue] = {}
        self._bells: dict[str, _Bell] = {}
        self._lock = threading.RLock()
        self._opened = 0

    def __repr__(self) -> str:
        return f"MemoryStorage({self.url!r})"

    @property
    def features(self) -> frozenset[Feature]:
        """Everything."""
        return ALL_FEATURES

    @property
    def url(self) -> str:
        """`memory:name`; the name means something in this process only."""
        return f"memory:{self._name}"

    # -- life ------------------------------------------------------------------------------

    async def open(self) -> None:
        """Allow use; pairs with `close`."""
        with self._lock:
            self._opened += 1

    async def close(self) -> None:
        """End one `open`; at the last one blocked calls return. Jobs stay."""
        with self._lock:
            self._opened = max(0, self._opened - 1)
            if not self._opened:
                for bell in self._bells.values():
                    self._ring(bell.work)
                    self._ring(bell.events)
                    for wakers in bell.endings.values():
                        self._ring(wakers)

    def _change(self, queue: str, change: Callable[[MemoryQueue, int], T]) -> T:
        """Run one change under the lock, then wake whoever waited for its effects."""
        with self._lock:
            self._check_open()
            shelf = self._queue(queue)
            before = shelf.log.written
            answer = change(shelf, self.clock.now_ms())
            bell = self._bells.get(queue)
            if bell is not None:
                self._announce(self._queue(queue), bell, news=shelf.log.written != before)
            else:
                shelf.endings.clear()
            return answer

    def _announce(self, shelf: MemoryQueue, bell: _Bell, *, news: bool) -> None:
        if news and bell.events:
            self._ring(bell.events)
        if bell.work and shelf.claimable_in(self.clock.now_ms()) is not None:
            self._ring(bell.work)
        if bell.endings:
            for job_id in shelf.endings:
                self._ring(bell.endings.get(job_id, ()))
        shelf.endings.clear()

    @staticmethod
    def _ring(wakers: Iterable[_Waker]) -> None:
        for waker in wakers:
            waker.wake()

    def _check_open(self) -> None:
        if not self._opened:
            raise StorageClosed(f"{self!r} is not open; use `async with`, or await open() first")

    def _queue(self, name: str) -> MemoryQueue:
        shelf = self._queues.get(name)
        if shelf is None:
            shelf = self._queues[name] = MemoryQueue()
        return shelf

    def _bell(self, name: str) -> _Bell:
        return self._bells.setdefault(name, _Bell())

    # -- produce ---------------------------------------------------------------------------

    async def enqueue(self, queue: str, jobs: Sequence[JobSpec]) -> Sequence[Receipt]:
        """Store each job unless its id or dedup key is taken."""
        return self._change(queue, lambda q, now: [q.enqueue(spec, now) for spec in jobs])

    async def cancel(
        self, queue: str, ids: Sequence[str], running: bool = False
    ) -> Sequence[Cancellation]:
        """Delete jobs that have not started; with `running`, ask the owners of those that have."""
        return self._change(queue, lambda q, now: [q.cancel(i, running, now) for i in ids])

    async def get(self, queue: str, ids: Sequence[str]) -> Sequence[JobRecord | None]:
        """Read jobs."""

        def read(q: MemoryQueue, now: int) -> list[JobRecord | None]:
            found = [q.find(job_id, now) for job_id in ids]
            return [None if entry is None else entry.record() for entry in found]

        return self._change(queue, read)

    async def remove(self, queue: str, ids: Sequence[str]) -> Sequence[Removal]:
        """Delete jobs in any state but active."""
        return self._change(queue, lambda q, now: [q.remove(job_id, now) for job_id in ids])

    async def keep(self, queue: str, ids: Sequence[str], keep_ms: int | None) -> Sequence[bool]:
        """Restart the keep time of finished jobs."""
        return self._change(queue, lambda q, now: [q.keep(i, keep_ms, now) for i in ids])

    async def finished(self, queue: str, ids: Sequence[str], block_ms: int) -> Sequence[Ending]:
        """Return the endings known now, or wait for the first one."""

        def known(q: MemoryQueue, now: int) -> list[Ending]:
            return [end for job_id in ids if (end := q.ending(job_id, now)) is not None]

        def watch(bell: _Bell, waker: _Waker) -> None:
            for job_id in ids:
                bell.endings.setdefault(job_id, set()).add(waker)

        def unwatch(bell: _Bell, waker: _Waker) -> None:
            for job_id in set(ids):
                watchers = bell.endings[job_id]
                watchers.discard(waker)
                if not watchers:
                    del bell.endings[job_id]

        return await self._block(queue, known, block_ms, watch, unwatch)

    async def _block(
        self,
        queue: str,
        look: Callable[[MemoryQueue, int], list[T]],
        block_ms: int,
        watch: Callable[[_Bell, _Waker], None],
        unwatch: Callable[[_Bell, _Waker], None],
    ) -> list[T]:
        """Look; if there is nothing, wait for a wake-up and look once more."""
        with self._lock:
            found = self._change(queue, look)
            if found or block_ms <= 0:
                return found
            waker = _Waker()
            bell = self._bell(queue)
            watch(bell, waker)
        try:
            await wait_future(self.clock, waker.future, block_ms / 1000)
        finally:
            with self._lock:
                unwatch(bell, waker)
        with self._lock:
            return self._change(queue, look) if self._opened else []

    # -- work ------------------------------------------------------------------------------

    async def claim(self, queue: str, claim: Claim) -> Batch:
        """Lease up to `count` jobs that may start now."""
        return self._change(queue, lambda q, now: q.claim(claim, now))

    async def wait(self, queues: Sequence[str], timeout_ms: int) -> None:
        """Return when one of the queues may have work."""
        with self._lock:
            self._check_open()
            now = self.clock.now_ms()
            due = [self._queue(name).claimable_in(now) for name in queues]
            wait_ms = min([timeout_ms, *(ms for ms in due if ms is not None)])
            waker = _Waker()
            for name in queues:
                self._bell(name).work.add(waker)
        try:
            await wait_future(self.clock, waker.future, wait_ms / 1000)
        finally:
            with self._lock:
                for name in queues:
                    self._bell(name).work.discard(waker)

    async def renew(self, queue: str, leases: Sequence[Lease], lease_ms: int) -> Renewal:
        """Prolong the leases still held; report the ones that are gone."""
        return self._change(queue, lambda q, now: q.renew(leases, lease_ms, now))

    async def settle(
        self, queue: str, outcomes: Sequence[Outcome], refill: Claim | None = None
    ) -> Settlement:
        """End attempts under their leases, then claim the next jobs."""

        def change(q: MemoryQueue, now: int) -> Settlement:
            before = q.log.written
            answers = [q.settle(outcome, now) for outcome in outcomes]
            settled = q.log.written != before
            batch = EMPTY_BATCH if refill is None else q.claim(refill, now)
            if settled:
                q.tell_drained(now)
            return Settlement(answers=answers, batch=batch)

        return self._change(queue, change)

    async def reap(self, queue: str, max_stalls: int, interval_ms: int) -> Reaped:
        """Put jobs with lapsed leases back in front."""
        return self._change(queue, lambda q, now: q.reap(max_stalls, interval_ms, now))

    def leased_until_ms(self, queue: str, lease: Lease) -> int | None:
        """When a lease is over, None if it is not held; for tests that move the clock."""
        with self._lock:
            entry = self._queue(queue).jobs.get(lease.job_id)
            held = entry is not None and entry.owned_by(lease)
            return entry.lease_until_ms if entry is not None and held else None

    async def leave(self, queue: str, worker_id: str) -> None:
        """Strike a worker off the list."""
        self._change(queue, lambda q, _now: q.leave(worker_id))

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

        def read(q: MemoryQueue, _now: int) -> list[Event]:
            return q.log.read(after, until, limit)

        def watch(bell: _Bell, waker: _Waker) -> None:
            bell.events.add(waker)

        def unwatch(bell: _Bell, waker: _Waker) -> None:
            bell.events.discard(waker)

        return await self._block(queue, read, block_ms, watch, unwatch)

    async def cursor(self, queue: str) -> Cursor:
        """The place after the newest event."""
        return self._change(queue, lambda q, _now: q.log.cursor)

    async def counts(self, queue: str) -> Counts:
        """Count the jobs by state."""
        return self._change(queue, lambda q, now: q.counts(now))

    async def peek(self, queue: str, state: State, start: int, stop: int) -> Sequence[JobRecord]:
        """Read one page of a state."""
        return self._change(queue, lambda q, now: q.peek(state, start, stop, now))

    async def queues(self) -> Sequence[str]:
        """Name the queues that hold anything."""
        with self._lock:
            self._check_open()
            return sorted(name for name, shelf in self._queues.items() if shelf.in_use)

    async def workers(self, queue: str) -> Sequence[WorkerInfo]:
        """Name the workers seen lately."""
        return self._change(queue, lambda q, now: q.workers(now))

    # -- tend ------------------------------------------------------------------------------

    async def pause(self, queue: str, paused: bool) -> None:
        """Stop or resume handing out jobs."""
        self._change(queue, lambda q, now: q.pause(paused, now))

    async def purge(
        self, queue: str, states: Sequence[State], older_ms: int, limit: int | None = None
    ) -> Sequence[str]:
        """Delete jobs that entered their state long enough ago."""
        if State.ACTIVE in states:
            raise InvalidOption("running jobs cannot be purged; cancel them, or destroy the queue")
        return self._change(queue, lambda q, now: q.purge(states, older_ms, limit, now))

    async def destroy(self, queue: str, force: bool = False) -> None:
        """Delete everything."""

        def change(q: MemoryQueue, _now: int) -> None:
            self._queues[queue] = q.destroy(queue, force)

        self._change(queue, change)

    # -- Notes -----------------------------------------------------------------------------

    async def progress(self, queue: str, notes: Sequence[tuple[Lease, bytes]]) -> Sequence[Answer]:
        """Record the newest progress of running jobs."""
        return self._change(
            queue, lambda q, now: [q.note_progress(lease, value, now) for lease, value in notes]
        )

    async def log(self, queue: str, notes: Sequence[tuple[Lease, str]]) -> Sequence[Answer]:
        """Append lines to the logs of running jobs."""
        return self._change(
            queue, lambda q, now: [q.note_log(lease, line, now) for lease, line in notes]
        )

    async def logs(
        self, queue: str, job_id: str, start: int = 0, stop: int | None = None
    ) -> Sequence[str]:
        """Read kept lines, oldest first."""

        def read(q: MemoryQueue, now: int) -> list[str]:
            entry = q.find(job_id, now)
            return [] if entry is None or entry.logs is None else entry.logs[start:stop]

        return self._change(queue, read)

    # -- Edits -----------------------------------------------------------------------------

    async def promote(self, queue: str, ids: Sequence[str]) -> Sequence[bool]:
        """Let delayed jobs start now."""
        return self._change(queue, lambda q, now: [q.promote(job_id, now) for job_id in ids])

    async def reprioritize(self, queue: str, ids: Sequence[str], priority: int) -> Sequence[bool]:
        """Give pending jobs another priority."""

        def change(spec: JobSpec) -> JobSpec:
            return replace(spec, terms=replace(spec.terms, priority=priority))

        return self._change(queue, lambda q, now: [q.respec(i, change, now) for i in ids])

    async def reschedule(self, queue: str, ids: Sequence[str], delay_ms: int) -> Sequence[bool]:
        """Let delayed jobs start at another time."""
        return self._change(queue, lambda q, now: [q.reschedule(i, delay_ms, now) for i in ids])

    async def replace(self, queue: str, job_id: str, payload: bytes) -> bool:
        """Give a pending job other data."""

        def change(spec: JobSpec) -> JobSpec:
            return replace(spec, payload=payload)

        return self._change(queue, lambda q, now: q.respec(job_id, change, now))

    async def revive(
        self, queue: str, ids: Sequence[str], reset_attempts: bool = True
    ) -> Sequence[bool]:
        """Put finished jobs back in line."""
        return self._change(
            queue, lambda q, now: [q.revive(job_id, reset_attempts, now) for job_id in ids]
        )

    # -- Ends ------------------------------------------------------------------------------

    async def discard(self, queue: str, seen: Sequence[Seen]) -> Sequence[bool]:
        """Delete finished jobs that still have the end that was seen."""
        return self._change(queue, lambda q, now: q.discard(seen, now))

    async def rerun(self, queue: str, seen: Sequence[Seen]) -> Sequence[bool]:
        """Put finished jobs back in line that still have the end that was seen."""
        return self._change(queue, lambda q, now: [q.rerun(one, now) for one in seen])

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

        def change(q: MemoryQueue, _now: int) -> None:
            q.concurrency, q.rate = concurrency, rate
            q.log.resize(events_kept)

        self._change(queue, change)
