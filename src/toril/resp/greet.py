"""Make a connection ready: TLS, login, database, name; and end what an old one left behind.

The handshake is a generator that yields commands and takes replies, so that the asynchronous
and the blocking client share it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Coroutine, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, cast

from toril.clock import Clock, wait_future
from toril.errors import InvalidOption, StorageError, StorageUnavailable
from toril.resp.replies import LOGIN, Lost, Refusal, ServerSaid, judge
from toril.resp.secret import scrub
from toril.resp.url import Address
from toril.resp.wire import Answer, Endpoint, Ghost, Wire, pack, reason_of
from toril.text import printable

T = TypeVar("T")

_log = logging.getLogger("toril.resp")
_GROWTH: Final = 1.08
_NO_HELLO: Final = ("NOPROTO", "ERR unknown command", "ERR unknown subcommand", "ERR syntax")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How long to wait for what; all times in seconds."""

    connect_timeout: float = 5.0
    """One attempt to connect and log in."""
    command_timeout: float = 3.0
    """Silence of the server while it owes a reply."""
    patience: float = 4.0
    """What one call may spend on waiting for a connection and on repeats."""
    max_reconnect_attempts: int = 0
    """Failed attempts in a row until waiting calls are given up; 0 is no limit."""
    client_name: str = "toril"
    durability: str = "memory"
    first_delay: float = 0.1
    longest_delay: float = 30.0

    def delay(self, tries: int) -> float:
        """How long to wait after so many failed attempts to connect, before the spread.

        Each wait is a twelfth longer than the one before, so that the one under way when the
        server comes back is never more than a tenth of the time it was away.
        """
        return min(self.first_delay * _GROWTH ** min(tries - 1, 1000), self.longest_delay)

    @classmethod
    def of(cls, address: Address, given: Settings | None = None) -> Settings:
        """Take what was given, then what the URL says, then the defaults."""
        plain, base = Address(), given or cls()
        said = {
            "command_timeout": (address.timeout, plain.timeout),
            "client_name": (address.client_name, plain.client_name),
            "durability": (address.durability, plain.durability),
        }
        changes = {
            name: value
            for name, (value, default) in said.items()
            if value != default and getattr(base, name) == default
        }
        return replace(base, **cast("dict[str, Any]", changes))


