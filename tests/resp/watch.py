"""A master, its replica and a sentinel that watches them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.resp.nodes import ask, in_step, wait_for
from tests.servers import Server, free_port, valkey_binary


class Watched(NamedTuple):
    """What runs; `port` is the sentinel's, which calls the master `main`."""

    master: Server
    replica: Server
    port: int


@contextmanager
def watched_master(folder: Path) -> Iterator[Watched]:
    """Run a master, its replica and one sentinel that is enough to decide."""
    with (
        Server(valkey_binary(), "--repl-diskless-sync-delay", "0") as master,
        Server(valkey_binary(), "--replicaof", "127.0.0.1", str(master.port)) as replica,
    ):
        wait_for(lambda: in_step(replica))
        port = free_port()
        config = folder / "sentinel.conf"
        config.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor main 127.0.0.1 {master.port} 1\n"
            "sentinel down-after-milliseconds main 500\n"
            "sentinel failover-timeout main 3000\n"
        )
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(
                [str(valkey_binary()), str(config), "--sentinel"], stdout=log, stderr=log
            )
        try:
            sentinel = Server(valkey_binary())
            sentinel.port = port
            wait_for(sentinel._answers)
            wait_for(lambda: bool(ask(sentinel, "SENTINEL", "REPLICAS", "main")))
            yield Watched(master, replica, port)
        finally:
            process.terminate()
            process.wait(10)
