"""The workloads of a library that is used from threads. An adapter fills in five verbs."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from benchmarks.compare.adapters.measure import (
    BULK,
    LATE_AFTER_S,
    LATE_SPAN_S,
    RATE,
    Data,
    Figures,
    Given,
    Tally,
    Unsupported,
    handler_kind,
    payload,
    payloads,
    peak_mb,
    say,
    spin,
    stopwatch,
)

TICK_S: Final = 0.02


def roomy(given: Given) -> str:
    """The server's URL with connections for all threads; redis-py stops at a hundred."""
    return f"{given.where}?max_connections={2 * given.concurrency + 100}"


class ThreadAdapter:
    """One library: how to add, call and work."""

    def __init__(self, given: Given) -> None:
        self.given = given
        self._over = threading.Event()
        self.tally = Tally(given, self._over.set)
        self._kind, self._seconds = handler_kind()

    def open(self) -> None:
        """Connect."""

    def add(self, data: Data) -> None:
        """Hand in one job."""
        raise NotImplementedError

    def add_many(self, many: Sequence[Data]) -> None:
        """Hand in up to a thousand, the fastest way the library has."""
        for data in many:
            self.add(data)

    def add_late(self, data: Data, delay_s: float) -> None:
        """Hand in a job that is due later."""
        raise Unsupported("no delayed jobs without a process for them")

    def call(self, data: Data) -> Any:
        """Hand in a job and wait for its result."""
        raise Unsupported("no way to wait for a result")

    def work(self) -> None:
        """Run a worker; it may return or block. Its handler is `handle`."""
        raise NotImplementedError

    def handle(self, data: Data) -> int:
        """Do what the workload asks of a handler."""
        if self._kind == "wait":
            time.sleep(self._seconds)
        elif self._kind == "spin":
            spin(self._seconds)
        return self.tally.saw(data)

    # -- the workloads ---------------------------------------------------------------------------

    def one_by_one(self) -> None:
        """W1: hand in jobs, one after the other."""
        given = self.given
        for number in range(given.warm_up):
            self.add(payload(number))
        stop = stopwatch()
        for number in range(given.warm_up, given.jobs):
            self.add(payload(number))
        say({"jobs": given.jobs - given.warm_up, **stop(), "peak_mb": peak_mb()})

    def bulk(self) -> None:
        """W2: hand in many jobs at once."""
        given = self.given
        self.add_many(payloads(0, given.warm_up))
        many = payloads(given.warm_up, given.jobs)
        stop = stopwatch()
        for first in range(0, len(many), BULK):
            self.add_many(many[first : first + BULK])
        say({"jobs": len(many), **stop(), "peak_mb": peak_mb()})

    def drain(self) -> None:
        """W3: work the jobs that wait."""
        self._work_until(self._over.wait, self.tally.figures)

    def serve(self) -> None:
        """Work until stdin ends."""
        stop = stopwatch()
        say({"ready": True})
        self._work_until(
            sys.stdin.read,
            lambda: {
                "jobs": self.given.jobs,
                **stop(),
                "peak_mb": peak_mb(),
                "late": self.tally.late,
            },
        )

    def _work_until(self, over: Callable[[], object], figures: Callable[[], Figures]) -> None:
        """Work in this thread, which owns the signals; leave at once when it is over."""

        def watch() -> None:
            over()
            say(figures())
            os._exit(0)

        watcher = threading.Thread(target=watch)
        watcher.start()
        self.work()
        watcher.join()

    def calls(self) -> None:
        """W4: hand in a job and wait for its result, a thread per caller."""
        given, latencies = self.given, list[float]()

        def caller(numbers: range) -> None:
            for number in numbers:
                begun = time.perf_counter()
                self.call(payload(number))
                latencies.append((time.perf_counter() - begun) * 1000)

        with ThreadPoolExecutor(given.concurrency) as pool:

            def everybody(first: int, stop: int) -> None:
                lanes = range(given.concurrency)
                spans = [range(first + lane, stop, given.concurrency) for lane in lanes]
                list(pool.map(caller, spans))

            everybody(given.jobs, given.jobs + given.warm_up)
            latencies.clear()
            stop = stopwatch()
            everybody(0, given.jobs)
            say({"jobs": given.jobs, **stop(), "latencies": latencies})

    def late(self) -> None:
        """W10: jobs that come due while others keep the worker busy."""
        given, rate, begun = self.given, float(os.environ[RATE]), time.time() + LATE_AFTER_S
        for number in range(given.jobs):
            due = begun + LATE_SPAN_S * number / given.jobs
            self.add_late({**payload(number), "due": due * 1000}, max(0.0, due - time.time()))
        added, beginning = given.jobs, time.time()
        while (now := time.time()) < begun + LATE_SPAN_S:
            wanted = given.jobs + round((now - beginning) * rate)
            stop = min(wanted, added + BULK)
            self.add_many(payloads(added, stop))
            added = max(added, stop)
            time.sleep(TICK_S if added >= wanted else 0)
        seconds = time.time() - beginning
        time.sleep(2)
        say({"jobs": added, "rate": (added - given.jobs) / seconds})


def main(adapter: Callable[[Given], ThreadAdapter]) -> None:
    """Run the workload the command line names."""
    given = Given.read()
    try:
        this = adapter(given)
        this.open()
        verbs = {
            "one": this.one_by_one,
            "add": this.bulk,
            "drain": this.drain,
            "call": this.calls,
            "serve": this.serve,
            "late": this.late,
        }
        verbs[given.verb]()
    except Unsupported as reason:
        say({"unsupported": str(reason)})
