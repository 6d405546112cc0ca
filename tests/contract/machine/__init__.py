"""Drive any storage by random steps and compare every answer with a simple expectation.

The expectation is one small record per job and a few dicts, written from the contract alone.
It holds invariants I1-I8 and I11-I13 (`docs/guarantees.md`) after every step. Subclass
`StorageMachine` with a `make_rig` of your storage to run the same steps over it.

No deadline is ever near when a step runs (see `_advance`), so a storage on a real clock fits
too: set `slack_ms` to the longest time an example may take between two moves of the clock.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence

from hypothesis.stateful import invariant, precondition, rule

from tests.contract.machine.choices import COUNT, PICK
from tests.contract.machine.expect import ENDS, LEASE_MS, REAP_MS, TOLD_BY, Expected, Q
from tests.contract.machine.trouble import Troubled
from toril.event import Cursor, Event, EventKind
from toril.job import FINISHED, JobRecord, State
from toril.storage.protocol import Counts

__all__ = ["StorageMachine"]


class StorageMachine(Troubled):
    """The steps and the expectation; subclasses bring the storage."""

    @invariant()
    def everything_is_as_expected(self) -> None:
        """Compare all jobs (I6) and the events of the step with the expectation."""
        counts, shelves, records, events = self.run(self._look)
        self._check_records(counts, shelves, records)
        self._check_events(events)
        for state, shelf in shelves.items():
            for record in shelf:
                assert self.told.get(record.spec.id) is TOLD_BY[state], "a change without its event"

    async def _look(
        self,
    ) -> tuple[Counts, dict[State, Sequence[JobRecord]], Sequence[JobRecord | None], list[Event]]:
        """Ask for everything at once: nothing changes meanwhile, and a server is asked but once."""
        storage = self.storage
        after = self.log[-1].cursor if self.log else Cursor.START
        counts, records, events, shelves = await asyncio.gather(
            storage.counts(Q),
            storage.get(Q, list(self.ids)),
            storage.events(Q, after, limit=1_000),
            asyncio.gather(*(storage.peek(Q, state, 0, 1_000) for state in State)),
        )
        return counts, dict(zip(State, shelves, strict=True)), records, list(events)

    def _check_records(
        self,
        counts: Counts,
        shelves: dict[State, Sequence[JobRecord]],
        records: Sequence[JobRecord | None],
    ) -> None:
        found = [record.spec.id for shelf in shelves.values() for record in shelf]
        assert len(found) == len(set(found)), f"in two places: {found}"
        assert set(found) == set(self.jobs), "lost or invented jobs (I1, I6)"
        assert self.added == len(found) + self.gone == counts.total + self.gone
        assert counts.paused is self.paused
        by_id = dict(zip(self.ids, records, strict=True))
        for state, shelf in shelves.items():
            assert counts.of(state) == len(shelf), f"{counts} but {len(shelf)} {state}"
            for record in shelf:
                assert record.state is state
                assert record == by_id[record.spec.id]
                self._check_record(self.jobs[record.spec.id], record)
        assert all(by_id[i] is None for i in self.ids if i not in self.jobs)
        keyed = [j.spec.terms.dedup for j in self.jobs.values() if j.state not in FINISHED]
        alive = Counter(dedup.key for dedup in keyed if dedup is not None and dedup.ttl is None)
        assert all(n == 1 for n in alive.values()), f"two jobs under one key (I11): {alive}"

    def _check_record(self, job: Expected, record: JobRecord) -> None:
        assert job.fits(record.state, self.now), f"{record.state}, expected {job}"
        assert record.spec.payload == job.spec.payload
        assert (record.attempts_made, record.stalls) == (job.made, job.stalls), job
        assert record.attempts_started == job.starts, job
        assert record.progress == job.progress, job
        assert record.result == job.result, job
        if job.state is State.ACTIVE:
            assert record.worker_id == job.worker
        if job.state is State.FAILED and job.failure is not None:
            assert record.failure is not None
            assert str(record.failure) == str(job.failure)

    def _check_events(self, events: list[Event]) -> None:
        """Each change has one event; those of a job come in the order of its changes."""
        happened: dict[str | None, list[EventKind]] = defaultdict(list)
        expected: dict[str | None, list[EventKind]] = defaultdict(list)
        for event in events:
            assert not self.log or event.cursor > self.log[-1].cursor, "not in order"
            self.log.append(event)
            if event.kind in TOLD_BY.values():
                self.told[event.job_id] = event.kind
            if event.kind in self.kinds:
                happened[event.job_id].append(event.kind)
        for job_id, kind in self.due_events:
            if kind in self.kinds:
                expected[job_id].append(kind)
        self.due_events.clear()
        assert happened == expected

    @precondition(lambda self: self.log)
    @rule(pick=PICK, limit=COUNT)
    def read_events_again(self, pick: int, limit: int) -> None:
        """Read a part of the events in small pages, between two cursors."""
        first = pick % len(self.log)
        after = self.log[first].cursor
        until = self.log[-1].cursor
        pages: list[Event] = []
        for _ in range(5):
            page = self._read(after, until, limit)
            assert len(page) <= limit
            pages += page
            after = page[-1].cursor if page else after
        assert pages == self.log[first + 1 :][: len(pages)]
        assert len(pages) >= min(5, len(self.log) - first - 1)
        assert self.run(lambda: self.storage.cursor(Q)) >= until

    def _read(self, after: Cursor, until: Cursor | None, limit: int) -> Sequence[Event]:
        return self.run(lambda: self.storage.events(Q, after, until, limit))

    def teardown(self) -> None:
        """Drain everything and account for it, unless the example has failed already."""
        try:
            if sys.exception() is self._handled:
                self._drain()
        finally:
            self.loop.run_until_complete(self.drop_rig())
            self.loop.close()

    def _drain(self) -> None:
        self._pause(False)
        self.workers = ["last"]
        for _ in range(10 + 2 * len(self.jobs)):
            self._advance(LEASE_MS + 9_001)
            self._reap()
            self._advance(REAP_MS + 1)
            self._reap()
            self._claim("last", 5)
            self._end([self._outcome(job, "complete") for job in self._live()])
            self.everything_is_as_expected()
            if all(job.state in FINISHED for job in self.jobs.values()):
                break
        assert all(job.state in FINISHED for job in self.jobs.values()), "does not drain"
        self._check_history()

    def _check_history(self) -> None:
        """From the events alone: every job added ended exactly once (I1, I2)."""
        again: list[Event] = []
        while page := self._read(again[-1].cursor if again else Cursor.START, None, 7):
            again += page
        assert again == self.log, "another reading of the same events"
        open_jobs: set[str | None] = set()
        for event in again:
            if event.kind is EventKind.ADDED:
                assert event.job_id not in open_jobs, f"added twice: {event}"
                open_jobs.add(event.job_id)
            elif event.kind in ENDS:
                assert event.job_id in open_jobs, f"ended twice: {event}"
                open_jobs.discard(event.job_id)
            elif event.kind is EventKind.REMOVED:
                open_jobs.discard(event.job_id)
        assert not open_jobs, f"never ended: {open_jobs}"
