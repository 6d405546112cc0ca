"""What every adapter shares: payloads, handlers, clocks and the tally. Only the standard library,
for it runs in the environments of all peers."""

from __future__ import annotations

import json
import mmap
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

BULK: Final = 1000
HANDLER: Final = "TORIL_BENCH_HANDLER"
"""What a handler does: nothing, or `wait:<ms>`, or `spin:<ms>` of CPU time."""
MARKS: Final = "TORIL_BENCH_MARKS"
"""A file with a byte per job, counted up by whoever runs it; the processes of a fleet share it."""
RATE: Final = "TORIL_BENCH_RATE"
"""Jobs a second that keep a worker busy while delayed ones come due."""
LATE_AFTER_S: Final = 3.0
LATE_SPAN_S: Final = 5.0

Data = dict[str, Any]
Figures = dict[str, Any]


class Unsupported(Exception):
    """The library cannot do what a workload asks for."""


@dataclass(frozen=True, slots=True)
class Given:
    """One workload, as the command line names it."""

    verb: str
    where: str
    queue: str
    jobs: int
    concurrency: int

    @classmethod
    def read(cls) -> Given:
        """Take it from the command line."""
        verb, where, queue, jobs, concurrency = sys.argv[1:]
        return cls(verb, where, queue, int(jobs), int(concurrency))

    @property
    def poll_s(self) -> float:
        """How often callers that poll look: quick alone, and 5,000 times a second together."""
        return max(0.002, self.concurrency / 5_000)

    @property
    def warm_up(self) -> int:
        """How many jobs pass before the clock starts."""
        return warm_up(self.jobs)


def warm_up(jobs: int) -> int:
    """How many of the jobs pass before the clock starts; those of calls come on top."""
    return min(1000, jobs // 4)


def payload(number: int) -> Data:
    """About a hundred bytes of JSON, the same as in `node/measure.mjs`."""
    return {
        "to": f"user-{number:06d}@example.com",
        "subject": "Your invoice",
        "amount": 12.5,
        "tags": ["a", "b"],
        "n": number,
    }


def payloads(first: int, stop: int) -> list[Data]:
    """Several of them."""
    return [payload(number) for number in range(first, stop)]


def say(figures: Figures) -> None:
    """Print one line of JSON."""
    print(json.dumps(figures), flush=True)


def cpu_us() -> float:
    """The CPU time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (used.ru_utime + used.ru_stime) * 1e6


def stopwatch() -> Callable[[], Figures]:
    """Start one; calling it tells the time and the CPU time since."""
    cpu, begun = cpu_us(), time.perf_counter()
    return lambda: {"seconds": time.perf_counter() - begun, "cpu_us": cpu_us() - cpu}


def peak_mb() -> float:
    """The most memory this process had; `ru_maxrss` would count the parent's before the exec."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def spin(seconds: float) -> None:
    """Use CPU time, the same amount in every language and on every core."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def handler_kind() -> tuple[str, float]:
    """What a handler does, and for how many seconds."""
    kind, _, millis = os.environ.get(HANDLER, "none").partition(":")
    return kind, float(millis or 0) / 1000


class Tally:
    """Counts the jobs that ran, each once; starts the clock after the warm-up."""

    def __init__(self, given: Given, over: Callable[[], None]) -> None:
        self._jobs, self._warm_up = given.jobs, given.warm_up
        self._over = over
        self._lock = threading.Lock()
        self._seen: set[int] = set()
        self._runs = 0
        self._stop = stopwatch()
        self._handled: Figures = {}
        self._marks = _open_marks()
        self.late: list[float] = []

    def saw(self, data: Data) -> int:
        """Take note of a job that runs."""
        number: int = data["n"]
        if self._marks is not None:
            self._marks[number] += 1
        if "due" in data:
            self.late.append(time.time() * 1000 - data["due"])
        with self._lock:
            self._runs += 1
            self._seen.add(number)
            if self._runs == self._warm_up:
                self._stop = stopwatch()
            if len(self._seen) == self._jobs:
                self._handled = self._handled or self._stop()
                self._over()
        return number

    def figures(self) -> Figures:
        """What the jobs after the warm-up took until now, and until the last handler ended."""
        return {
            "jobs": self._jobs - self._warm_up,
            **self._stop(),
            "handled_s": self._handled.get("seconds"),
            "peak_mb": peak_mb(),
            "ran": len(self._seen),
            "again": self._runs - len(self._seen),
        }


def _open_marks() -> mmap.mmap | None:
    path = os.environ.get(MARKS)
    if path is None:
        return None
    with Path(path).open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)
