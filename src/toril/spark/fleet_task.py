"""A fleet's side on an executor: one long task that runs an ordinary worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Final, cast

from toril.errors import StorageError, StorageUnavailable, TorilError
from toril.garbage import spared_collections
from toril.queue import Queue
from toril.spark.board import Board, Order
from toril.spark.cargo import Cargo
from toril.spark.fleet_count import TaskCount
from toril.spark.target import Target
from toril.storage.protocol import Storage
from toril.worker import Worker

POLL_S: Final = 0.5
"""How often a task looks for orders and tells its counts."""

_PATIENCE_S: Final = 30.0
"""How long a task that starts waits for a storage that does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnd:
    """What a task returns: its attempts, the last one its own, and why it could not work."""

    attempts: Sequence[TaskCount]
    error: TorilError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTask:
    """What travels to each executor and runs there."""

    run: str
    queue: str
    target: Target
    cargo: bytes

    def __call__(self, task: int, _rows: Iterable[int]) -> Iterator[TaskEnd]:
        """Work until ordered to stop; runs on an executor.

        What is wrong with the task itself is returned, for a raised error would only be tried
        again and reach the driver as text.
        """
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = 0 if context is None else context.attemptNumber()
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            yield runner.run(self._work(task, attempt))

    async def _work(self, task: int, attempt: int) -> TaskEnd:
        own = TaskCount(task=task, attempt=attempt, worker_id="")
        try:
            cargo = Cargo.unpack(self.cargo)
            handlers = cargo.handlers()
            queue: Queue[Any, Any] = Queue(
                self.queue,
                self.target.resolve(),
                serde=cargo.serde,
                result_serde=cargo.result_serde,
            )
            options = {"name": f"spark-{task}.{attempt}", **cargo.options}
            worker = Worker(queue, handlers, **cast("Any", options))
            shift = _Shift(worker, replace(own, worker_id=worker.id), self.run)
            return await shift.work()
        except TorilError as error:
            return TaskEnd(attempts=[own], error=error)


class _Shift:
    """One attempt of a task at work: the worker, its orders, its counts."""

    def __init__(self, worker: Worker[Any, Any], count: TaskCount, run: str) -> None:
        self._worker = worker
        self._count = count
        self._storage: Storage = worker.queue.storage
        self._board = Board(self._storage, worker.queue.name, run)
        self._earlier: Sequence[TaskCount] = ()
        self._begun = time.monotonic()
        self._obeyed = Order()
        self._told: TaskCount | None = None

    async def work(self) -> TaskEnd:
        await _patiently(self._storage.open)
        try:
            order = await _patiently(self._board.order)
            told = await _patiently(lambda: self._board.told([self._count.task]))
            self._earlier = [one for one in told if one.attempt < self._count.attempt]
            error = None
            if not order.stop:
                with spared_collections():
                    error = await self._serve()
            self._count = replace(self._now(), active=0, ended=True)
            with suppress(StorageError):
                await self._tell()
            return TaskEnd(attempts=[*self._earlier, self._count], error=error)
        finally:
            await self._storage.close()

    async def _serve(self) -> TorilError | None:
        """Run the worker until it ends; return what ended it before it was told to stop."""
        working = asyncio.create_task(self._worker.run())
        try:
            while not working.done():
                # An outage is the worker's to report and to wait out.
                with suppress(StorageError):
                    await self._tell()
                    await self._obey(await self._board.order())
                await asyncio.wait([working], timeout=POLL_S)
        finally:
            working.cancel()
            await asyncio.wait([working])
        try:
            working.result()
        except TorilError as error:
            return error
        return None

    async def _obey(self, order: Order) -> None:
        if order != self._obeyed:
            self._obeyed = order
            await self._worker.stop(order.grace_s)

    def _now(self) -> TaskCount:
        tally = self._worker.tally
        return replace(
            self._count,
            completed=tally.completed,
            failed=tally.failed,
            retried=tally.retried,
            active=self._worker.active,
            seconds=round(time.monotonic() - self._begun, 3),
        )

    async def _tell(self) -> None:
        """Leave the counts, unless nothing but the time has changed."""
        now = self._count if self._count.ended else self._now()
        if self._told is None or replace(now, seconds=self._told.seconds) != self._told:
            await self._board.tell([*self._earlier, now])
            self._told = now


async def _patiently(call: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat a call to a storage that does not answer, for a while."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return await call()
        except StorageUnavailable:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(POLL_S)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop
