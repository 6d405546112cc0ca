"""The storage a flow talks to: by name for Spark, open for the driver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from toril.ids import check_name
from toril.spark.target import Target, target_of
from toril.storage import open_storage
from toril.storage.protocol import Storage

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One queue of one storage; what Spark is told of it holds no secret."""

    flow: str
    queue: str
    url: str | None = None
    url_env: str | None = None
    password_file: str | None = None

    def __post_init__(self) -> None:
        check_name("queue", self.queue)
        self.target().resolve()

    def options(self) -> dict[str, str]:
        """The options of `toril_jobs` that name this queue."""
        return {"queue": self.queue, **self.target().anchored().options()}

    def target(self) -> Target:
        """The storage as the sources see it."""
        return target_of(self.flow, self.url, self.url_env, self.password_file)

    def open(self) -> Desk:
        """Open the storage here, on the driver."""
        return Desk(self.target().resolve())


class Desk:
    """An open storage for code that blocks: an event loop in a thread of its own.

    Of its own, because a notebook has a loop in the calling thread.
    """

    def __init__(self, url: str) -> None:
        self.storage: Storage = open_storage(url)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="toril-desk")
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        try:
            self.call(lambda storage: storage.open())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.call(lambda storage: storage.close())
        finally:
            self._end()

    def call(self, verb: Callable[[Storage], Coroutine[Any, Any, T]]) -> T:
        """Run a verb and wait for its answer."""
        return self._thread.submit(self._run, verb).result()

    def _run(self, verb: Callable[[Storage], Coroutine[Any, Any, T]]) -> T:
        return self._runner.run(verb(self.storage))

    def _end(self) -> None:
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown()
