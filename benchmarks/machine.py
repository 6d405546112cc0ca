"""The machine under a benchmark: its cores, its servers, and what a server says of itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import redis

from tests.servers import Server, valkey_binary

_SCRIPTS = ("cmdstat_evalsha", "cmdstat_eval")


@dataclass(frozen=True, slots=True)
class Cores:
    """Which core the server gets and which one the clients; both None if there is only one."""

    server: int | None
    client: int | None

    @classmethod
    def choose(cls) -> Cores:
        """Take the first two this process may use."""
        allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        return cls(allowed[0], allowed[1]) if len(allowed) > 1 else cls(None, None)

    def pin(self, core: int | None) -> None:
        """Move this process, and what it will start, to a core."""
        if core is not None:
            os.sched_setaffinity(0, {core})

    def __str__(self) -> str:
        if self.server is None:
            return "one core for server and clients"
        return f"server pinned to core {self.server}, clients to core {self.client}"


def stolen_ms(stat: Path = Path("/proc/stat")) -> float:
    """How long the host has let other guests run on the core it took the most of; 0 if unknown.

    Nothing here runs in that time, whatever it is.
    """
    if not stat.exists():
        return 0.0
    rows = (line.split() for line in stat.read_text().splitlines())
    cores = [row for row in rows if row[0].startswith("cpu") and row[0] != "cpu"]
    return max(int(row[8]) for row in cores) * 1000 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """What a server spent: CPU time, and the part of it inside scripts."""

    cpu_us: float
    script_us: float


class Bench:
    """A running server and a connection to look at it."""

    def __init__(self, server: Server, cores: Cores) -> None:
        self._server, self._cores = server, cores
        self.port = server.port
        self.url = server.url
        self._link = redis.Redis(port=server.port)
        info = self._info("server")
        valkey = info.get("valkey_version")
        self.name = f"Valkey {valkey}" if valkey else f"Redis {info['redis_version']}"
        self._cpu = 0.0

    def _info(self, section: str) -> dict[str, Any]:
        return cast("dict[str, Any]", self._link.info(section))

    def another(self) -> AbstractContextManager[Bench]:
        """Start a second server of this kind, on the same core."""
        return serving(self._server.binary, self._cores)

    def clear(self) -> None:
        """Delete everything."""
        self._link.flushall()

    def reset(self) -> None:
        """Start to count anew."""
        self._link.config_resetstat()
        self._cpu = self._cpu_us()

    def usage(self) -> Usage:
        """What was spent since `reset`."""
        stats = self.commands()
        scripts = sum(float(stats[name]["usec"]) for name in _SCRIPTS if name in stats)
        return Usage(self._cpu_us() - self._cpu, scripts)

    def commands(self) -> dict[str, dict[str, Any]]:
        """What each command cost since `reset`; those inside scripts count for themselves too."""
        return self._info("commandstats")

    def calls(self) -> int:
        """How many commands there were since `reset`, apart from those that ask for it."""
        own = 2  # `reset` and its look at the CPU time
        return max(0, int(self._info("stats")["total_commands_processed"]) - own)

    def used_bytes(self) -> int:
        """The memory in use now."""
        return int(self._info("memory")["used_memory"])

    def usec_per_script(self) -> float:
        """The mean time of a script call since `reset`."""
        return float(self.commands()["cmdstat_evalsha"]["usec_per_call"])

    def _cpu_us(self) -> float:
        cpu = self._info("cpu")
        return float(cpu["used_cpu_user"] + cpu["used_cpu_sys"]) * 1e6

    def close(self) -> None:
        """Let the connection go."""
        self._link.close()


def binaries() -> dict[str, Path]:
    """The servers at hand."""
    found = {"valkey": valkey_binary()}
    if system := shutil.which("redis-server"):
        found["redis"] = Path(system)
    return found


@contextmanager
def serving(binary: Path, cores: Cores) -> Iterator[Bench]:
    """Start a server without persistence on its core, then move to the clients' core."""
    cores.pin(cores.server)
    with Server(binary, "--appendonly", "no") as server:
        cores.pin(cores.client)
        bench = Bench(server, cores)
        try:
            yield bench
        finally:
            bench.close()
