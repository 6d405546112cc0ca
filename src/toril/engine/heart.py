"""Keep the leases of running jobs alive, and bring back what others ask of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Generic

from toril.clock import Clock
from toril.engine.hand import Hand, Run
from toril.engine.journal import Journal
from toril.engine.standstill import Standstill
from toril.errors import StorageError
from toril.job import In
from toril.metrics import JobMetrics, MetricsCollector
from toril.storage.protocol import Beats, Renewal, Storage

LONGEST_TICK_S: Final = 1.0
"""A running job hears of a cancel within this time."""

MAX_BLOCK_S: Final = 600.0
"""A loop silent for this long is taken for dead; its leases are left to lapse."""

LONGEST_BLOCK_S: Final = 5.0
"""A loop silent for longer is told of, or earlier where leases are shorter."""

_LAST_BEAT_S: Final = 1.0


def tick_s(lease_s: float, heartbeat_s: float) -> float:
    """How often to renew: three tries within a lease, and at least once a second."""
    return min(heartbeat_s, lease_s / 3, LONGEST_TICK_S)


class Heart(Generic[In]):
    """Renews all leases in one call per tick; does not tick while nothing runs."""

    def __init__(
        self,
        *,
        storage: Storage,
        queue: str,
        hand: Hand[In],
        clock: Clock,
        lease_ms: int,
        tick: float,
        journal: Journal,
        metrics: MetricsCollector,
        lost: Callable[[Run[In]], None],
        cancelled: Callable[[Run[In]], None],
        max_block_s: float = MAX_BLOCK_S,
    ) -> None:
        self._storage = storage
        self._queue = queue
        self._hand = hand
        self._clock = clock
        self._lease_ms = lease_ms
        self._tick = tick
        self._journal = journal
        self._metrics = metrics
        self._jobs = metrics if isinstance(metrics, JobMetrics) else None
        self._lost = lost
        self._cancelled = cancelled
        self._max_block_s = max_block_s
        self._alive_at = clock.monotonic()
        self._last_beat_s = _LAST_BEAT_S
        self._patience_s = min(LONGEST_BLOCK_S, lease_ms / 1000 - tick)

    def abandon(self) -> None:
        """Do not wait for the thread at the end; the storage was silent for too long."""
        self._last_beat_s = 0.0

    async def run(self) -> None:
        """Beat until cancelled: from a thread where the storage can, else from this loop."""
        if isinstance(self._storage, Beats):
            await self._run_threaded(self._storage)
        else:
            await self._run_here()

    async def _run_here(self) -> None:
        while True:
            await self._hand.busy()
            before = self._clock.monotonic()
            await self._clock.sleep(self._tick)
            late = self._clock.monotonic() - before - self._tick
            if late > self._patience_s:
                others = max(0, len(self._hand.runs) - 1)
                self._journal.loop_blocked(late, others=others, renewed=False)
            runs = self._held()
            if not runs:
                continue
            try:
                leases = [run.claimed.lease for run in runs]
                began = self._clock.monotonic()
                renewal = await self._storage.renew(self._queue, leases, self._lease_ms)
            except StorageError as error:
                self._missed(error, len(runs))
            else:
                self._heard(runs, renewal, self._clock.monotonic() - began)

    async def _run_threaded(self, storage: Beats) -> None:
        """Beat in a thread; this loop only says that it is alive and hears the answers."""
        stop = threading.Event()
        pulse = _Pulse(self, storage, stop, asyncio.get_running_loop(), threading.get_ident())
        thread = threading.Thread(target=pulse.run, name=f"toril-heart-{self._queue}", daemon=True)
        self._alive_at = self._clock.monotonic()
        thread.start()
        try:
            while True:
                self._alive_at = self._clock.monotonic()
                if pulse.ended.done():
                    pulse.ended.result()  # only a bug ends it; the worker must not go on without
                if self._hand.runs:
                    pulse.busy.set()
                    await self._clock.sleep(self._tick)
                    self._account(pulse, self._clock.monotonic() - self._alive_at - self._tick)
                else:
                    pulse.busy.clear()
                    await self._hand.busy()
        finally:
            stop.set()
            pulse.busy.set()
            # A beat that waits for a server that is away ends by itself; it touches nothing more.
            await asyncio.wait([pulse.ended], timeout=self._last_beat_s)
            if pulse.ended.done():
                pulse.ended.exception()
                thread.join()  # it said so with its last breath

    def _account(self, pulse: _Pulse[In], late_s: float) -> None:
        """Tell of a loop that stood still, unless the thread had to, in the middle of it."""
        if late_s > self._patience_s:
            # Code that does not even let threads run is not seen by ours, which renewed nothing.
            unseen = Standstill("", "", len(self._hand.runs), renewed=False)
            (pulse.seen or unseen).tell(self._journal, late_s)
        pulse.seen = None

    def _held(self) -> Sequence[Run[In]]:
        return [run for run in tuple(self._hand.runs) if not run.context.lost]

    def _missed(self, error: BaseException, jobs: int) -> None:
        self._metrics.increment_heartbeat_failure(self._queue)
        self._journal.heartbeat_failed(error, jobs)

    def _heard(self, runs: Sequence[Run[In]], renewal: Renewal, seconds: float) -> None:
        self._metrics.increment_heartbeat_success(self._queue)
        if self._jobs is not None:
            self._jobs.leases_renewed(self._queue, seconds)
        if not renewal.lost and not renewal.cancelled:
            return
        lost, cancelled = set(renewal.lost), set(renewal.cancelled)
        for run in runs:
            # The lease of a run that ended meanwhile is gone because we settled it.
            if run.ended or run not in self._hand.runs:
                continue
            lease = run.claimed.lease
            if lease in lost:
                self._lost(run)
            elif lease in cancelled and not run.context.cancelled:
                self._cancelled(run)


class _Pulse(Generic[In]):
    """The thread's side of a heart: blocking calls on a connection of its own."""

    def __init__(
        self,
        heart: Heart[In],
        storage: Beats,
        stop: threading.Event,
        loop: asyncio.AbstractEventLoop,
        thread: int,
    ) -> None:
        self._thread = thread
        self.seen: Standstill | None = None
        self._heart = heart
        self._storage = storage
        self._stop = stop
        self._loop = loop
        self.busy = threading.Event()
        self.ended: asyncio.Future[None] = loop.create_future()

    def run(self) -> None:
        try:
            self._beat()
        except Exception as error:
            self._tell(self._end, error)
        else:
            self._tell(self._end, None)

    def _end(self, error: Exception | None) -> None:
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)

    def _beat(self) -> None:
        heart = self._heart
        beat = self._storage.heartbeat()
        try:
            while True:
                self.busy.wait()
                if self._stop.wait(heart._tick):
                    return
                silent = heart._clock.monotonic() - heart._alive_at
                runs = heart._held()
                self._look(silent, runs)
                if not runs or silent > heart._max_block_s:
                    continue
                leases = [run.claimed.lease for run in runs]
                began = heart._clock.monotonic()
                try:
                    renewal = beat.renew(heart._queue, leases, heart._lease_ms)
                except StorageError as error:
                    self._tell(heart._missed, error, len(runs))
                else:
                    took = heart._clock.monotonic() - began
                    self._tell(heart._heard, runs, renewal, took)
        finally:
            beat.close()

    def _look(self, silent: float, runs: Sequence[Run[In]]) -> None:
        """See what a loop that does not answer is at; it may never come back to tell."""
        heart = self._heart
        if silent < 2 * heart._tick:
            return
        if self.seen is None:
            self.seen = Standstill.of(self._loop, self._thread, runs)
        if silent > max(heart._lease_ms / 1000, heart._patience_s):
            self.seen.tell(heart._journal, silent)

    def _tell(self, callback: Callable[..., None], *args: object) -> None:
        with suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(callback, *args)
