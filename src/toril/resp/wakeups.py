"""Let many callers wait for word on one key through one blocking command."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from toril.clock import Clock
from toril.errors import StorageError
from toril.resp.client import Client
from toril.resp.replies import Reply

BLOCK_S: Final = 5.0
"""How long one blocking command waits for word."""
_LAST_WORDS_S: Final = 1.0


class WakeUps:
    """Takes word that there may be work off a key; whoever is told must claim.

    `command` pops from the key. `put_back` returns a word that found nobody: the one that was
    popped, or None for one that its taker could not use.
    """

    def __init__(
        self,
        client: Client,
        key: str,
        command: str,
        put_back: Callable[[Reply], Awaitable[None]],
    ) -> None:
        self.name: str | None = None
        """What the connection is called while it blocks, so that others can tell who waits."""
        self._client = client
        self._key = key
        self._command = command
        self._put_back = put_back
        self._waiters: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None
        self._chores: set[asyncio.Task[None]] = set()

    async def wait(self, clock: Clock, seconds: float) -> None:
        """Return when told, or when the time is up."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._listen())
        timer = clock.call_later(seconds, lambda: resolve(future))
        try:
            await future
        except asyncio.CancelledError:
            told = future.done() and not future.cancelled() and future.exception() is None
            if told and not self._wake_one():
                self._pass_on()  # told and gone, and nobody else here
            raise
        finally:
            timer.cancel()
            self._waiters = [one for one in self._waiters if one is not future]

    async def close(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._chores:
            await asyncio.wait(self._chores, timeout=_LAST_WORDS_S)
        self.poke()

    def poke(self) -> None:
        """Wake everybody, to look again."""
        for future in self._waiters:
            resolve(future)

    def _pass_on(self) -> None:
        chore = asyncio.ensure_future(self._put_back(None))
        self._chores.add(chore)
        chore.add_done_callback(self._chores.discard)

    def _wake_one(self) -> bool:
        for future in self._waiters:
            if not future.done():
                future.set_result(None)
                return True
        return False

    async def _listen(self) -> None:
        # Asked anew each time: somebody may come while a word is put back.
        while any(not future.done() for future in self._waiters):
            try:
                told = await self._client.block(
                    self._key,
                    *(self._command, self._key, str(BLOCK_S)),
                    timeout_s=BLOCK_S,
                    orphan=self._put_back,
                    name=self.name,
                )
            except StorageError as error:
                for future in self._waiters:
                    if not future.done():
                        future.set_exception(error)
                return
            if told and not self._wake_one():
                await self._put_back(told)


async def came_before(cut: asyncio.Future[None], wait: Coroutine[Any, Any, None]) -> bool:
    """Wait, but not longer than until `cut` is done; tell whether the wait ended by itself."""
    waiting = asyncio.ensure_future(wait)
    either: list[asyncio.Future[None]] = [waiting, cut]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if cut.done():
        return False
    waiting.result()
    return True


def resolve(future: asyncio.Future[None]) -> None:
    """Wake whoever waits for the future, unless that was done."""
    if not future.done():
        future.set_result(None)
