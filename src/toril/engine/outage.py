"""Share one view of a storage that does not answer: when to try again, what to log."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from toril.clock import Clock
from toril.engine.journal import Journal
from toril.errors import StorageClosed, StorageError, StorageUnfit
from toril.metrics import MetricsCollector

T = TypeVar("T")

FIRST_S: Final = 0.1
LONGEST_S: Final = 30.0
_LOG_FIRST_S: Final = 4.0
_LOG_LONGEST_S: Final = 60.0
_WAITED_S: Final = 1.0
"""A call that took this long before it failed has itself waited for its server."""


class Outage:
    """Counts the failures of all duties of one worker together, so that they log once."""

    def __init__(
        self,
        clock: Clock,
        journal: Journal,
        metrics: MetricsCollector,
        *,
        max_tries: int = 0,
        on_error: Callable[[BaseException], None] = lambda _error: None,
    ) -> None:
        self._clock = clock
        self._journal = journal
        self._metrics = metrics
        self._max_tries = max_tries
        self._on_error = on_error
        self.tries = 0
        self._since = 0.0
        self._log_at = 0.0

    @property
    def ongoing(self) -> bool:
        """Whether the last call failed."""
        return self.tries > 0

    async def insist(self, call: Callable[[], Awaitable[T]], *, afresh: bool = False) -> T:
        """Repeat a call until the storage answers it; its verbs are safe to repeat.

        Gives up, with the storage's error, after `max_tries` repeats in a row. A call that goes
        about it `afresh` each time, as if nothing had failed before, never paces itself.
        """
        while True:
            begun = self._clock.monotonic()
            try:
                answer = await call()
            except (StorageClosed, StorageUnfit):
                raise  # by ourselves, or for good; waiting is no help
            except StorageError as error:
                self.failed(error)
                if self._max_tries and self.tries > self._max_tries:
                    raise
                await self.rest(self._clock.monotonic() if afresh else begun)
            else:
                if self.tries:
                    self.recovered()
                return answer

    async def rest(self, begun: float) -> None:
        """Wait before a call that began then, and failed, is repeated.

        A storage that waits for its server has paced the attempts already. A second wait on top
        would miss the moment the server is back.
        """
        if self._clock.monotonic() - begun < _WAITED_S:
            await self._clock.sleep(self.delay_s())

    def delay_s(self) -> float:
        """How long to wait before the next try: doubling, capped, spread by a fifth."""
        doublings = min(max(self.tries - 1, 0), 20)
        base: float = min(FIRST_S * 2.0**doublings, LONGEST_S)
        return base * random.uniform(0.8, 1.2)

    def failed(self, error: BaseException) -> None:
        """Note a failure; log the first one, then ever more seldom, down to once a minute."""
        now = self._clock.monotonic()
        self.tries += 1
        if self.tries == 1:
            self._since = now
            self._metrics.set_redis_connection_status(False)
            self._on_error(error)
        else:
            self._metrics.increment_redis_reconnect_attempts()
        if self.tries == 1 or now >= self._log_at:
            silent = now - self._since
            self._log_at = now + min(max(silent, _LOG_FIRST_S), _LOG_LONGEST_S)
            self._journal.disconnected(error, self.tries, silent)

    def recovered(self) -> None:
        """Note that the storage answers again."""
        tries, self.tries = self.tries, 0
        self._metrics.set_redis_connection_status(True)
        self._journal.reconnected(tries, self._clock.monotonic() - self._since)
