"""Form a cluster out of single servers, without any command line tool."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from tests.servers import Server, free_port, valkey_binary
from toril.resp.client import Reply
from toril.resp.sync import SyncClient
from toril.resp.url import parse_url

SLOTS = 16384


def ask(server: Server, *args: str | bytes | int) -> Reply:
    """Ask one server, wherever the key belongs."""
    client = SyncClient(parse_url(server.url))
    try:
        return client.call("", *args)
    finally:
        client.close()


def wait_for(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for a condition, not for a time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not so within {seconds} s"
        time.sleep(0.02)


def name_of(server: Server) -> str:
    """The name a node has inside the cluster."""
    name = ask(server, "CLUSTER", "MYID")
    assert isinstance(name, bytes)
    return name.decode()


def node() -> Server:
    """A server that is ready to join a cluster."""
    return Server(
        valkey_binary(),
        *("--cluster-enabled", "yes", "--cluster-node-timeout", "2000"),
        # The usual one, 10,000 above the other, may not exist.
        *("--cluster-port", str(free_port()), "--repl-diskless-sync-delay", "0"),
    )


@contextmanager
def cluster(masters: int = 3, replicas: int = 0) -> Iterator[list[Server]]:
    """Run a cluster; masters come first, then their replicas in the same order."""
    with ExitStack() as stack:
        servers = [stack.enter_context(node()) for _ in range(masters * (1 + replicas))]
        form(servers, masters)
        yield servers


def form(servers: Sequence[Server], masters: int) -> None:
    """Make strangers a cluster."""
    found = ask(servers[0], "CONFIG", "GET", "cluster-port")
    assert isinstance(found, list)
    bus = found[1]
    assert isinstance(bus, bytes)
    for server in servers[1:]:
        ask(server, "CLUSTER", "MEET", "127.0.0.1", servers[0].port, bus)
    share = SLOTS // masters
    for number, server in enumerate(servers[:masters]):
        last = SLOTS - 1 if number == masters - 1 else (number + 1) * share - 1
        ask(server, "CLUSTER", "ADDSLOTSRANGE", number * share, last)
    wait_for(lambda: all(size_seen(server) == len(servers) for server in servers))
    for number, server in enumerate(servers[masters:]):
        ask(server, "CLUSTER", "REPLICATE", name_of(servers[number % masters]))
    wait_for(lambda: all(is_ok(server) for server in servers))
    wait_for(lambda: all(in_step(server) for server in servers[masters:]))
    wait_for(lambda: all(len(slots_seen(server)) == masters for server in servers))


def size_seen(server: Server) -> int:
    """How many nodes a node knows."""
    return _nodes(server).count(b"\n")


def _nodes(server: Server) -> bytes:
    answer = ask(server, "CLUSTER", "NODES")
    assert isinstance(answer, bytes)
    return b"\n".join(line for line in answer.splitlines() if b"handshake" not in line) + b"\n"


def is_ok(server: Server) -> bool:
    """Whether a node thinks that every slot is served."""
    answer = ask(server, "CLUSTER", "INFO")
    return isinstance(answer, bytes) and b"cluster_state:ok" in answer


def in_step(server: Server) -> bool:
    """Whether a replica has its master's data."""
    answer = ask(server, "INFO", "replication")
    return isinstance(answer, bytes) and b"master_link_status:up" in answer


def slots_seen(server: Server) -> list[Reply]:
    """The ranges of slots a node knows to be served."""
    answer = ask(server, "CLUSTER", "SLOTS")
    assert isinstance(answer, list)
    return answer
