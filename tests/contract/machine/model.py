"""The expectation as a whole: its jobs, its clock, and what moves a job within it."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import ClassVar, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from tests.contract.machine.expect import (
    ENDING_KEPT_MS,
    ENDS,
    TOLD_BY,
    Expected,
    Ghost,
    Hold,
    ending_kind,
)
from toril.errors import StorageUnavailable
from toril.event import Event, EventKind
from toril.job import FINISHED, JobSpec, State
from toril.outcome import Lease, Outcome
from toril.storage.protocol import Claim, EndingKind, Storage
from toril.testing.rig import Rig

T = TypeVar("T")


class Model(RuleBasedStateMachine):
    """The steps and the expectation; subclasses bring the storage."""

    slack_ms: ClassVar[int] = 0
    """How much of the storage's time may pass by itself between two moves of the clock."""

    looks_late: ClassVar[bool] = False
    """Whether the holder of a key is looked at after the call, which may have replaced it."""

    kinds: ClassVar[frozenset[EventKind]] = ENDS | {
        EventKind.ADDED,
        EventKind.ACTIVE,
        EventKind.RETRYING,
        EventKind.RETRIES_EXHAUSTED,
        EventKind.STALLED,
        EventKind.REMOVED,
        EventKind.PAUSED,
        EventKind.RESUMED,
    }
    """The kinds that must appear exactly as often as the thing happened."""

    seen: ClassVar[Counter[str]] = Counter()
    """How often the rare things happened, so that a test can tell an idle machine."""

    @classmethod
    async def make_rig(cls) -> Rig:
        """Make a rig with an open storage that holds nothing."""
        raise NotImplementedError

    async def drop_rig(self) -> None:
        """Let go what `make_rig` made."""
        await self.storage.close()

    def __init__(self) -> None:
        super().__init__()
        self._handled = sys.exception()
        self.loop = asyncio.new_event_loop()
        self.rig: Rig = self.loop.run_until_complete(self.make_rig())
        self.now = 0
        self.paused = False
        self.reap_after = -1
        self.jobs: dict[str, Expected] = {}
        self.keys: dict[str, Hold] = {}
        self.ghosts: dict[str, Ghost] = {}
        self.workers = ["w0", "w1", "w2"]
        self.specs: list[JobSpec] = []
        self.ids: dict[str, None] = {}
        self.granted: set[Lease] = set()
        self.stale: list[Lease] = []
        self.settled: set[Lease] = set()
        self.last_settled: list[Outcome] = []
        self.unanswered: list[Claim] = []
        self.added = 0
        self.gone = 0
        self.numbers = count(1)
        self.due_events: list[tuple[str | None, EventKind]] = []
        self.log: list[Event] = []
        self.told: dict[str | None, EventKind] = {}

    @property
    def storage(self) -> Storage:
        """The storage under test."""
        return self.rig.storage

    def run(self, call: Callable[[], Awaitable[T]], lose: str = "") -> T:
        """Call the storage; with `lose`, lose the reply of that verb first and repeat."""

        async def ask() -> T:
            return await call()

        if lose:
            self.seen[f"lost {lose}"] += 1
            self.rig.lose_reply(lose)
            try:
                self.loop.run_until_complete(ask())
            except StorageUnavailable:
                pass
            else:
                raise AssertionError(f"the reply to {lose} was not lost")
        return self.loop.run_until_complete(ask())

    def _tell(self, kind: EventKind, job_id: str | None = None) -> None:
        """Expect one event from this step."""
        self.due_events.append((job_id, kind))

    # Time. Deadlines are kept at a distance, so `<` is all the model ever needs.

    def _deadlines(self) -> Iterator[int]:
        yield self.reap_after
        for job in self.jobs.values():
            yield from (job.until, job.due, job.expires or 0)
        yield from (hold.until for hold in self.keys.values() if hold.until is not None)
        yield from (ghost.until for ghost in self.ghosts.values())

    def _advance(self, ms: int) -> None:
        """Move on by `ms`, or a little more where some deadline would be too near to call."""
        to = self.now + ms
        while near := [d for d in self._deadlines() if to <= d <= to + self.slack_ms]:
            to = max(near) + 1
        self.run(lambda: self.rig.advance(to - self.now))
        self.now = to
        for job in [j for j in self.jobs.values() if j.expires is not None and j.expires < to]:
            self.seen["expired"] += 1
            self._drop(job)  # no ghost: whether its ending outlives `result_ttl` is left open
        self.keys = {k: h for k, h in self.keys.items() if h.until is None or h.until > to}
        self.ghosts = {i: g for i, g in self.ghosts.items() if g.until > to}

    # Jobs.

    def _lapsed(self, job: Expected) -> bool:
        return job.until < self.now

    def _owner(self, lease: Lease) -> Expected | None:
        """The job that runs under this very lease."""
        job = self.jobs.get(lease.job_id)
        return job if job is not None and job.lease == lease else None

    def _live(self) -> list[Expected]:
        """Jobs in the hands of workers who know it and live."""
        return [j for j in self.jobs.values() if j.lease is not None and j.worker in self.workers]

    def _is_active(self, job_id: str) -> bool:
        job = self.jobs.get(job_id)
        return job is not None and job.state is State.ACTIVE

    def _line_up(self, job: Expected, delay_ms: int, *, front: bool = False) -> None:
        """Expect the job at the end of its line, or in front of it."""
        terms = job.spec.terms
        job.rank = None
        job.lease = None
        job.token = ""
        job.until = 0
        if delay_ms:
            job.state, job.due = State.DELAYED, self.now + delay_ms
            return
        job.state, job.due = State.WAITING, 0
        front = front or terms.lifo
        if not (front and terms.priority):
            n = next(self.numbers)
            job.rank = (terms.priority, -n if front else n)

    def _finish(self, job: Expected, state: State) -> None:
        terms = job.spec.terms
        job.state, job.lease, job.token, job.until, job.due = state, None, "", 0, 0
        job.doomed, job.rank = False, None
        if terms.result_ttl_ms is not None:
            job.expires = self.now + terms.result_ttl_ms
        key = terms.dedup.key if terms.dedup is not None else ""
        hold = self.keys.get(key)
        if hold is not None and hold.job_id == job.id and hold.until is None:
            del self.keys[key]
        self._tell(TOLD_BY[state], job.id)

    def _bury(self, job: Expected, kind: EndingKind) -> None:
        """Expect the job gone, its key free, and its ending readable if somebody waits."""
        if job.state in FINISHED:
            kind = ending_kind(job)
        if job.reply:
            self.ghosts[job.id] = Ghost(self.now + ENDING_KEPT_MS, kind, job.result)
        key = job.spec.terms.dedup.key if job.spec.terms.dedup is not None else ""
        hold = self.keys.get(key)
        if hold is not None and hold.job_id == job.id:
            if job.state in FINISHED:
                hold.loose = True  # the contract leaves open whether the key outlives a removal
            else:
                del self.keys[key]
        self._drop(job)

    def _drop(self, job: Expected) -> None:
        """Let a job vanish from the expectation."""
        del self.jobs[job.id]
        self.gone += 1
