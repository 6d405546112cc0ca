"""Work the jobs of a queue: fetch, run, settle, and stop without losing any."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from copy import copy
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Final, Generic, Self, Unpack

from toril.clock import wait_future
from toril.context import Desk
from toril.engine.execute import Executor, Handler, Handlers
from toril.engine.fetch import Fetcher
from toril.engine.hand import Cause, Hand, Run
from toril.engine.heart import Heart, tick_s
from toril.engine.journal import Journal
from toril.engine.outage import Outage
from toril.engine.reap import ReapLoop
from toril.engine.report import Reporter, Tally
from toril.engine.settle import Settler
from toril.errors import InvalidOption, StorageError, TorilError
from toril.event import Cursor
from toril.hooks import H, HookKind, Hooks
from toril.job import In, Out
from toril.metrics import MetricsCollector, NoMetrics
from toril.outcome import Answer, Completed, Outcome
from toril.retry import to_ms, to_seconds
from toril.storage.protocol import Batch, Feature
from toril.worker_options import WorkerOptions, WorkerOverrides

if TYPE_CHECKING:
    from toril.queue import Queue

_LAST_WORDS_S: Final = 2.0
"""How long a stopping worker insists on recording what is left."""


class WorkerState(StrEnum):
    """What a worker is doing."""

    STOPPED = "stopped"
    RUNNING = "running"
    DISCONNECTED = "disconnected"
    STOPPING = "stopping"


class Worker(Generic[In, Out]):
    """Runs a handler for the jobs of one queue, up to `concurrency` at once.

    A handler is `async def` or a plain function, which runs in a thread; a mapping gives one
    handler per job name. `run` works until `stop`; `async with` does both.
    """

    def __init__(
        self,
        queue: Queue[In, Out],
        handler: Handler[In, Out] | Mapping[str, Handler[In, Out]],
        **options: Unpack[WorkerOverrides],
    ) -> None:
        self.options = WorkerOptions.of(options)
        self.queue = queue
        _check_handler(handler)
        self._handlers: Handlers[In, Out] = Handlers(handler)
        if self.options.limiter is not None:
            queue.require(Feature.RATE_LIMIT, "limiter")
        self._metrics: MetricsCollector = self.options.metrics or NoMetrics()
        self._journal = Journal(self.options.logger, queue.name, self.id)
        self.hooks = Hooks(self._journal.trouble)
        self.tally = Tally()
        """What became of its attempts so far."""
        self._crew: _Crew[In, Out] | None = None
        self._background: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Worker {self.id} on {self.queue.name!r}, {self.state}>"

    @property
    def id(self) -> str:
        """The worker's id, in every log record and event it causes."""
        return self.options.worker_id

    @property
    def handler_names(self) -> tuple[str, ...]:
        """The job names it has handlers for; none where one handler takes them all."""
        return self._handlers.names

    def changed(self, **options: Unpack[WorkerOverrides]) -> Worker[In, Out]:
        """Give another worker for the same queue, handlers and hooks, with some options changed."""
        if self._crew is not None:
            raise TorilError(f"{self!r} is running already")
        made = copy(self)
        made.options = self.options.changed(options)
        made.tally = Tally()
        made._metrics = made.options.metrics or NoMetrics()
        made._journal = Journal(made.options.logger, self.queue.name, made.id)
        return made

    @property
    def state(self) -> WorkerState:
        """What the worker is doing now."""
        return WorkerState.STOPPED if self._crew is None else self._crew.state

    @property
    def active(self) -> int:
        """How many jobs are in hand."""
        return 0 if self._crew is None else len(self._crew.hand.runs)

    def on(self, kind: HookKind) -> Callable[[H], H]:
        """Decorate a callback for something that happens in this worker; see `Hooks`."""
        return lambda hook: self.hooks.on(kind, hook)

    async def run(self) -> None:
        """Work until `stop`, or until cancelled; then running jobs are handed back at once.

        Raises the storage's error when it stays away for `max_reconnect_attempts`.
        """
        if self._crew is not None:
            raise TorilError(f"{self!r} is running already")
        self._crew = _Crew(self, self._handlers, self._journal, self._metrics)
        try:
            if await self._crew.open():
                try:
                    await self._crew.run()
                finally:
                    await self.queue.storage.close()
        finally:
            self._crew = None

    async def start(self) -> None:
        """Work in the background until `stop`."""
        if self._background is None:
            self._background = asyncio.create_task(self.run(), name=f"toril-worker-{self.id}")
            await asyncio.sleep(0)

    async def stop(self, timeout: float | None = None) -> None:
        """Take no more jobs, let the running ones finish for `timeout`, hand back the rest.

        `timeout` defaults to `shutdown_timeout`; a second call with 0 cuts the time of the first.
        Raises what ended the worker, if something did.
        """
        if self._crew is not None:
            grace = self.options.shutdown_timeout if timeout is None else timeout
            self._crew.stop(to_seconds("timeout", grace))
        background, self._background = self._background, None
        if background is not None:
            await background

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()


