"""Stand between a client and a server, and misbehave on request.

    pass_       hand everything on
    blackhole   swallow everything in silence, on old and new connections (no RST, no FIN)
    dead_old    the connections of this moment fall silent for ever, new ones work
    delay       hand everything on, late
    late_requests, late_replies   one of them late, the other at once

`cut_reply_to(word)` closes the connection instead of handing on the reply to a command that
holds the word, after the server has run it.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Literal, Self

Mode = Literal["pass_", "blackhole", "dead_old", "delay", "late_requests", "late_replies"]


class Link:
    """One client connection and the server connection behind it."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.dead = False
        self.cutting = False

    def abort(self) -> None:
        """Close both sides at once."""
        self.client.transport.abort()
        self.server.transport.abort()


class Proxy:
    """A TCP proxy on a free loopback port."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.target = (host, port)
        self.port = 0
        self.delay_s = 0.0
        self.links: list[Link] = []
        self.accepted = 0
        self.cuts = 0
        self._mode: Mode = "pass_"
        self._cut: dict[bytes, int] = {}
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def mode(self) -> Mode:
        """What happens to the bytes."""
        return self._mode

    def switch(self, mode: Mode, *, delay_s: float = 0.0) -> None:
        """Change the mode; `dead_old` goes back to passing for what comes."""
        if mode == "dead_old":
            for link in self.links:
                link.dead = True
            mode = "pass_"
        self._mode = mode
        self.delay_s = delay_s
        self._changed.set()
        self._changed = asyncio.Event()

    def cut_reply_to(self, word: bytes, times: int = 1) -> None:
        """Let the next commands with this word run, and close instead of replying."""
        self._cut[word] = times

    def abort_all(self) -> None:
        """Reset every connection."""
        for link in list(self.links):
            link.abort()

    async def start(self) -> None:
        """Begin to listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close everything; a stopped proxy refuses connections and can be started again."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.abort_all()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

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

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.accepted += 1
        try:
            if self._server is None:  # it was stopped between the knock and this turn of the loop
                raise ConnectionAbortedError
            back, forth = await asyncio.open_connection(*self.target)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
            return
        link = Link(writer, forth)
        self.links.append(link)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(link, reader, forth, requests=True))
                group.create_task(self._pump(link, back, writer, requests=False))
        except* (OSError, _Over):
            pass
        except* asyncio.CancelledError:
            # Only `stop` cancels; asyncio's streams would log it as an error.
            pass
        finally:
            link.abort()
            self.links.remove(link)

    async def _pump(
        self,
        link: Link,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        requests: bool,
    ) -> None:
        while data := await reader.read(65536):
            while self._mode == "blackhole" or link.dead:
                # What was sent meanwhile waits in the kernel's buffers, as behind a real cable.
                await self._changed.wait()
            if self._mode in ("delay", "late_requests" if requests else "late_replies"):
                await asyncio.sleep(self.delay_s)
            if requests:
                self._arm(link, data)
            elif link.cutting:
                self.cuts += 1
                raise _Over
            writer.write(data)
            with contextlib.suppress(OSError):
                await writer.drain()
        while self._mode == "blackhole" or link.dead:
            # A dead line does not tell that one side hung up.
            await self._changed.wait()
        raise _Over

    def _arm(self, link: Link, data: bytes) -> None:
        for word, times in list(self._cut.items()):
            if times and word in data:
                self._cut[word] = times - 1
                link.cutting = True


class _Over(Exception):
    """One side hung up."""