def hurried(settings: Settings) -> Settings:
    """Connect in a second or not at all: a dead node must not hold up the question to the next."""
    return replace(settings, connect_timeout=min(settings.connect_timeout, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """What a server said of itself and of this connection."""

    client_id: int
    run_id: str
    info: dict[str, str]


def tls_context(address: Address) -> ssl.SSLContext | None:
    """Make the TLS settings of an address: verified, with the host name checked, by default."""
    if not address.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=address.ca)
        if address.cert is not None:
            context.load_cert_chain(address.cert, address.key)
    except OSError as error:
        raise InvalidOption(
            f"{address.safe}: cannot read ca, cert or key ({reason_of(error)})"
        ) from None
    if not address.verify:
        _log.warning("TLS to %s is not verified (verify=off): anybody can pose as it", address.safe)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def handshake(
    address: Address, name: str, ghosts: Iterable[Ghost] = (), *, master: bool = False
) -> Generator[list[bytes], Sequence[Answer], Greeting]:
    """Log in and learn who is there; with `master` refuse to stay with a replica.

    Ghosts of the same server are killed before the connection is used, so that nothing they
    left in a socket's buffer runs after what is repeated here. A restarted server counts its
    connections anew, hence the comparison of run ids.
    """
    first, *rest = yield _hello(address, name, master)
    if isinstance(first, ServerSaid) and str(first).startswith(_NO_HELLO):
        first, *rest = yield _auth(address, name, master)
    role = rest.pop() if master else None
    for answer in (first, *rest[: 1 if address.db else 0]):
        if isinstance(answer, ServerSaid | Lost):
            raise answer
    if isinstance(role, list) and role and role[0] != b"master":
        raise Lost(f"it is a {printable(_text(role[0]), 20)}, not the master")
    client_id, raw = rest[-2:]
    if isinstance(raw, Lost):
        raise raw
    info = read_info(raw)
    greeting = Greeting(
        # An ACL may forbid CLIENT ID and INFO; all that is lost is the hunt for ghosts.
        client_id=client_id if isinstance(client_id, int) else 0,
        run_id=info.get("run_id", ""),
        info=info,
    )
    if kills := kill_commands(greeting.run_id, ghosts):
        yield kills
    return greeting


def kill_commands(run_id: str, ghosts: Iterable[Ghost]) -> list[bytes]:
    """Write the commands that end the old connections to the server of this run id."""
    return [pack("CLIENT", "KILL", "ID", g.client_id) for g in ghosts if run_id == g.run_id != ""]


def read_info(answer: object) -> dict[str, str]:
    """Read the lines of INFO; an error reply gives nothing."""
    if not isinstance(answer, bytes):
        return {}
    lines = (line.partition(":") for line in _text(answer).splitlines())
    return {name: value for name, colon, value in lines if colon}


async def dial(
    endpoint: Endpoint,
    address: Address,
    settings: Settings,
    clock: Clock,
    *,
    context: ssl.SSLContext | None = None,
    ghosts: Iterable[Ghost] = (),
    master: bool = False,
) -> Wire:
    """Connect and log in within `connect_timeout`; raise `Lost` for what may pass by itself."""
    wire = Wire(clock, settings.connect_timeout)
    try:
        await within(
            clock,
            settings.connect_timeout,
            _connect(wire, endpoint, address, settings, context, ghosts, master),
        )
    except Exception as error:
        failure = explain(error, endpoint, address)
    except BaseException:
        await wire.close()
        raise
    else:
        wire.allow(settings.command_timeout)
        return wire
    await wire.close()
    # Raised out here, or the server's own words would hang on it as the context.
    raise failure


def explain(error: Exception, where: object, address: Address) -> Exception:
    """Turn a failed attempt into `Lost` (try again) or into an error for the caller."""
    match error:
        case ServerSaid():
            text = scrub(error.text, address.login()[1])
            match judge(error):
                case Refusal(kind=kind):
                    return kind(f"toril[E15] server at {where}: login refused: {text}{LOGIN}")
                case _:
                    return Lost(text)
        case ssl.SSLCertVerificationError():
            return StorageUnavailable(
                f"server at {where}: its certificate is not trusted"
                f" ({printable(error.verify_message, 100)}); name its CA with ca="
            )
        case Lost() | StorageError():
            return error
        case _:
            return Lost(reason_of(error))


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine; cancel it and raise TimeoutError when the time is over."""
    task = asyncio.ensure_future(work)
    try:
        if await wait_future(clock, task, seconds):
            return task.result()
        raise TimeoutError
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])


async def _connect(
    wire: Wire,
    endpoint: Endpoint,
    address: Address,
    settings: Settings,
    context: ssl.SSLContext | None,
    ghosts: Iterable[Ghost],
    master: bool,
) -> None:
    loop = asyncio.get_running_loop()
    if endpoint.path is not None:
        await loop.create_unix_connection(lambda: wire, endpoint.path)
    else:
        await loop.create_connection(lambda: wire, endpoint.host, endpoint.port, ssl=context)
    steps = handshake(address, settings.client_name, ghosts, master=master)
    try:
        # The commands hold the password, so they are never in a variable a traceback can show.
        replies = await wire.send_all(next(steps))
        while True:
            replies = await wire.send_all(steps.send(replies))
    except StopIteration as end:
        greeting: Greeting = end.value
        wire.client_id, wire.run_id, wire.info = greeting.client_id, greeting.run_id, greeting.info


def _hello(address: Address, name: str, master: bool) -> list[bytes]:
    username, password = address.login()
    login: list[str] = []
    if username or password is not None:
        # A user that needs no password logs in with an empty one.
        login = ["AUTH", username or "default", password.reveal() if password else ""]
    return [pack("HELLO", 2, *login, "SETNAME", name), *_after_login(address, master)]


def _auth(address: Address, name: str, master: bool) -> list[bytes]:
    """Log in the way of servers and proxies without HELLO."""
    username, password = address.login()
    words = [username] if username else []
    first = pack("PING") if password is None else pack("AUTH", *words, password.reveal())
    return [first, *_after_login(address, master, pack("CLIENT", "SETNAME", name))]


def _after_login(address: Address, master: bool, *naming: bytes) -> list[bytes]:
    select = [pack("SELECT", address.db)] if address.db else []
    role = [pack("ROLE")] if master else []
    return [*select, *naming, pack("CLIENT", "ID"), pack("INFO", "server"), *role]


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
