"""Read the URL of a server: where it is, how to log in, what was asked of it.

    embedded:[path]   bullmq+embedded:[path]
    [bullmq+]redis[s]://[user[:pw]@]host[:port][/db]        [bullmq+]unix:///path.sock[?db=n]
    [bullmq+]redis[s]+cluster://h:p[,h:p…]                  [bullmq+]redis[s]+sentinel://h:p[,h:p…]/master[/db]
    parameters: prefix, hash_tag, durability, timeout, ca, cert, key, verify, client_name;
    with bullmq+ also ids, metrics

What is not in this grammar is refused with a suggestion. No message holds the password, nor a
piece of the URL that could be one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast
from urllib.parse import parse_qsl, quote, unquote

from toril.errors import InvalidOption
from toril.resp.secret import Secret
from toril.text import printable, suggest

Layout = Literal["lean", "bullmq"]
Kind = Literal["tcp", "unix", "cluster", "sentinel", "embedded"]
Host = tuple[str, int]
Ids = Literal["ulid", "counter"]

PORT: Final = 6379
SENTINEL_PORT: Final = 26379

_KINDS: Final[dict[str, tuple[Kind, bool]]] = {
    "redis": ("tcp", False),
    "rediss": ("tcp", True),
    "unix": ("unix", False),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "embedded": ("embedded", False),
}
_BULLMQ: Final = "bullmq+"
_TLS_ONLY: Final = frozenset({"ca", "cert", "key", "verify"})
_BULLMQ_ONLY: Final = frozenset({"ids", "metrics"})
_PARAMETERS: Final = frozenset(
    {"prefix", "hash_tag", "durability", "timeout", "client_name"} | _TLS_ONLY | _BULLMQ_ONLY
)
_IDS: Final = ("ulid", "counter")
_SWITCH: Final = {
    **dict.fromkeys(("on", "true", "yes", "1"), True),
    **dict.fromkeys(("off", "false", "no", "0"), False),
}
_DURABILITY: Final = re.compile(r"memory|local|replicated:[1-9]\d{0,2}")
# CLIENT SETNAME takes printable ASCII without spaces.
_CLIENT_NAME: Final = re.compile(r"[!-~]{1,100}")
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server is and how to speak to it; shows everything but the password."""

    layout: Layout = "lean"
    kind: Kind = "tcp"
    hosts: tuple[Host, ...] = ()
    path: str | None = None
    master: str | None = None
    db: int = 0
    username: str | None = None
    password: Secret | None = None
    tls: bool = False
    prefix: str | None = None
    hash_tag: bool | None = None
    durability: str = "memory"
    timeout: float = 3.0
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    verify: bool = True
    client_name: str = "toril"
    ids: Ids = "ulid"
    """Who makes the ids that callers leave out, in BullMQ queues."""
    metrics: int | None = None
    """How many minutes of BullMQ's metrics are kept; None to collect none."""
    credentials: Callable[[], tuple[str | None, Secret | None]] | None = None
    """Asked at every login, where a user's own client brings a credential provider."""

    def login(self) -> tuple[str | None, Secret | None]:
        """Give the name and password to log in with now."""
        return (self.username, self.password) if self.credentials is None else self.credentials()

    @property
    def safe(self) -> str:
        """The URL with stars for the password."""
        return f"{self._scheme}{self._place}{self._query}"

    @property
    def _scheme(self) -> str:
        base = next(s for s, kind in _KINDS.items() if kind == (self.kind, self.tls))
        return (_BULLMQ if self.layout == "bullmq" else "") + base

    @property
    def _place(self) -> str:
        if self.kind == "embedded":
            return f":{quote(self.path or '')}"
        login = quote(self.username or "", safe="") + (":***" if self.password else "")
        login = f"{login}@" if login else ""
        if self.kind == "unix":
            return f"://{login}{quote(self.path or '')}"
        hosts = ",".join(show_host(host) for host in self.hosts)
        master = f"/{quote(self.master, safe='')}" if self.master else ""
        return f"://{login}{hosts}{master}" + (f"/{self.db}" if self.db else "")

    @property
    def _query(self) -> str:
        plain = Address()
        given: dict[str, str] = {}
        if self.kind == "unix" and self.db:
            given["db"] = str(self.db)
        for name in ("prefix", "durability", "ca", "cert", "key", "client_name", "ids"):
            if getattr(self, name) != getattr(plain, name):
                given[name] = getattr(self, name)
        if self.hash_tag is not None:
            given["hash_tag"] = "on" if self.hash_tag else "off"
        if self.timeout != plain.timeout:
            given["timeout"] = f"{self.timeout:g}"
        if not self.verify:
            given["verify"] = "off"
        if self.metrics is not None:
            given["metrics"] = str(self.metrics)
        text = "&".join(f"{name}={quote(value, safe=':')}" for name, value in given.items())
        return f"?{text}" if text else ""

    def __repr__(self) -> str:
        return f"Address({self.safe!r})"


