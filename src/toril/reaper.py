"""Recover stalled jobs without working any."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from toril.clock import Clock, SystemClock
from toril.engine.journal import Journal, Logger
from toril.engine.reap import ReapLoop
from toril.errors import InvalidOption, StorageError
from toril.hooks import H, HookKind, Hooks
from toril.ids import check_name, worker_id
from toril.metrics import MetricsCollector, NoMetrics
from toril.options import whole
from toril.retry import Seconds, to_ms, to_seconds
from toril.storage import open_storage
from toril.storage.protocol import Storage


class Reaper:
    """Looks for stalled jobs in some queues, or in all the storage knows.

    Workers reap by themselves; a reaper of its own helps where workers come and go. Any number
    may run: the storage lets one of them work per interval.
    """

    def __init__(
        self,
        storage: Storage | str,
        queues: Sequence[str] = (),
        *,
        interval: Seconds = 30,
        max_stalls: int = 1,
        logger: Logger | None = None,
        metrics: MetricsCollector | None = None,
        clock: Clock | None = None,
    ) -> None:
        if isinstance(queues, str):
            raise InvalidOption(f"queues={queues!r}: give a list of names")
        self.storage = open_storage(storage) if isinstance(storage, str) else storage
        self._queues = [check_name("queue", name) for name in queues]
        self._interval_ms = to_ms(to_seconds("interval", interval, above=True))
        self._max_stalls = whole("max_stalls", max_stalls, 0)
        self._logger = logger
        self._metrics: MetricsCollector = metrics or NoMetrics()
        self._clock: Clock = clock or getattr(self.storage, "clock", None) or SystemClock()
        self.id = worker_id()
        self.hooks = Hooks(Journal(logger, "", self.id).trouble)
        self._background: asyncio.Task[None] | None = None

    def on(self, kind: HookKind) -> Callable[[H], H]:
        """Decorate a callback: `stalled` gets a job id, `error` an exception."""
        return lambda hook: self.hooks.on(kind, hook)

    async def run(self) -> None:
        """Reap until cancelled; without names, also queues that appear later."""
        await self.storage.open()
        watched: set[str] = set()
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    for queue in set(self._queues or await self._discover()) - watched:
                        watched.add(queue)
                        group.create_task(self._loop(queue).run())
                    await self._clock.sleep(self._interval_ms / 1000)
        finally:
            await self.storage.close()

    async def _discover(self) -> Sequence[str]:
        """Name the queues there are; an outage is reported and waited out."""
        try:
            return await self.storage.queues()
        except StorageError as error:
            journal = Journal(self._logger, "", self.id)
            journal.trouble("could not look for queues, trying again", error)
            self.hooks.emit("error", error)
            return ()

    def _loop(self, queue: str) -> ReapLoop:
        return ReapLoop(
            storage=self.storage,
            queue=queue,
            clock=self._clock,
            interval_ms=self._interval_ms,
            max_stalls=self._max_stalls,
            journal=Journal(self._logger, queue, self.id),
            metrics=self._metrics,
            stalled=lambda job_id, _doomed: self.hooks.emit("stalled", job_id),
            failed=lambda error: self.hooks.emit("error", error),
        )

    async def __aenter__(self) -> Self:
        self._background = asyncio.create_task(self.run(), name=f"toril-reaper-{self.id}")
        await asyncio.sleep(0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        background, self._background = self._background, None
        if background is not None:
            background.cancel()
            await asyncio.wait([background])
            await self.hooks.drain()
            if not background.cancelled():
                background.result()
