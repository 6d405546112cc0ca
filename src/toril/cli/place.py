"""Open the storage a command talks to, for as long as it runs."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from toril.cli.options import At, Callback, placed, speaking
from toril.cli.output import Output
from toril.errors import InvalidOption
from toril.queue import Queue
from toril.storage import open_storage
from toril.storage.protocol import Storage

T = TypeVar("T")
AnyQueue = Queue[Any, Any]


def url_of(at: At) -> str:
    """Give the whole URL, with its secret; for opening only."""
    from toril.spark.target import target_of

    return target_of("toril", at.url, at.url_env, at.password_file).resolve()


def open_at(at: At) -> Storage:
    """Make the storage; a memory storage is refused, as it would be empty and gone at the end."""
    return open_storage(shared_url_of(at))


def shared_url_of(at: At) -> str:
    """Give the whole URL of a storage that other processes see, too; for opening only."""
    url = url_of(at)
    if url.startswith("memory:"):
        raise InvalidOption(
            "toril[E15] MemoryStorage lives in one process; a command cannot see another's."
            " fix: use embedded:, file:path or a server's URL"
        )
    return url


def at_queue(command: Callable[..., Coroutine[Any, Any, int | None]]) -> Callback:
    """Run a coroutine with the queue named by its first argument, open."""

    @speaking
    @placed
    @functools.wraps(command)
    def call(output: Output, queue: str, at: At, **options: Any) -> int | None:
        async def run() -> int | None:
            async with Queue[Any, Any](queue, open_at(at)) as opened:
                return await command(output, opened, **options)

        return asyncio.run(run())

    return call


def at_storage(command: Callable[..., Coroutine[Any, Any, int | None]]) -> Callback:
    """Run a coroutine with the storage, open."""

    @speaking
    @placed
    @functools.wraps(command)
    def call(output: Output, at: At, **options: Any) -> int | None:
        async def run() -> int | None:
            storage = open_at(at)
            await storage.open()
            try:
                return await command(output, storage, **options)
            finally:
                await storage.close()

        return asyncio.run(run())

    return call