def _check_handler(handler: object) -> None:
    if isinstance(handler, Mapping):
        if not handler:
            raise InvalidOption("handler={}: name at least one handler")
        for name, one in handler.items():
            if not isinstance(name, str) or not callable(one):
                raise InvalidOption(f"handler {name!r}: map job names to functions")
    elif not callable(handler):
        raise InvalidOption(f"handler={handler!r}: give a function, or a mapping of functions")


class _Crew(Generic[In, Out]):
    """One run of a worker: its duties, wired together, and their orderly end."""

    def __init__(
        self,
        worker: Worker[In, Out],
        handlers: Handlers[In, Out],
        journal: Journal,
        metrics: MetricsCollector,
    ) -> None:
        queue, options = worker.queue, worker.options
        storage, clock = queue.storage, queue.clock
        self._worker = worker
        self._storage = storage
        self._clock = clock
        self._journal = journal
        self._metrics = metrics
        self._hooks = worker.hooks
        self._stopping: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._hurry: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._failure: BaseException | None = None
        policy = options.policy()
        self.hand: Hand[In] = Hand(options.concurrency)
        self._outage = Outage(
            clock,
            journal,
            metrics,
            max_tries=options.max_reconnect_attempts,
            on_error=lambda error: self._hooks.emit("error", error),
        )
        self._reporter: Reporter[In] = Reporter(
            queue=queue.name,
            journal=journal,
            metrics=metrics,
            hooks=worker.hooks,
            classify=policy.classify,
            tally=worker.tally,
        )
        self._fetcher: Fetcher[In] = Fetcher(
            storage=storage,
            queue=queue.name,
            worker_id=worker.id,
            hand=self.hand,
            outage=self._outage,
            clock=clock,
            lease_ms=options.lease_ms,
            block_ms=to_ms(to_seconds("block_timeout", options.block_timeout)),
            rate=None if options.limiter is None else options.limiter.rate(),
            worker_name=options.name,
            deliver=self._deliver,
        )
        self._settler: Settler[In] = Settler(
            storage=storage,
            queue=queue.name,
            hand=self.hand,
            outage=self._outage,
            refill=self._fetcher.refill,
            refilled=self._fetcher.refilled,
            deliver=self._deliver,
            settled=self._settled,
            crashed=self._crashed,
        )
        desk = Desk(
            queue=queue.name,
            worker_id=worker.id,
            storage=storage,
            loop=asyncio.get_running_loop(),
            thread=threading.get_ident(),
            attempts=options.attempts,
            strict_progress=options.strict_progress,
        )
        self._executor: Executor[In, Out] = Executor(
            handlers=handlers,
            hand=self.hand,
            desk=desk,
            serde=queue.serde,
            result_serde=queue.result_serde,
            policy=policy,
            clock=clock,
            journal=journal,
            finish=self._settler.add,
            result_limit=queue.defaults.size_limit,
        )
        self._heart: Heart[In] = Heart(
            storage=storage,
            queue=queue.name,
            hand=self.hand,
            clock=clock,
            lease_ms=options.lease_ms,
            tick=tick_s(options.lease_ms / 1000, options.heartbeat_s),
            journal=journal,
            metrics=metrics,
            lost=self._lost,
            cancelled=lambda run: self._executor.stop(run, Cause.CANCELLED),
        )
        self._reap = ReapLoop(
            storage=storage,
            queue=queue.name,
            clock=clock,
            interval_ms=to_ms(to_seconds("reap_interval", options.reap_interval)),
            max_stalls=options.max_stalls,
            journal=journal,
            metrics=metrics,
            stalled=lambda job_id, _doomed: self._hooks.emit("stalled", job_id),
            failed=lambda error: self._hooks.emit("error", error),
            known_away=lambda: self._outage.ongoing,
        )

    @property
    def state(self) -> WorkerState:
        if self.hand.closing:
            return WorkerState.STOPPING
        return WorkerState.DISCONNECTED if self._outage.ongoing else WorkerState.RUNNING

    def stop(self, grace_s: float) -> None:
        """Ask for an orderly end; asked again with no grace, hand back what is left at once."""
        if not self._stopping.done():
            self._stopping.set_result(grace_s)
        elif grace_s <= 0:
            self.hurry()

    def hurry(self) -> None:
        """Cut the grace of a stop that is under way."""
        if not self._hurry.done():
            self._hurry.set_result(None)

    async def open(self) -> bool:
        """Open the storage, however long it stays away; False if stopped before."""
        opening = asyncio.ensure_future(self._outage.insist(self._storage.open, afresh=True))
        either: list[asyncio.Future[None] | asyncio.Future[float]] = [opening, self._stopping]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not opening.done():
                opening.cancel()
        if opening.done() and not opening.cancelled():
            opening.result()
            return True
        return False

    async def run(self) -> None:
        """Do all duties until asked to stop, then end them in order."""
        worker = self._worker
        self._metrics.set_active_workers(worker.queue.name, worker.id, True)
        self._metrics.set_redis_connection_status(True)
        self._journal.worker("started", f"worker started, {self.hand.size} at once")
        async with asyncio.TaskGroup() as group:
            fetch = group.create_task(self._guard(self._fetcher.run()))
            others = [
                group.create_task(self._guard(duty))
                for duty in (self._heart.run(), self._reap.run())
            ]
            cancelled = None
            try:
                grace_s = await self._stopping
            except asyncio.CancelledError as error:
                cancelled, grace_s = error, 0.0
            end = group.create_task(self._wind_down(fetch, grace_s))
            try:
                await asyncio.shield(end)
            except asyncio.CancelledError as error:  # while stopping: hand back now
                cancelled = error
                self.hurry()
                await end
            finally:
                for duty in (fetch, *others):
                    duty.cancel()
                self._executor.close()
        await self._hooks.drain()
        self._metrics.set_active_workers(worker.queue.name, worker.id, False)
        self._journal.worker("stopped", "worker stopped")
        if cancelled is not None:
            raise cancelled
        if self._failure is not None:
            raise self._failure

    async def _guard(self, duty: Coroutine[object, object, None]) -> None:
        """Let a broken duty end the worker in order, not tear it down."""
        try:
            await duty
        except Exception as error:
            self._crashed(error)

    def _crashed(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
        self._hooks.emit("error", error)
        self.stop(0.0)

    async def _wind_down(self, fetch: asyncio.Task[None], grace_s: float) -> None:
        """Stop fetching, wait for running jobs, hand back the rest, record everything."""
        asked = self._clock.monotonic()
        self._fetcher.close()
        self._journal.worker("stopping", f"worker stopping, {len(self.hand.runs)} jobs in hand")
        sign = asyncio.ensure_future(self._storage.cursor(self._worker.queue.name))
        emptied = asyncio.ensure_future(self._emptied(fetch))
        # Whoever is in a hurry does not wait for the running jobs.
        emptied.add_done_callback(lambda _done: self.hurry())
        idle = asyncio.ensure_future(self._hurry_where_nothing_waits())
        try:
            await wait_future(self._clock, self._hurry, grace_s)
            if not emptied.done():
                for run in tuple(self.hand.runs):
                    self._executor.stop(run, Cause.SHUTDOWN)
            if await wait_future(self._clock, emptied, self._last_words_s(asked, sign)):
                await self._say_goodbye(self._last_words_s(asked, sign))
            else:
                self._heart.abandon()
                left = self._settler.abandon()
                if left:
                    self._journal.worker(
                        "abandoned",
                        f"{left} jobs could not be handed back; they restart when their lease"
                        " lapses",
                        logging.WARNING,
                    )
        finally:
            idle.cancel()
            emptied.cancel()
            sign.cancel()

    async def _hurry_where_nothing_waits(self) -> None:
        """Cut the grace when no job needs it: none in hand, and the storage is away."""
        await self.hand.empty()
        while not self._outage.ongoing:
            await self._clock.sleep(_LAST_WORDS_S / 4)
        self.hurry()

    def _last_words_s(self, asked: float, sign: asyncio.Future[Cursor]) -> float:
        """How long the storage is waited for: no longer, if it has been silent all the while."""
        if sign.done() and sign.exception() is None:
            return _LAST_WORDS_S
        return max(0.0, _LAST_WORDS_S - (self._clock.monotonic() - asked))

    async def _emptied(self, fetch: asyncio.Task[None]) -> None:
        await asyncio.wait([fetch])
        await self.hand.empty()
        await self._settler.flush()

    async def _say_goodbye(self, seconds: float) -> None:
        if self._outage.ongoing:
            return  # the list of workers forgets by itself
        leaving = asyncio.ensure_future(
            self._storage.leave(self._worker.queue.name, self._worker.id)
        )
        if not await wait_future(self._clock, leaving, seconds):
            leaving.cancel()
        elif isinstance(error := leaving.exception(), StorageError):
            self._journal.worker("leave_failed", f"could not sign off: {error}", logging.DEBUG)

    def _deliver(self, batch: Batch) -> None:
        self._fetcher.note_limit(batch)
        runs = self._executor.start(batch.jobs)
        if self.hand.closing:  # granted while we were leaving: hand them straight back
            for run in runs:
                self._executor.stop(run, Cause.SHUTDOWN)

    def _settled(
        self, ended: Sequence[tuple[Run[In], Outcome]], answers: Sequence[Answer], repeated: bool
    ) -> None:
        for run, outcome, reason in self._reporter.settled(ended, answers, repeated):
            if isinstance(outcome, Completed):
                self._settler.add(run, self._executor.refused(run, reason))
            else:  # nothing is left to say; the lease will lapse
                self.hand.remove(run)
                self._reporter.lost(run, f"the storage refused its end: {reason}")

    def _lost(self, run: Run[In]) -> None:
        if run.context.lost:
            return
        self._reporter.lost(run, "another worker may run the job; this run's result is dropped")
        if self._worker.options.on_lease_lost == "cancel":
            self._executor.stop(run, Cause.LOST)
