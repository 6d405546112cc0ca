"""The workloads of a library that is used with asyncio. An adapter fills in six verbs."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.compare.adapters.measure import (
    BULK,
    LATE_AFTER_S,
    LATE_SPAN_S,
    RATE,
    Data,
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
TOGETHER: Final = 100


class AsyncAdapter:
    """One library: how to add, call and work."""

    def __init__(self, given: Given) -> None:
        self.given = given
        self._over = asyncio.Event()
        self.tally = Tally(given, self._over.set)
        self._kind, self._seconds = handler_kind()

    async def open(self) -> None:
        """Connect."""

    async def add(self, data: Data) -> None:
        """Hand in one job."""
        raise NotImplementedError

    async def add_many(self, many: Sequence[Data]) -> None:
        """Hand in up to a thousand, the fastest way the library has."""
        for first in range(0, len(many), TOGETHER):
            await asyncio.gather(*(self.add(data) for data in many[first : first + TOGETHER]))

    async def add_late(self, data: Data, delay_s: float) -> None:
        """Hand in a job that is due later."""
        raise Unsupported("no delayed jobs")

    async def call(self, data: Data) -> Any:
        """Hand in a job and wait for its result."""
        raise Unsupported("no way to wait for a result")

    async def work(self) -> None:
        """Run a worker until cancelled; its handler is `handle`."""
        raise NotImplementedError

    async def rest(self) -> None:
        """End what the last handlers began, where the library does so after them."""

    async def check(self) -> None:
        """See that all was recorded."""

    async def handle(self, data: Data) -> int:
        """Do what the workload asks of a handler."""
        if self._kind == "wait":
            await asyncio.sleep(self._seconds)
        elif self._kind == "spin":
            spin(self._seconds)
        return self.tally.saw(data)

    # -- the workloads ---------------------------------------------------------------------------

    async def one_by_one(self) -> None:
        """W1: hand in jobs, one after the other."""
        given = self.given
        for number in range(given.warm_up):
            await self.add(payload(number))
        stop = stopwatch()
        for number in range(given.warm_up, given.jobs):
            await self.add(payload(number))
        say({"jobs": given.jobs - given.warm_up, **stop(), "peak_mb": peak_mb()})

    async def bulk(self) -> None:
        """W2: hand in many jobs at once."""
        given = self.given
        await self.add_many(payloads(0, given.warm_up))
        many = payloads(given.warm_up, given.jobs)
        stop = stopwatch()
        for first in range(0, len(many), BULK):
            await self.add_many(many[first : first + BULK])
        say({"jobs": len(many), **stop(), "peak_mb": peak_mb()})

    async def drain(self) -> None:
        """W3: work the jobs that wait."""
        worker = asyncio.ensure_future(self.work())
        over = asyncio.ensure_future(self._over.wait())
        await asyncio.wait((worker, over), return_when=asyncio.FIRST_COMPLETED)
        if not over.done():
            await worker
            raise RuntimeError("the worker ended before the jobs did")
        await self.rest()
        figures = self.tally.figures()
        await self.check()
        say(figures)

    async def calls(self) -> None:
        """W4: hand in a job and wait for its result, so many callers at once."""
        given, latencies = self.given, list[float]()

        async def caller(numbers: range) -> None:
            for number in numbers:
                begun = time.perf_counter()
                await self.call(payload(number))
                latencies.append((time.perf_counter() - begun) * 1000)

        async def everybody(first: int, stop: int) -> None:
            lanes = (range(first + lane, stop, given.concurrency) for lane in self._lanes())
            await asyncio.gather(*map(caller, lanes))

        await everybody(given.jobs, given.jobs + given.warm_up)
        latencies.clear()
        stop = stopwatch()
        await everybody(0, given.jobs)
        say({"jobs": given.jobs, **stop(), "latencies": latencies})

    def _lanes(self) -> range:
        return range(self.given.concurrency)

    async def serve(self) -> None:
        """Work until stdin ends."""
        worker = asyncio.ensure_future(self.work())
        stop = stopwatch()
        say({"ready": True})
        ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        await asyncio.wait((worker, ended), return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            await worker
            raise RuntimeError("the worker ended by itself")
        say({"jobs": self.given.jobs, **stop(), "peak_mb": peak_mb(), "late": self.tally.late})

    async def late(self) -> None:
        """W10: jobs that come due while others keep the worker busy."""
        given, rate, begun = self.given, float(os.environ[RATE]), time.time() + LATE_AFTER_S
        dues = [begun + LATE_SPAN_S * number / given.jobs for number in range(given.jobs)]
        for number, due in enumerate(dues):  # one by one: some count the delay from the arrival
            data = {**payload(number), "due": due * 1000}
            await self.add_late(data, max(0.0, due - time.time()))
        added, beginning = given.jobs, time.time()
        while (now := time.time()) < begun + LATE_SPAN_S:
            wanted = given.jobs + round((now - beginning) * rate)
            if wanted > added:
                await self.add_many(payloads(added, min(wanted, added + BULK)))
                added = min(wanted, added + BULK)
            await asyncio.sleep(TICK_S if added >= wanted else 0)
        seconds = time.time() - beginning
        await asyncio.sleep(2)
        say({"jobs": added, "rate": (added - given.jobs) / seconds})


def main(adapter: type[AsyncAdapter]) -> None:
    """Run the workload the command line names; leave at once, for some workers stop slowly."""
    given = Given.read()

    async def run() -> None:
        try:
            this = adapter(given)
            await this.open()
            verbs = {
                "one": this.one_by_one,
                "add": this.bulk,
                "drain": this.drain,
                "call": this.calls,
                "serve": this.serve,
                "late": this.late,
            }
            await verbs[given.verb]()
        except Unsupported as reason:
            say({"unsupported": str(reason)})
        sys.stderr.flush()
        os._exit(0)

    run_loop(run())


def run_loop(work: Any) -> None:
    """Run on uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)
