"""What one run measured: a line of JSON per workload, and the statistics over repetitions."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

ByRep = Mapping[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One turn of a peer at one workload; without values where it failed or cannot."""

    workload: str
    server: str
    peer: str
    rep: int
    values: dict[str, float] = field(default_factory=dict)
    note: str = ""
    failed: bool = False
    load: float = 0.0
    """The load average when it began."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with the smallest and the largest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Self | None:
        """Over some values; None over none."""
        known = sorted(values)
        return cls(statistics.median(known), known[0], known[-1]) if known else None


def percentile(values: Sequence[float], share: int) -> float:
    """The value that so many percent do not exceed."""
    if len(values) < 2:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[share - 1]


def ratios(ours: ByRep, theirs: ByRep) -> list[float]:
    """Ours by theirs, each within its repetition."""
    return [ours[rep] / theirs[rep] for rep in ours if theirs.get(rep)]


class Results:
    """The records of a run, to be asked."""

    def __init__(
        self,
        about: dict[str, Any],
        records: Iterable[Record] = (),
        commands: Mapping[str, str] | None = None,
    ) -> None:
        self.about = about
        self.records = list(records)
        self._commands = commands or {}

    def command(self, workload: str) -> str:
        """The command that measured a workload, the first one if there were several."""
        return self._commands.get(workload) or str(self.about.get("command", ""))

    def pairs(self) -> list[tuple[str, str]]:
        """The workloads and servers, in the order they came."""
        return list(dict.fromkeys((one.workload, one.server) for one in self.records))

    def peers(self, workload: str, server: str) -> list[str]:
        """Who took part, in the order of the first repetition."""
        return list(dict.fromkeys(one.peer for one in self._of(workload, server)))

    def values(self, workload: str, server: str, peer: str, metric: str) -> ByRep:
        """What a peer reached, by repetition; the median of its turns where it had several."""
        found: dict[int, list[float]] = {}
        for one in self._of(workload, server):
            if one.peer == peer and metric in one.values:
                found.setdefault(one.rep, []).append(one.values[metric])
        return {rep: statistics.median(turns) for rep, turns in found.items()}

    def reference(self, workload: str, server: str, peer: str, metric: str) -> ByRep:
        """The same; of the first server that knows the peer, for those without a server."""
        servers = [server, *(name for key, name in self.pairs() if key == workload)]
        found = (self.values(workload, name, peer, metric) for name in servers)
        return next((values for values in found if values), {})

    def note(self, workload: str, server: str, peer: str) -> str:
        """Why a peer has no values."""
        notes = [one.note for one in self._of(workload, server) if one.peer == peer]
        return next((note for note in notes if note), "")

    def best(
        self, workload: str, server: str, metric: str, peers: Iterable[str], *, least: bool
    ) -> ByRep:
        """The best of some peers, by repetition."""
        found: dict[int, float] = {}
        for peer in peers:
            for rep, value in self.values(workload, server, peer, metric).items():
                known = found.get(rep, value)
                found[rep] = min(known, value) if least else max(known, value)
        return found

    def conditions(self, workload: str, server: str) -> str:
        """The server, how often it was done, and how busy the machine was."""
        some = self._of(workload, server)
        loads = [one.load for one in some]
        reps = len({one.rep for one in some})
        busy = f"load average {min(loads):.1f} to {max(loads):.1f}"
        return f"{server}, {reps} repetition{'s' * (reps > 1)}, {busy}"

    def _of(self, workload: str, server: str) -> list[Record]:
        return [one for one in self.records if (one.workload, one.server) == (workload, server)]


class Book:
    """Writes each record down at once, so that a run that ends early has not been in vain."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self._path = path
        self.results = Results(about)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"about": about}, ensure_ascii=False) + "\n", encoding="utf-8")

    def add(self, record: Record) -> None:
        """Take a record."""
        self.results.records.append(record)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(record), ensure_ascii=False) + "\n")


def read(paths: Iterable[Path]) -> Results:
    """Read what some runs wrote; the repetitions of later files are numbered on."""
    about: dict[str, Any] = {}
    records: list[Record] = []
    commands: dict[str, str] = {}
    for path in paths:
        command = ""
        first = max((one.rep for one in records), default=-1) + 1
        for line in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            if "about" in entry:
                about = about or entry["about"]
                command = entry["about"].get("command", "")
            else:
                commands.setdefault(entry["workload"], command)
                records.append(Record(**{**entry, "rep": entry["rep"] + first}))
    return Results(about, records, commands)
