"""A fleet's side on the driver: start the tasks, watch them, tell them to stop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from toril.errors import StorageError
from toril.queue import Queue
from toril.retry import Seconds, to_seconds
from toril.spark.background import Background
from toril.spark.board import Board, Order
from toril.spark.drained import is_drained
from toril.spark.fleet_count import FleetProgress, FleetResult, TaskCount
from toril.spark.fleet_failure import one_line
from toril.spark.fleet_task import POLL_S, FleetTask, TaskEnd
from toril.storage.protocol import Counts
from toril.text import printable

if TYPE_CHECKING:
    from pyspark import SparkContext

StopWhen = Literal["drained"] | None

_LOG: Final = logging.getLogger("toril.spark.fleet")
_LOG_EVERY_S: Final = 5.0
_LAST_S: Final = 15.0
"""How long after the grace of a stop the tasks may take to end by themselves."""


class FleetHandle:
    """A started fleet. `with` stops it at the end of the block and waits for it."""

    def __init__(
        self,
        *,
        context: SparkContext,
        queue: Queue[Any, Any],
        task: FleetTask,
        tasks: int,
        stop_when: StopWhen,
        grace_s: float,
        on_progress: Callable[[FleetProgress], object] | None,
    ) -> None:
        self.id = task.run
        self._context = context
        self._queue = queue
        self._task = task
        self._tasks = tasks
        self._stop_when = stop_when
        self._grace_s = grace_s
        self._on_progress = on_progress
        self._storage = queue.storage
        self._board = Board(queue.storage, queue.name, task.run)
        self._order = Order()
        self._background = Background(f"toril-fleet-{queue.name}")
        self._job: Future[Sequence[TaskEnd]] = Future()
        self._end: Future[FleetResult] | None = None
        self._begun = time.monotonic()
        self._logged = self._begun
        self._progress: FleetProgress | None = None

    def __repr__(self) -> str:
        state = "done" if self.done else "stopping" if self._order.stop else "running"
        return f"<FleetHandle {self.id} on {self._queue.name!r}, {state}>"

    @property
    def done(self) -> bool:
        """Whether all tasks have ended."""
        return self._end is not None and self._end.done()

    def begin(self) -> None:
        """Reach the storage, then start the Spark job in a thread of its own."""
        from pyspark import InheritableThread

        try:
            self._background.call(self._open())
        except BaseException:
            self._background.close()
            raise
        InheritableThread(target=self._run_job, name="toril-fleet-job", daemon=True).start()
        self._end = self._background.submit(self._oversee())

    def progress(self) -> FleetProgress:
        """Count anew: what the tasks did, by what they told last, and what the queue holds."""
        if self.done or self._background.inside:
            return self._progress or self._picture([], None)
        try:
            return self._background.call(self._look())
        except StorageError:
            if not self.done:  # else it ended while we asked
                raise
        return self._progress or self._picture([], None)

    def stop(self, *, drain: bool = True, timeout: Seconds | None = None) -> None:
        """Let the tasks take no more jobs, and wait until they have ended.

        With `drain` running jobs get `timeout` to end (default: the workers' `shutdown_timeout`),
        without it none; what still runs then is handed back to the front of the line. Tasks that
        do not answer are cancelled a quarter of a minute later, and their jobs come back when the
        leases lapse. Called from `on_progress` it does not wait.
        """
        grace = None if timeout is None else to_seconds("timeout", timeout)
        order = Order(stop=True, grace_s=grace if drain else 0.0)
        if self._background.inside:
            self._background.submit(self._give(order)).add_done_callback(_complain)
            return
        if self.done:
            return
        try:
            self._background.call(self._give(order))
        except StorageError as error:  # given again as soon as it answers
            _LOG.warning("fleet on '%s': stop: %s", self._queue.name, printable(error))
        patience = self._grace_s if order.grace_s is None else order.grace_s
        if not self._wait(patience + _LAST_S):
            _LOG.warning("fleet on '%s': tasks did not end, cancelled", self._queue.name)
            self._context.cancelJobGroup(self.id)
            self._wait(None)

    def result(self, timeout: Seconds | None = None) -> FleetResult:
        """Wait for the end of all tasks and tell what they did.

        Raises what kept them from working: `InvalidOption`, `StorageError` and so on, or
        `TorilError` where Spark gave up. `TimeoutError` says that the fleet still works.
        """
        limit = None if timeout is None else to_seconds("timeout", timeout)
        if not self._wait(limit):
            raise TimeoutError(f"{self!r}: still at work after {limit:g} s; stop() ends it")
        assert self._end is not None
        return self._end.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop(drain=kind is None)
        if kind is None:
            self.result()

    def _wait(self, seconds: float | None) -> bool:
        assert self._end is not None
        try:
            self._end.exception(seconds)
        except FutureTimeout:
            return False
        self._background.close()
        return True

    # -- in the thread of the Spark job ----------------------------------------------------

    def _run_job(self) -> None:
        try:
            about = f"toril fleet of {self._tasks} tasks on '{self._queue.name}'"
            self._context.setJobGroup(self.id, about, interruptOnCancel=False)
            slices = self._context.parallelize(range(self._tasks), self._tasks)
            self._job.set_result(slices.mapPartitionsWithIndex(self._task).collect())
        except BaseException as error:
            self._job.set_exception(one_line(self._queue.name, error))

    # -- on the loop -----------------------------------------------------------------------

    async def _open(self) -> None:
        await self._storage.open()
        try:
            await self._storage.counts(self._queue.name)
            await self._board.begin()
        except BaseException:
            await self._storage.close()
            raise

    async def _oversee(self) -> FleetResult:
        """Watch until the Spark job ends, then sum up."""
        job = asyncio.wrap_future(self._job)
        try:
            while not job.done():
                try:
                    await self._pass()
                except StorageError as error:
                    _LOG.warning("fleet on '%s': %s", self._queue.name, printable(error))
                await asyncio.wait([job], timeout=POLL_S)
            with suppress(StorageError):
                await self._last_look()
            return self._sum_up(job.result())
        finally:
            job.cancel()
            await self._storage.close()

    async def _pass(self) -> None:
        progress = await self._look()
        self._report(progress)
        if self._order.stop:
            if await self._board.order() != self._order:  # gone with somebody else's records
                await self._board.give(self._order)
            return
        drained = self._stop_when == "drained" and await is_drained(
            self._storage, self._queue.name, progress.counts, self._queue.clock
        )
        if drained or self._some_ended():
            await self._give(Order(stop=True))

    def _some_ended(self) -> bool:
        """Tell whether a task ended that nobody told to; it knows why."""
        try:
            tracker = self._context.statusTracker()
            jobs = [tracker.getJobInfo(one) for one in tracker.getJobIdsForGroup(self.id)]
            stages = [tracker.getStageInfo(one) for job in jobs if job for one in job.stageIds]
        except Exception:  # the session was stopped, and the job ends with it
            return False
        return any(stage is not None and stage.numCompletedTasks for stage in stages)

    async def _give(self, order: Order) -> None:
        self._order = order
        await self._board.give(order)

    async def _look(self) -> FleetProgress:
        counts = await self._storage.counts(self._queue.name)
        attempts = await self._board.told(range(self._tasks))
        self._progress = self._picture(attempts, counts)
        return self._progress

    def _picture(self, attempts: Sequence[TaskCount], counts: Counts | None) -> FleetProgress:
        return FleetProgress(
            queue=self._queue.name,
            tasks=self._tasks,
            attempts=attempts,
            counts=counts or Counts(),
            seconds=time.monotonic() - self._begun,
            stopping=self._order.stop,
        )

    def _report(self, progress: FleetProgress) -> None:
        now = time.monotonic()
        if now - self._logged >= _LOG_EVERY_S:
            self._logged = now
            _LOG.info("%s", progress)
        if self._on_progress is not None:
            try:
                self._on_progress(progress)
            except Exception:
                _LOG.exception("fleet on '%s': on_progress raised", self._queue.name)

    async def _last_look(self) -> None:
        self._logged = -_LOG_EVERY_S
        self._report(await self._look())
        await self._board.clear(self._tasks)

    def _sum_up(self, ends: Sequence[TaskEnd]) -> FleetResult:
        for end in ends:
            if end.error is not None:
                raise end.error
        return FleetResult(
            queue=self._queue.name,
            tasks=[end.attempts[-1] for end in ends],
            died=[one for end in ends for one in end.attempts[:-1]],
            seconds=time.monotonic() - self._begun,
        )


def _complain(given: Future[None]) -> None:
    if (error := given.exception()) is not None:
        _LOG.warning("a fleet could not be told to stop: %s", printable(error))