def parse_url(url: str) -> Address:
    """Read a URL of the grammar above; refuse everything else with InvalidOption."""
    scheme, colon, rest = url.partition(":")
    if not colon or not _SCHEME.fullmatch(scheme):
        raise InvalidOption("storage URL: no scheme; try 'redis://localhost:6379'")
    address = _of_scheme(scheme)
    rest, _, query = rest.partition("?")
    if "#" in rest or "#" in query:
        raise InvalidOption(f"{scheme}: '#' has no meaning in a storage URL; write it as %23")
    if "@" in query:
        # Half of a password can look like a parameter; nothing of it may be shown.
        raise InvalidOption(f"{scheme}: write '?' as %3F and '@' as %40, in passwords too")
    if address.kind == "embedded":
        address = replace(address, path=_decode(rest, "path") or None)
    else:
        if not rest.startswith("//"):
            raise InvalidOption(f"{scheme}: a server needs two slashes, as in '{scheme}://…'")
        address = _with_place(address, scheme, rest[2:])
    return _with_query(address, scheme, query)


def show_host(host: Host) -> str:
    """Give `host:port`, with brackets around an IPv6 address."""
    name, port = host
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def _of_scheme(scheme: str) -> Address:
    base = scheme.lower()
    layout: Layout = "lean"
    if base.startswith(_BULLMQ):
        layout, base = "bullmq", base.removeprefix(_BULLMQ)
    if base not in _KINDS:
        known = [*_KINDS, *(_BULLMQ + name for name in _KINDS)]
        raise InvalidOption(
            f"storage URL: unknown scheme '{printable(scheme, 40)}'."
            f"{suggest(scheme.lower(), known)} Known: {', '.join(_KINDS)}, each also with {_BULLMQ}"
        )
    kind, tls = _KINDS[base]
    return Address(layout=layout, kind=kind, tls=tls)


def _with_place(address: Address, scheme: str, text: str) -> Address:
    login, at, text = text.rpartition("@")
    if at:
        name, colon, word = login.partition(":")
        address = replace(
            address,
            username=_decode(name, "user") or None,
            password=Secret(_decode(word, "password")) if colon and word else None,
        )
    if address.kind == "unix":
        path = _decode(text, "path")
        if not path.startswith("/") or path.endswith("/"):
            raise InvalidOption(f"{scheme}: needs an absolute path, as in 'unix:///run/redis.sock'")
        return replace(address, path=path)
    place, _, tail = text.partition("/")
    address = replace(address, hosts=_hosts(address, scheme, place))
    return _with_tail(address, scheme, [part for part in tail.split("/") if part])


def _with_tail(address: Address, scheme: str, parts: list[str]) -> Address:
    """Read what follows the hosts: a master's name for sentinels, then a database number."""
    if address.kind == "sentinel":
        if not parts:
            raise InvalidOption(
                f"{scheme}: name the master, as in '{scheme}://host:26379/mymaster'"
            )
        address = replace(address, master=_decode(parts.pop(0), "master"))
    if len(parts) > 1:
        raise InvalidOption(f"{scheme}: too many '/'; the database number comes last")
    if parts and address.kind == "cluster":
        raise InvalidOption(f"{scheme}: a cluster has no database numbers; leave '/…' out")
    return replace(address, db=_db(scheme, parts[0])) if parts else address


def _hosts(address: Address, scheme: str, text: str) -> tuple[Host, ...]:
    port = SENTINEL_PORT if address.kind == "sentinel" else PORT
    hosts = tuple(_host(scheme, part, port) for part in text.split(","))
    if len(hosts) > 1 and address.kind == "tcp":
        raise InvalidOption(
            f"{scheme}: one host only; use '{scheme}+cluster://…' or '{scheme}+sentinel://…/master'"
        )
    return hosts


