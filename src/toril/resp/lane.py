"""Keep one connection to one server, and make it again when it breaks."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from toril.clock import Clock, wait_future
from toril.errors import StorageClosed, StorageError, StorageUnavailable
from toril.resp.greet import Settings, dial, kill_commands
from toril.resp.replies import Lost
from toril.resp.url import Address
from toril.resp.wire import Answer, Endpoint, Ghost, Wire

# A server that was called stale is left at most this often, or calls to a replica would make
# one connection each.
_DROP_EVERY_S: Final = 1.0
_MOST_GHOSTS: Final = 100

Outcome = Wire | Lost | StorageError


class Place:
    """Where the server of a lane is to be found; a sentinel may answer anew each time."""

    def __init__(
        self,
        address: Address,
        find: Callable[[], Awaitable[Endpoint]],
        *,
        shown: str,
        master: bool = False,
        alone: bool = True,
    ) -> None:
        self.address = address
        self.find = find
        self.shown = shown
        self.master = master
        self.alone = alone
        """Whether waiting is all that helps; else who waits hears of each failed attempt."""

    def __str__(self) -> str:
        return self.shown


class Lane:
    """One connection, single-flight reconnect, waits that grow between failed attempts.

    Attempts are made only while somebody waits for the connection.
    """

    def __init__(
        self,
        place: Place,
        settings: Settings,
        clock: Clock,
        context: ssl.SSLContext | None,
        heir: Lane | None = None,
    ) -> None:
        self.place = place
        self._heir = heir
        self.wire: Wire | None = None
        self.tries = 0
        """Failed attempts since the last connection."""
        self.on_connect: Callable[[Wire], None] | None = None
        self._settings = settings
        self._clock = clock
        self._context = context
        self._closed = False
        self._why = "still connecting"
        self._ghosts: list[Ghost] = []
        self._waiting = 0
        self._not_before = 0.0
        self._dropped = -_DROP_EVERY_S
        self._dialing: asyncio.Task[None] | None = None
        self._outcome: asyncio.Future[Outcome] | None = None

    async def ready(self, seconds: float) -> Wire:
        """Give the connection, made if need be.

        Raises `Lost` when `seconds` were not enough or, of several nodes, when this one could not
        be reached once; and a StorageError when more attempts would not help.
        """
        self.check_open()
        if self.wire is not None:
            return self.wire
        self._waiting += 1
        try:
            outcome = self._next_outcome()
            if not await wait_future(self._clock, outcome, seconds):
                raise Lost(self._why)
        finally:
            self._waiting -= 1
        result = outcome.result()
        if isinstance(result, Wire):
            return result
        # Anew for each caller: an error that many raise grows everybody's traceback.
        raise type(result)(*result.args)

    def check_open(self) -> None:
        """Raise StorageClosed after `close`."""
        if self._closed:
            raise StorageClosed(f"connection to {self.place} is closed; open the storage again")

    def bury(self, ghost: Ghost | None) -> None:
        """Have an old connection to this server killed: now, or first thing after reconnecting."""
        if ghost is None:
            return
        if self._heir is not None:
            # This lane may never be used again.
            self._heir.bury(ghost)
        # Kept until a reply tells that it is gone: this connection may be as dead as the other.
        self._ghosts = [*self._ghosts[1 - _MOST_GHOSTS :], ghost]
        if self.wire is None:
            return

        def forget(reply: asyncio.Future[Answer]) -> None:
            if not isinstance(reply.result(), Lost):
                self._forget([ghost])

        for command in kill_commands(self.wire.run_id, [ghost]):
            self.wire.send(command).add_done_callback(forget)

    def drop(self, reason: str) -> None:
        """Leave a server that says it is the wrong one, so that the next call looks again."""
        now = self._clock.monotonic()
        if self.wire is not None and now - self._dropped >= _DROP_EVERY_S:
            self._dropped = now
            self.wire.break_off(reason)

    async def close(self) -> None:
        """Close the connection; whoever waits for it gets StorageClosed."""
        self._closed = True
        if self._dialing is not None:
            self._dialing.cancel()
            await asyncio.wait([self._dialing])
        self._tell(StorageClosed(f"connection to {self.place} was closed"))
        wire, self.wire = self.wire, None
        if wire is not None:
            await wire.close()

    def _next_outcome(self) -> asyncio.Future[Outcome]:
        if self._outcome is None or self._outcome.done():
            self._outcome = asyncio.get_running_loop().create_future()
        if self._dialing is None:
            self._dialing = asyncio.create_task(self._dial_while_wanted())
        return self._outcome

    async def _dial_while_wanted(self) -> None:
        try:
            while self.wire is None:
                await self._clock.sleep(max(self._not_before - self._clock.monotonic(), 0))
                if not self._waiting:
                    return
                try:
                    wire = await self._dial()
                except (Lost, StorageError) as error:
                    if not self._failed(error):
                        return
                else:
                    self._connected(wire)
        finally:
            self._dialing = None

    async def _dial(self) -> Wire:
        place, ghosts = self.place, tuple(self._ghosts)
        wire = await dial(
            await place.find(),
            place.address,
            self._settings,
            self._clock,
            context=self._context,
            ghosts=ghosts,
            master=place.master,
        )
        self._forget(ghosts)
        return wire

    def _forget(self, ghosts: Sequence[Ghost]) -> None:
        self._ghosts = [ghost for ghost in self._ghosts if ghost not in ghosts]

    def _connected(self, wire: Wire) -> None:
        self.tries = 0
        self._why = "still connecting"
        # Whoever is hung up on at once must not make a thousand connections a second.
        self._wait(self._settings.first_delay)
        if wire.lost is not None:
            self._tell(wire.lost)
            return
        self.wire = wire
        wire.on_lost = self._lost
        if self.on_connect is not None:
            self.on_connect(wire)
        self._tell(wire)

    def _failed(self, error: Lost | StorageError) -> bool:
        """Note a failed attempt; tell whether to go on."""
        self.tries += 1
        self._why = str(error)
        self._wait(self._settings.delay(self.tries))
        most = self._settings.max_reconnect_attempts
        if most and self.tries >= most:
            tries, self.tries = self.tries, 0
            self._tell(
                StorageUnavailable(
                    f"server at {self.place}: {error}; gave up after {tries} attempts"
                )
            )
            return False
        if isinstance(error, StorageError) or not self.place.alone:
            self._tell(error)
        return True

    def _wait(self, delay: float) -> None:
        self._not_before = self._clock.monotonic() + delay * random.uniform(0.8, 1.2)

    def _lost(self, wire: Wire) -> None:
        if self.wire is wire:
            self.wire = None
        self.bury(wire.ghost)

    def _tell(self, outcome: Outcome) -> None:
        if self._outcome is not None and not self._outcome.done():
            self._outcome.set_result(outcome)
