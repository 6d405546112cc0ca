"""Answer a monitoring system over HTTP: /metrics, /healthz, /readyz."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Self

from toril.errors import InvalidOption, StorageError
from toril.job import State
from toril.prometheus import PrometheusMetrics
from toril.queue import Queue
from toril.worker import Worker, WorkerState

_REQUEST_LIMIT: Final = 8192
_PATIENCE_S: Final = 5.0
_LOOK_S: Final = 2.0
_TEXT: Final = "text/plain; charset=utf-8"
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"


class Exporter:
    """Serves the metrics and the health of workers; on loopback unless told otherwise.

    `/metrics` counts the queues when it is asked. `/healthz` says that the process lives,
    `/readyz` that every worker works and reaches its storage.
    """

    def __init__(
        self,
        metrics: PrometheusMetrics,
        workers: Sequence[Worker[Any, Any]],
        *,
        host: str = "127.0.0.1",
        port: int = 9464,
    ) -> None:
        if not 0 <= port <= 65535:
            raise InvalidOption(f"port={port}: allowed 0..65535, 0 takes a free one")
        self._metrics = metrics
        self._workers = tuple(workers)
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Where it answers, once started."""
        if self._server is None:
            raise InvalidOption("the exporter is not started; use it in `async with`")
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.start_server(
                self._serve, self._host, self._port, limit=_REQUEST_LIMIT
            )
        except OSError as error:
            raise InvalidOption(
                f"metrics cannot listen on {self._host}:{self._port} ({error.strerror});"
                " choose another port"
            ) from error
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, kind, body = await self._answer(head)
                with_body = not head.startswith(b"HEAD ")
                writer.write(
                    f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                    + (body if with_body else b"")
                )
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # nobody is there to be told
        finally:
            writer.close()

    async def _answer(self, head: bytes) -> tuple[HTTPStatus, str, bytes]:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"GET only\n"
        if path == b"/metrics":
            await self._look()
            return HTTPStatus.OK, _METRICS, self._metrics.render()
        if path == b"/healthz":
            return HTTPStatus.OK, _TEXT, b"ok\n"
        if path == b"/readyz":
            return self._ready()
        return HTTPStatus.NOT_FOUND, _TEXT, b"try /metrics, /healthz or /readyz\n"

    def _ready(self) -> tuple[HTTPStatus, str, bytes]:
        away = [one for one in self._workers if one.state is not WorkerState.RUNNING]
        if not away:
            return HTTPStatus.OK, _TEXT, b"ready\n"
        lines = "".join(f"{one.queue.name}: {one.state}\n" for one in away)
        return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, lines.encode()

    async def _look(self) -> None:
        """Count what is in the queues now; where the storage is away, the last counts stay."""
        for worker in self._workers:
            queue = worker.queue
            if worker.state is WorkerState.STOPPED:
                continue
            self._metrics.set_worker_load(
                queue.name, worker.id, worker.active, worker.options.concurrency
            )
        for queue in {worker.queue.name: worker.queue for worker in self._workers}.values():
            try:
                async with asyncio.timeout(_LOOK_S):
                    await gauge(self._metrics, queue)
            except (StorageError, TimeoutError):
                continue


async def gauge(metrics: PrometheusMetrics, queue: Queue[Any, Any]) -> None:
    """Set the gauges of a queue to what it holds now."""
    counts = await queue.get_job_counts()
    paused = await queue.is_paused()
    first = await queue.get_jobs(State.WAITING, 0, 1)
    for state in State:
        metrics.set_queue_length(queue.name, state.value, counts.of(state))
    now = queue.clock.now_ms() / 1000
    age = max(0.0, now - first[0].created_at.timestamp()) if first else 0.0
    metrics.set_queue_state(queue.name, paused, age)
