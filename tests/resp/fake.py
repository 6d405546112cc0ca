"""A server that says what a test wants, for replies real servers give too rarely."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

import hiredis

Answerer = Callable[[list[bytes]], bytes | None]

OK = b"+OK\r\n"


def greet(command: list[bytes]) -> bytes | None:
    """Answer the handshake like an ordinary server; None for everything else."""
    match [part.upper() for part in command]:
        case [b"HELLO", *_]:
            return b"*2\r\n$6\r\nserver\r\n$5\r\nredis\r\n"
        case [b"CLIENT", b"ID"]:
            return b":7\r\n"
        case [b"INFO", *_]:
            text = b"run_id:abc\r\nredis_version:7.0.15\r\n"
            return b"$%d\r\n%s\r\n" % (len(text), text)
        case [b"SELECT" | b"AUTH" | b"CLIENT", *_]:
            return OK
        case [b"PING"]:
            return b"+PONG\r\n"
        case _:
            return None


class Fake:
    """Listens on a loopback port and answers each command through a function."""

    def __init__(self, answer: Answerer) -> None:
        self.answer = answer
        self.commands: list[list[bytes]] = []
        self.connections = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"redis://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        parser = hiredis.Reader(notEnoughData=Fake)
        try:
            while data := await reader.read(65536):
                parser.feed(data)
                while (command := parser.gets()) is not Fake:
                    self.commands.append(command)
                    reply = self.answer(command)
                    if reply is not None:
                        writer.write(reply)
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()
