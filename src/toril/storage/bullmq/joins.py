"""Let jobs that many callers hand in at the same time, each its own, go out together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from typing import TypeAlias

from toril.job import JobSpec
from toril.storage.protocol import Receipt

Add: TypeAlias = Callable[[Sequence[JobSpec]], Awaitable[Sequence[Receipt]]]
AddOne: TypeAlias = Callable[[JobSpec], Awaitable[Receipt]]
Entry: TypeAlias = tuple[JobSpec, asyncio.Future[Receipt]]


def _own(error: BaseException) -> BaseException:
    """Give each his own: an error that many raise grows everybody's traceback."""
    try:
        return copy(error)
    except Exception:  # made by a class whose arguments are not those it keeps
        return error


class Joins:
    """Joins hand-ins of one queue. Who is alone does not wait for company.

    Whoever comes while others are under way waits to the end of this turn of the loop; all that
    come until then share a call. A caller who is cancelled takes nobody else along.
    """

    def __init__(self, add: Add, add_one: AddOne) -> None:
        self._add = add
        self._add_one = add_one
        self._under_way = 0
        self._waiting: list[Entry] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def hand_in(self, spec: JobSpec) -> Receipt:
        """Add one job; together with others if there are any."""
        if not self._under_way:
            self._under_way += 1
            try:
                return await self._add_one(spec)
            finally:
                self._under_way -= 1
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._send)
        future: asyncio.Future[Receipt] = loop.create_future()
        self._waiting.append((spec, future))
        return await future

    def _send(self) -> None:
        group, self._waiting = self._waiting, []
        task = asyncio.create_task(self._add_all(group))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _add_all(self, group: Sequence[Entry]) -> None:
        self._under_way += 1
        try:
            receipts = await self._add([spec for spec, _ in group])
        except BaseException as error:
            for _, future in group:
                if not future.done():
                    future.set_exception(_own(error))
            if not isinstance(error, Exception):
                raise
        else:
            for (_, future), receipt in zip(group, receipts, strict=True):
                if not future.done():
                    future.set_result(receipt)
        finally:
            self._under_way -= 1
