"""Read where a user's own redis-py client is connected, from what it shows in public."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, cast

from toril.errors import InvalidOption
from toril.resp.secret import Secret
from toril.resp.url import PORT, Address, Host, Kind
from toril.text import type_name

_NOT_CARRIED: Final = ("ssl_ca_data", "ssl_ca_path", "ssl_password")


class _Provider(Protocol):
    def get_credentials(self) -> tuple[str, ...]: ...


class _Pool(Protocol):
    connection_kwargs: Mapping[str, object]
    connection_class: type


def address_of_client(client: object) -> Address:
    """Give the address a redis-py client (plain, sentinel, cluster; both kinds) speaks to.

    The client itself is neither used nor changed. Its credential provider, if it has one, is
    asked at every login; its password is taken over, never shown.
    """
    if (pool := getattr(client, "connection_pool", None)) is not None:
        return _of_pool(cast(_Pool, pool))
    if hasattr(client, "get_nodes"):
        return _of_cluster(client)
    raise InvalidOption(
        f"storage of type {type_name(type(client))}: give a URL, a Storage or a redis-py client"
    )


def _of_pool(pool: _Pool) -> Address:
    options = pool.connection_kwargs
    tls = "SSL" in pool.connection_class.__name__
    manager = getattr(pool, "sentinel_manager", None)
    if manager is not None:
        hosts = tuple(
            _host(sentinel.connection_pool.connection_kwargs) for sentinel in manager.sentinels
        )
        return _address(
            "sentinel", options, tls, hosts, master=str(getattr(pool, "service_name", ""))
        )
    path = options.get("path")
    if isinstance(path, str):
        return _address("unix", options, tls=False, hosts=(), path=path)
    return _address("tcp", options, tls, (_host(options),))


def _of_cluster(client: object) -> Address:
    # The blocking client has a method, the asynchronous one an attribute.
    get = getattr(client, "get_connection_kwargs", None)
    options = cast(Mapping[str, object], get() if get else getattr(client, "connection_kwargs", {}))
    known = cast("Any", client)
    nodes = known.get_nodes() or known.nodes_manager.startup_nodes.values()
    hosts = tuple((str(node.host), int(node.port)) for node in nodes)
    tls = bool(options.get("ssl")) or "SSL" in getattr(
        options.get("connection_class"), "__name__", ""
    )
    return _address("cluster", options, tls, hosts)


def _address(
    kind: Kind,
    options: Mapping[str, object],
    tls: bool,
    hosts: tuple[Host, ...],
    *,
    path: str | None = None,
    master: str | None = None,
) -> Address:
    word = options.get("password")
    for name in _NOT_CARRIED:
        if options.get(name):
            raise InvalidOption(f"redis-py client with {name}: give a URL with ca, cert and key")
    return Address(
        kind=kind,
        hosts=hosts,
        path=path,
        master=master,
        tls=tls,
        db=int(str(options.get("db") or 0)),
        username=_text(options, "username"),
        password=Secret(_plain(word)) if word else None,
        client_name=_text(options, "client_name") or "toril",
        ca=_text(options, "ssl_ca_certs") if tls else None,
        cert=_text(options, "ssl_certfile") if tls else None,
        key=_text(options, "ssl_keyfile") if tls else None,
        verify=_verified(options),
        credentials=_credentials(options.get("credential_provider")),
    )


def _credentials(provider: object) -> Callable[[], tuple[str | None, Secret | None]] | None:
    """Ask a redis-py credential provider, which gives a password or a name and a password."""
    if provider is None:
        return None

    def ask() -> tuple[str | None, Secret | None]:
        *name, word = cast(_Provider, provider).get_credentials()
        return (name[0] if name else None), Secret(_plain(word))

    return ask


def _verified(options: Mapping[str, object]) -> bool:
    return str(options.get("ssl_cert_reqs", "required")).lower() not in ("none", "0", "cert_none")


def _host(options: Mapping[str, object]) -> Host:
    return str(options.get("host") or "localhost"), int(str(options.get("port") or PORT))


def _text(options: Mapping[str, object], name: str) -> str | None:
    value = options.get(name)
    return _plain(value) if value else None


def _plain(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