def _host(scheme: str, text: str, default: int) -> Host:
    bracketed = re.fullmatch(r"\[([0-9a-fA-F:.%]+)\](?::(\d+))?", text)
    plain = bracketed or re.fullmatch(r"([^\s:\[\]]+)(?::(\d+))?", text)
    if plain is None:
        # The text is not shown: a mistyped password can land here.
        raise InvalidOption(f"{scheme}: cannot read the host; write 'host:port' or '[ipv6]:port'")
    port = int(plain[2][:6]) if plain[2] else default
    if not 1 <= port <= 65535:
        raise InvalidOption(f"{scheme}: a port is between 1 and 65535")
    return unquote(plain[1]), port


def _with_query(address: Address, scheme: str, query: str) -> Address:
    allowed = _PARAMETERS | ({"db"} if address.kind == "unix" else set())
    seen: dict[str, str] = {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise InvalidOption(f"{scheme}: parameters are written '?name=value&…'") from None
    for name, value in pairs:
        if name not in allowed:
            raise InvalidOption(
                f"{scheme}: unknown parameter '{printable(name, 40)}'.{suggest(name, allowed)}"
                f" Known: {', '.join(sorted(allowed))}"
            )
        if name in seen:
            raise InvalidOption(f"{scheme}: parameter '{name}' is given twice")
        if name in _TLS_ONLY and not address.tls:
            raise InvalidOption(f"{scheme}: '{name}' needs TLS; use a 'rediss' URL")
        if name in _BULLMQ_ONLY and address.layout != "bullmq":
            raise InvalidOption(f"{scheme}: '{name}' needs a BullMQ queue; use '{_BULLMQ}{scheme}'")
        seen[name] = value
    for name, value in seen.items():
        address = _with_parameter(address, scheme, name, value)
    if (address.cert is None) != (address.key is None):
        raise InvalidOption(f"{scheme}: 'cert' and 'key' come together")
    return address


def _with_parameter(address: Address, scheme: str, name: str, value: str) -> Address:
    match name:
        case "db":
            return replace(address, db=_db(scheme, value))
        case "timeout":
            return replace(address, timeout=_seconds(scheme, value))
        case "verify":
            return replace(address, verify=_switch(scheme, name, value))
        case "hash_tag":
            return replace(address, hash_tag=_switch(scheme, name, value))
        case "durability" if not _DURABILITY.fullmatch(value):
            raise InvalidOption(
                f"{scheme}: durability={printable(value, 40)!r} is none of memory, local,"
                f" replicated:N.{suggest(value, ['memory', 'local', 'replicated:1'])}"
            )
        case "metrics":
            return replace(address, metrics=_minutes(scheme, value))
        case "ids" if value not in _IDS:
            raise InvalidOption(
                f"{scheme}: ids={printable(value, 40)!r} is none of {', '.join(_IDS)}."
                f"{suggest(value, _IDS)}"
            )
        case "client_name" if not _CLIENT_NAME.fullmatch(value):
            raise InvalidOption(f"{scheme}: client_name takes up to 100 ASCII characters, no space")
        case _ if not value:
            raise InvalidOption(f"{scheme}: parameter '{name}' is empty")
    return replace(address, **cast("dict[str, Any]", {name: value}))


def _switch(scheme: str, name: str, value: str) -> bool:
    if value.lower() not in _SWITCH:
        raise InvalidOption(f"{scheme}: {name}={printable(value, 40)!r}; write on or off")
    return _SWITCH[value.lower()]


def _seconds(scheme: str, value: str) -> float:
    if not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", value) or not float(value):
        raise InvalidOption(
            f"{scheme}: timeout={printable(value, 40)!r}; write seconds above 0, as in timeout=3"
        )
    return float(value)


def _minutes(scheme: str, value: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,6}", value, re.ASCII):
        raise InvalidOption(
            f"{scheme}: metrics={printable(value, 40)!r}; write a whole number of minutes to keep,"
            " as in metrics=20160 for two weeks"
        )
    return int(value)


def _db(scheme: str, value: str) -> int:
    if not re.fullmatch(r"\d{1,6}", value, re.ASCII):
        raise InvalidOption(f"{scheme}: the database is a number from 0, as in '…/0'")
    return int(value)


def _decode(text: str, what: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise InvalidOption(f"storage URL: the {what} is not UTF-8") from None
