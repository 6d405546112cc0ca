"""Commit outcomes in groups and bring the next jobs back with the same call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Generic

from toril.clock import give_way
from toril.engine.hand import Hand, Run
from toril.engine.outage import Outage
from toril.failpoints import passing
from toril.job import In
from toril.outcome import Answer, AnswerKind, Outcome
from toril.storage.protocol import Batch, Claim, Settlement, Storage

# Two calls under way: the storage works on one while the next fills. More would only make
# the groups smaller, unless the hand is large: then groups are kept from growing with it, for
# every job of a group waits until all of it is settled and the jobs after it have started.
_FLIGHTS: Final = 2
_MOST_FLIGHTS: Final = 4
_MOST: Final = 50

# Groups smaller than this cost more to take apart than it brings.
_LEAST: Final = 8

# Handlers that took longer than this have waited for something, and those after them will: then a
# place is worth most while it is filled, and groups are small and handed out as they come. No more
# than two at once, however large the hand: the more are with the storage, the longer each is away.
_BRIEF_S: Final = 0.01
_FEW: Final = 25
_PARTS: Final = 8

# Two replies that come together would go on together: both groups of handlers would run while
# the storage idles, and both groups be settled while we do. So the second waits for the turns of
# the loop in which the first runs and is sent: to start, to end, to be gathered, to be written.
_TURNS: Final = 4

Entry = tuple[Run[In], Outcome]
Settled = Callable[[Sequence[Entry[In]], Sequence[Answer], bool], None]


class Settler(Generic[In]):
    """Outcomes of one turn of the loop go out together; one alone does not wait for company."""

    def __init__(
        self,
        *,
        storage: Storage,
        queue: str,
        hand: Hand[In],
        outage: Outage,
        refill: Callable[[int], Claim | None],
        refilled: Callable[[Claim, Batch], None],
        deliver: Callable[[Batch], None],
        settled: Settled[In],
        crashed: Callable[[BaseException], None],
    ) -> None:
        self._storage = storage
        self._queue = queue
        self._hand = hand
        self._outage = outage
        self._refill = refill
        self._refilled = refilled
        self._deliver = deliver
        self._settled = settled
        self._crashed = crashed
        self._loop = asyncio.get_running_loop()
        self._pending: list[Entry[In]] = []
        self._flights: set[asyncio.Task[None]] = set()
        # Those whose reply is still awaited. The others hand out what came with it, and the
        # storage has nothing to do.
        self._calls = 0
        self._delivering = asyncio.Lock()
        self._scheduled = False
        self._closed = False
        # Half a hand at most: handlers of one half run while the storage works on the other.
        self._most = max(_LEAST, min(_MOST, hand.size // _FLIGHTS))
        self._most_calls = max(_FLIGHTS, min(_MOST_FLIGHTS, hand.size // self._most))
        self._few = max(_LEAST, min(_FEW, hand.size // _PARTS))

    def add(self, run: Run[In], outcome: Outcome) -> None:
        """Take an outcome; it is sent at the end of this turn of the loop."""
        run.ended = True
        # Nobody would take it: the job is another's. Or a handler outlived its worker, and its
        # lease will lapse.
        if run.context.lost or self._closed:
            self._hand.remove(run)
            return
        self._pending.append((run, outcome))
        if len(self._hand.runs) == 1:  # nobody else can join it in this turn
            self._send()
        elif not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._send)

    async def flush(self) -> None:
        """Wait until everything taken so far is settled."""
        while self._pending or self._flights:
            if not self._flights:
                self._send()
            await asyncio.wait(self._flights)

    def abandon(self) -> int:
        """Give up what is not settled, now and later; returns how many runs that leaves."""
        self._closed = True
        for flight in self._flights:
            flight.cancel()
        self._pending.clear()
        return len(self._hand.runs)

    def _send(self) -> None:
        self._scheduled = False
        if not self._pending:
            return
        brief = self._pending[0][0].seconds < _BRIEF_S
        most, most_calls = (self._most, self._most_calls) if brief else (self._few, _FLIGHTS)
        if self._calls >= most_calls:
            return
        group, self._pending = self._pending[:most], self._pending[most:]
        flight = self._loop.create_task(self._fly(group, brief))
        self._calls += 1
        self._flights.add(flight)
        flight.add_done_callback(self._landed)
        if self._pending:
            # In a write of its own: a server answers together what it reads together, and then
            # we would idle while it works, and it while we do.
            self._scheduled = True
            self._loop.call_soon(self._send)

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        if not flight.cancelled() and (error := flight.exception()) is not None:
            self._crashed(error)
        self._send()

    async def _fly(self, group: Sequence[Entry[In]], brief: bool) -> None:
        outcomes = [outcome for _, outcome in group]
        # Threads that outlive their runs may hold places these runs would free.
        places = min(len(group), len(group) + self._hand.free)
        refill = self._refill(places) if places > 0 else None
        calls = 0

        async def settle() -> Settlement:
            nonlocal calls
            calls += 1
            passing("before_commit")
            return await self._storage.settle(self._queue, outcomes, refill)

        try:
            settlement = await self._outage.insist(settle)
        finally:
            self._calls -= 1
        self._send()
        passing("after_send")
        answers, refused = settlement.answers, AnswerKind.REFUSED
        pairs = zip(group, answers, strict=True)
        self._hand.remove(*[run for (run, _), answer in pairs if answer.kind is not refused])
        self._settled(group, answers, calls > 1)
        if refill is not None:
            self._refilled(refill, settlement.batch)
            await self._hand_out(settlement.batch, brief)

    async def _hand_out(self, batch: Batch, brief: bool) -> None:
        if not brief or len(batch.jobs) < _LEAST:
            self._deliver(batch)
            return
        self._hand.take(len(batch.jobs))  # they are ours, though not in a place yet
        try:
            await self._delivering.acquire()
        finally:
            self._hand.give_back(len(batch.jobs))
        try:
            self._deliver(batch)
            await give_way(_TURNS)
        finally:
            self._delivering.release()
