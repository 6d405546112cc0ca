"""Judge a server by what it says of itself: may it lose jobs, refuse them, or let others in?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from toril.doctor.facts import Facts
from toril.doctor.finding import Finding, ok, problem, warning
from toril.resp.url import Address

_LEAST: Final = {"valkey": (7, 2), "redis": (7, 0)}
_MENDED: Final[dict[str, dict[tuple[int, ...], tuple[int, ...]]]] = {
    "valkey": {(7, 2): (7, 2, 11), (8, 0): (8, 0, 6), (8, 1): (8, 1, 4)},
    "redis": {(7, 2): (7, 2, 11), (7, 4): (7, 4, 6), (8, 0): (8, 0, 4), (8, 2): (8, 2, 2)},
}
"""The first version of each line in which scripts cannot break out (CVE-2025-49844)."""
_NEVER_MENDED: Final = {"valkey": (), "redis": ((7, 0),)}

_AHEAD_MS: Final = 1_000
_FAR_AHEAD_MS: Final = 60_000
_CROWDED: Final = 0.8
_FULL: Final = 0.9
_IDLE_S: Final = 60
_LAG_S: Final = 10


def check_server(facts: Facts, address: Address) -> Iterator[Finding]:
    """Judge one server; the first finding tells which one it is."""
    yield from _version(facts)
    yield _eviction(facts)
    yield _persistence(facts)
    yield from _replication(facts, address)
    if address.durability != "memory":
        yield _durability(facts, address.durability)
    yield _access(facts, address)
    yield _clock(facts)
    yield _clients(facts)


def _version(facts: Facts) -> Iterator[Finding]:
    found, line = ".".join(map(str, facts.version)), facts.version[:2]
    least = _LEAST[facts.name]
    if facts.version < least:
        needed = ".".join(map(str, least))
        yield problem(
            "version",
            f"{facts.name} {found} is too old; toril needs {needed}",
            "upgrade the server",
            code="E15",
        )
        return
    mended = _MENDED[facts.name].get(line)
    if line in _NEVER_MENDED[facts.name] or (mended and facts.version < mended):
        target = ".".join(map(str, mended)) if mended else "7.2.11"
        yield warning(
            "version",
            f"{facts.name} {found}: whoever may run scripts can break out of them (CVE-2025-49844)",
            f"upgrade to {target}, or make sure that your distributor mended it",
        )
        return
    yield ok("version", f"{facts.name} {found} at {facts.node}, answers in {facts.trip_ms:.1f} ms")


def _eviction(facts: Facts) -> Finding:
    policy = facts.info.get("maxmemory_policy", "")
    if policy not in ("noeviction", ""):
        return problem(
            "eviction",
            f"maxmemory-policy is {policy}: the server may delete jobs; needs noeviction",
            "CONFIG SET maxmemory-policy noeviction, and the same in the server's configuration",
            code="E15",
        )
    used, most = facts.number("used_memory"), facts.number("maxmemory")
    if most and used >= _FULL * most:
        return warning(
            "eviction",
            f"{_size(used)} of {_size(most)} of memory are used; when it is full, new jobs are"
            " refused",
            "raise maxmemory, or delete finished jobs: toril queue clean QUEUE --older-than 7d",
        )
    limit = f" of {_size(most)}" if most else ", no limit"
    return ok("eviction", f"noeviction; {_size(used)} of memory used{limit}")


def _persistence(facts: Facts) -> Finding:
    info = facts.info
    for name, what in (
        ("aof_last_write_status", "append to its log"),
        ("aof_last_bgrewrite_status", "rewrite its log"),
        ("rdb_last_bgsave_status", "save a snapshot"),
    ):
        if info.get(name, "ok") != "ok":
            return problem(
                "persistence",
                f"the server could not {what}: {name} is {info[name]}",
                "look at the server's log and the space on its disk",
            )
    if info.get("aof_enabled") == "1":
        return _appending(facts)
    if facts.config.get("save"):
        return warning(
            "persistence",
            f"only snapshots (save {facts.config['save']}): a crash loses the jobs since the last",
            "CONFIG SET appendonly yes, and the same in the server's configuration",
        )
    what = "nothing is written to disk" if "save" in facts.config else "there is no log of changes"
    return warning(
        "persistence",
        f"{what}: a restart of the server loses jobs",
        "CONFIG SET appendonly yes, and the same in the server's configuration",
    )


def _appending(facts: Facts) -> Finding:
    often = facts.config.get("appendfsync", "")
    if often == "no":
        return warning(
            "persistence",
            "appendfsync is no: a crash of the machine loses what it had not written yet,"
            " up to half a minute",
            "CONFIG SET appendfsync everysec, and the same in the server's configuration",
        )
    told = {"always": "every change", "everysec": "each second"}
    return ok("persistence", f"changes go to disk ({told.get(often, 'appendonly')})")


def _replication(facts: Facts, address: Address) -> Iterator[Finding]:
    if facts.info.get("role") == "slave":
        where = f"{facts.info.get('master_host')}:{facts.info.get('master_port')}"
        yield problem(
            "replication",
            f"this is a replica of {where}, which takes no jobs",
            f"name its master ({where}), or its sentinels, in the URL",
            code="E15",
        )
        return
    count = facts.number("connected_slaves")
    late = [
        lag for lag in map(_lag, (facts.info.get(f"slave{n}", "") for n in range(count))) if lag
    ]
    if late and max(late) > _LAG_S:
        yield warning(
            "replication",
            f"a replica is {max(late)} s behind: after a failover the jobs since then are gone",
            "look at the replica's log, and at the network between the two",
        )
    if not count:
        yield ok("replication", "a master without replicas")
    elif facts.config.get("min-replicas-to-write") == "0" and address.durability == "memory":
        yield warning(
            "replication",
            f"{_replicas(count)}, and min-replicas-to-write is 0: a master that is cut off takes"
            " jobs which a failover loses",
            "CONFIG SET min-replicas-to-write 1, or durability=replicated:1 in the URL",
        )
    else:
        yield ok("replication", f"a master with {_replicas(count)}")


def _durability(facts: Facts, asked: str) -> Finding:
    """Tell whether the server can keep what the URL asks for; a storage does not open if not."""
    kind, _, number = asked.partition(":")
    there, wanted = facts.number("connected_slaves"), int(number or 0)
    if kind == "local" and facts.info.get("aof_enabled") != "1":
        fact, fix = "changes are not written to disk", "CONFIG SET appendonly yes"
    elif there < wanted:
        fact, fix = f"there {'is' if there == 1 else 'are'} {_replicas(there)}", "add replicas"
    else:
        return ok("durability", f"durability={asked} can be kept")
    return problem(
        "durability",
        f"durability={asked} cannot be kept, as {fact}; the storage does not open",
        f"{fix}, or leave durability out of the URL",
        code="E15",
    )


def _replicas(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} replicas"


def _lag(line: str) -> int:
    """Read `ip=…,port=…,state=online,offset=…,lag=1`."""
    facts = dict(part.partition("=")[::2] for part in line.split(","))
    lag = facts.get("lag", "")
    return int(lag) if lag.isdecimal() else 0


def _access(facts: Facts, address: Address) -> Finding:
    away = [host for host, _ in address.hosts if not _is_loopback(host)]
    if away and not address.tls:
        return warning(
            "access",
            f"jobs and the password go to {away[0]} unencrypted",
            "use TLS: a rediss:// URL, and tls-port on the server",
        )
    if address.tls and not address.verify:
        return warning(
            "access",
            "TLS is not verified (verify=off): anybody can pose as the server",
            "name its certificate authority with ca= and leave verify out",
        )
    if facts.open_to_all and _listens_outside(facts):
        return warning(
            "access",
            f"the server listens on {facts.config['bind'] or 'all addresses'} and asks nobody for"
            " a password",
            "set a password (ACL SETUSER default >…), or bind it to 127.0.0.1",
        )
    if facts.open_to_all is None or not facts.config:
        return ok("access", "this user may not see how the server is guarded, as it should be")
    if facts.open_to_all:
        return ok("access", "no password, and nobody outside this machine can reach the server")
    return ok("access", "with a password" + (", over verified TLS" if address.tls else ""))


def _listens_outside(facts: Facts) -> bool:
    config = facts.config
    if "bind" not in config or {config.get("port"), config.get("tls-port")} <= {"0", None}:
        return False
    outside = [one for one in config["bind"].split() if not _is_loopback(one.lstrip("-"))]
    return config.get("protected-mode") == "no" and (bool(outside) or not config["bind"])


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _clock(facts: Facts) -> Finding:
    seconds = abs(facts.ahead_ms) / 1000
    way = "ahead of" if facts.ahead_ms > 0 else "behind"
    text = f"its clock is {seconds:,.1f} s {way} ours"
    fix = "set both clocks by NTP; times that other machines write are off by as much"
    if abs(facts.ahead_ms) - facts.trip_ms / 2 >= _FAR_AHEAD_MS:
        return problem("clock", text, fix)
    if abs(facts.ahead_ms) - facts.trip_ms / 2 >= _AHEAD_MS:
        return warning("clock", text, fix)
    return ok("clock", f"{abs(facts.ahead_ms):.0f} ms {way} ours")


def _clients(facts: Facts) -> Finding:
    connected, most = facts.number("connected_clients"), facts.number("maxclients")
    if most and connected >= _CROWDED * most:
        return warning(
            "clients",
            f"{connected:,} of {most:,} connections are in use; more are refused",
            "CONFIG SET maxclients, or close what is not needed",
        )
    if facts.config.get("tcp-keepalive") == "0":
        return warning(
            "clients",
            "tcp-keepalive is 0: connections whose client vanished stay for ever",
            "CONFIG SET tcp-keepalive 300, and the same in the server's configuration",
        )
    idle = facts.number("timeout")
    if 0 < idle < _IDLE_S:
        return warning(
            "clients",
            f"the server closes connections that are idle for {idle} s; each is opened anew",
            "CONFIG SET timeout 0, and the same in the server's configuration",
        )
    limit = f" of {most:,}" if most else ""
    return ok("clients", f"{connected:,}{limit} connections")


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 999.5:
            return f"{value:.0f} {unit}" if value >= 10 else f"{value:.2g} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"
