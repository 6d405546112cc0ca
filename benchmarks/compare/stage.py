"""Where a workload runs: one peer, one server, its sizes; and what was spent on it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.compare.adapters.measure import Unsupported, warm_up
from benchmarks.compare.field import Entry
from benchmarks.machine import Bench
from benchmarks.peers import Figures, Peer

QUEUE: Final = "bench"
CONCURRENCY: Final = 100

Values = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much of everything."""

    jobs: int = 20_000
    singles: int = 5_000
    calls: int = 5_000
    lone_calls: int = 2_000
    rounds: int = 20
    """How often every slot of a worker waits, in the workload of waiting handlers."""
    spins: int = 2_000
    idle_s: float = 10.0
    late: int = 1_000
    backlogs: tuple[int, ...] = (10_000, 100_000)

    @classmethod
    def of(cls, jobs: int, *, million: bool = False) -> Sizes:
        """All sizes that follow from the number of jobs."""
        most = (1_000_000,) if million else ()
        return cls(
            jobs=jobs,
            singles=jobs // 4,
            calls=jobs // 4,
            lone_calls=jobs // 10,
            rounds=max(4, jobs // 1_000),
            spins=max(200, jobs // 10),
            idle_s=max(2.0, jobs / 2_000),
            late=max(100, jobs // 20),
            backlogs=(jobs // 2, jobs * 5, *most),
        )

    def paced(self, pace: float) -> Sizes:
        """The same for a slower peer."""
        return replace(
            self,
            jobs=max(100, round(self.jobs * pace)),
            singles=max(100, round(self.singles * pace)),
            calls=max(100, round(self.calls * pace)),
            lone_calls=max(100, round(self.lone_calls * pace)),
        )


@dataclass(frozen=True, slots=True)
class Stage:
    """One peer on one server, with a queue that is empty at the beginning."""

    entry: Entry
    peer: Peer
    bench: Bench
    sizes: Sizes
    limit_s: float

    @contextmanager
    def another(self) -> Iterator[Stage]:
        """Set a second one beside it, with a server or folder of its own."""
        if self.entry.place == "server":
            with self.bench.another() as bench:
                yield replace(self, bench=bench)
        else:
            with tempfile.TemporaryDirectory(prefix="toril-bench-") as folder:
                yield replace(self, peer=replace(self.peer, where=f"file:{folder}"))

    def run(
        self, verb: str, jobs: int, concurrency: int, env: Mapping[str, str] | None = None
    ) -> Figures:
        """Run a workload to its end."""
        figures = self.peer.run(
            verb, self.bench, QUEUE, jobs, concurrency, env=env, limit_s=self.limit_s
        )
        if "unsupported" in figures:
            raise Unsupported(figures["unsupported"])
        return figures

    def fill(self, jobs: int) -> None:
        """Put jobs into the queue; the memory storage gets them from its worker's process."""
        if self.entry.place != "memory":
            self.run("add", jobs, 1)

    @contextmanager
    def serve(
        self, jobs: int, concurrency: int, env: Mapping[str, str] | None = None
    ) -> Iterator[Figures]:
        """Keep a worker running meanwhile."""
        with self.peer.serve(
            self.bench, QUEUE, jobs, concurrency, env=env, limit_s=self.limit_s
        ) as figures:
            yield figures

    def measured(
        self, verb: str, jobs: int, concurrency: int, env: Mapping[str, str] | None = None
    ) -> tuple[Figures, Values]:
        """Run a workload; also tell its rate and its costs. The server's count the warm-up."""
        self.bench.reset()
        figures = self.run(verb, jobs, concurrency, env)
        extra = warm_up(jobs) if verb == "call" else 0
        values = {
            "jobs/s": figures["jobs"] / figures["seconds"],
            "client µs/job": figures["cpu_us"] / figures["jobs"],
        }
        if self.entry.place == "server":
            spent = figures.get("server_cpu_us", self.bench.usage().cpu_us)
            values["server µs/job"] = spent / (jobs + extra)
        return figures, values


@contextmanager
def on_stage(
    entry: Entry, peer: Peer, bench: Bench, sizes: Sizes, limit_s: float
) -> Iterator[Stage]:
    """Clear the server; give a peer without one a place of its own."""
    bench.clear()
    with tempfile.TemporaryDirectory(prefix="toril-bench-") as folder:
        if entry.place != "server":
            peer = replace(peer, where="memory:" if entry.place == "memory" else f"file:{folder}")
        yield Stage(entry, peer, bench, sizes.paced(entry.pace), limit_s)
