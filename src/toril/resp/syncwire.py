"""Speak RESP over a blocking socket."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterable, Sequence
from typing import Final

from hiredis import ProtocolError, Reader

from toril.resp.greet import Greeting, Settings, explain, handshake
from toril.resp.replies import Lost, ServerSaid
from toril.resp.url import Address
from toril.resp.wire import NOTHING, Answer, Endpoint, Ghost, reason_of, tune

_CHUNK: Final = 65536


class SyncWire:
    """One connection; a command and its reply at a time, or a bundle of them."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reader = Reader(replyError=ServerSaid, notEnoughData=NOTHING)
        self._owing = False
        self.client_id = 0
        self.run_id = ""

    @classmethod
    def dial(
        cls,
        endpoint: Endpoint,
        address: Address,
        settings: Settings,
        context: ssl.SSLContext | None,
        ghosts: Iterable[Ghost] = (),
        *,
        master: bool = False,
    ) -> SyncWire:
        """Connect and log in; raise `Lost` for what may pass by itself."""
        sock: socket.socket | None = None
        try:
            sock = _connect(endpoint, settings.connect_timeout, context)
            wire = cls(sock)
            wire._log_in(address, settings.client_name, ghosts, master)
            sock.settimeout(settings.command_timeout)
        except Exception as error:
            failure = explain(error, endpoint, address)
        except BaseException:
            if sock is not None:
                sock.close()
            raise
        else:
            return wire
        if sock is not None:
            sock.close()
        # Raised out here, or the server's own words would hang on it as the context.
        raise failure

    @property
    def ghost(self) -> Ghost | None:
        """What may still run on the server after this connection broke."""
        known = self._owing and self.client_id and self.run_id
        return Ghost(self.run_id, self.client_id) if known else None

    def exchange(self, packed: Sequence[bytes]) -> list[Answer]:
        """Send commands together and wait for all their replies; raise `Lost` when it breaks."""
        self._owing = True
        try:
            self._sock.sendall(b"".join(packed))
            answers = [self._next() for _ in packed]
        except ProtocolError:
            raise Lost("not a RESP server, or the stream is damaged") from None
        except TimeoutError:
            raise Lost(f"no reply within {self._sock.gettimeout():g} s") from None
        except OSError as error:
            raise Lost(reason_of(error)) from None
        self._owing = False
        return answers

    def close(self) -> None:
        """Close the connection; a thread that reads from it gets `Lost`."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _next(self) -> Answer:
        while (reply := self._reader.gets()) is NOTHING:
            data = self._sock.recv(_CHUNK)
            if not data:
                raise Lost("closed by the server")
            self._reader.feed(data)
        answer: Answer = reply
        return answer

    def _log_in(self, address: Address, name: str, ghosts: Iterable[Ghost], master: bool) -> None:
        steps = handshake(address, name, ghosts, master=master)
        try:
            # The commands hold the password, so they are never in a variable here.
            replies = self.exchange(next(steps))
            while True:
                replies = self.exchange(steps.send(replies))
        except StopIteration as end:
            greeting: Greeting = end.value
            self.client_id, self.run_id = greeting.client_id, greeting.run_id


def _connect(endpoint: Endpoint, timeout: float, context: ssl.SSLContext | None) -> socket.socket:
    if endpoint.path is not None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout)
        try:
            sock.connect(endpoint.path)
        except BaseException:
            sock.close()
            raise
        return sock
    sock = socket.create_connection((endpoint.host, endpoint.port), timeout)
    tune(sock)
    if context is None:
        return sock
    try:
        return context.wrap_socket(sock, server_hostname=endpoint.host)
    except BaseException:
        sock.close()
        raise
