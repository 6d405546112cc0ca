"""Put servers, programs, faults and the checker together for one test."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults.bullmq_dump import BullmqLooker
from tests.faults.checker import Case, check
from tests.faults.crew import QUEUE, hand_in
from tests.faults.dump import Dump, Looker
from tests.faults.file_dump import FileLooker
from tests.faults.history import Happening, History, Reader
from toril import JobOptions, Queue

ROOT = Path(__file__).parents[2]
LEASE_S = 1.0
REAP_S = 0.5
SHORT: Mapping[str, object] = {"lease": LEASE_S, "reap_interval": REAP_S, "shutdown_timeout": 5}
"""Worker options in the time scale of CI."""
STEADY: Mapping[str, object] = {"lease": 10 * LEASE_S, "heartbeat": LEASE_S / 3}
"""Where no lease may lapse, however slow the machine: long, and renewed as often as a short one."""


class Program:
    """One process of the crew."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.process = process
        self._log = log

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    @property
    def output(self) -> str:
        """What it printed: nothing, unless something is wrong."""
        return self._log.read_text()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def cpu_s(self) -> float:
        """The processor time it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """Make sure that it is gone."""
        if self.alive:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(10)


class Stage:
    """A history, the programs that write it, and a look at the queue."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.path = folder / "history.jsonl"
        self.history = History(self.path, "test")
        self.programs: list[Program] = []
        self._reader = Reader(self.path)
        self._looker: Looker | None = None
        self._file_looker: FileLooker | None = None

    @property
    def on_bullmq(self) -> bool:
        """Whether the queue is in the BullMQ layout."""
        return self.url.startswith("bullmq+")

    def through(self, port: int) -> str:
        """The URL of the same storage by another port, that of a proxy."""
        return f"{self.url.rpartition(':')[0]}:{port}"

    # -- programs --------------------------------------------------------------------------

    def worker(
        self,
        name: str,
        *,
        url: str = "",
        env: Mapping[str, str] | None = None,
        steady: bool = False,
        **options: object,
    ) -> Program:
        """Start a worker process; its options are those of CI unless given."""
        chosen = json.dumps({**SHORT, **(STEADY if steady else {}), **options})
        return self._start("worker", name, url, env, "--options", chosen)

    def producer(
        self,
        name: str,
        *,
        url: str = "",
        data: object = None,
        options: Mapping[str, object] | None = None,
        env: Mapping[str, str] | None = None,
        **flags: object,
    ) -> Program:
        """Start a producer process."""
        args = ["--data", json.dumps(data or {}), "--options", json.dumps(options or {})]
        for flag, value in flags.items():
            args += (f"--{flag.replace('_', '-')}", str(value))
        return self._start("producer", name, url, env, *args)

    def _start(
        self, what: str, name: str, url: str, env: Mapping[str, str] | None, *args: str
    ) -> Program:
        log = self.folder / f"{name}-{len(self.programs)}.log"
        command = [sys.executable, "-m", "tests.faults.crew", what, "--name", name]
        command += ["--url", url or self.url, "--history", str(self.path), *args]
        with log.open("wb") as out:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        program = Program(name, process, log)
        self.programs.append(program)
        return program

    async def ready(self, *programs: Program) -> None:
        """Wait until workers have opened the storage and are at work."""
        for program in programs:
            await self.until(
                partial(self._has_started, program.name),
                15,
                f"worker {program.name} did not start: {program.output}",
            )

    def _has_started(self, name: str) -> bool:
        return any(one.data.get("event") == "started" for one in self.of("log", proc=name))

    async def committed(self, job: str, *, proc: str = "", seconds: float = 10) -> None:
        """Wait until a worker knows that its outcome of the job is recorded."""
        await self.until(
            lambda: self.of("commit", "ok", job=job, proc=proc), seconds, f"{job} not committed"
        )

    async def ended(self, program: Program, seconds: float = 10) -> int:
        """Wait until a process has ended; return its exit code."""
        await self.until(lambda: not program.alive, seconds, f"{program.name} still runs")
        assert program.process.returncode is not None
        return program.process.returncode

    # -- what happened ---------------------------------------------------------------------

    def of(
        self, op: str, phase: str = "", *, job: str = "", proc: str = "", after: float = 0
    ) -> list[Happening]:
        """Pick happenings."""
        return [
            one
            for one in self._reader.read()
            if one.op == op
            and phase in ("", one.phase)
            and job in ("", one.job)
            and proc in ("", one.proc)
            and one.t_mono >= after
        ]

    async def until(self, condition: Callable[[], object], seconds: float, what: str = "") -> None:
        """Wait for a condition; the time is a limit, not a wait."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
            await asyncio.sleep(0.02)

    async def started(self, job: str, *, times: int = 1, seconds: float = 10) -> Happening:
        """Wait until a job was started for the n-th time; return that start."""
        await self.until(
            lambda: len(self.of("run", "invoke", job=job)) >= times,
            seconds,
            f"{job} was not started {times} times",
        )
        return self.of("run", "invoke", job=job)[times - 1]

    @property
    def looker(self) -> Looker:
        """A look at the server."""
        if self._looker is None:
            kind = BullmqLooker if self.on_bullmq else Looker
            self._looker = kind(self.url, QUEUE)
        return self._looker

    @property
    def _sight(self) -> Looker | FileLooker:
        if not self.url.startswith("file:"):
            return self.looker
        if self._file_looker is None:
            self._file_looker = FileLooker(self.url, QUEUE)
        return self._file_looker

    async def drained(self, ended: int, seconds: float = 20) -> None:
        """Wait until that many jobs have ended and none is left."""

        def over() -> bool:
            counts = self._sight.counts()
            done = counts.get("completed", 0) + counts.get("failed", 0)
            return done >= ended and done == sum(counts.values()) - counts.get("ghost", 0)

        try:
            await self.until(over, seconds)
        except AssertionError:
            raise AssertionError(f"{ended} should have ended: {self._sight.counts()}") from None

    def check(self, **rules: Any) -> Dump:
        """Let the checker judge; return the dump for more questions."""
        dump = self._sight.dump()
        broken = check(Case(history=self._reader.read(), dump=dump, **rules))
        assert not broken, "\n".join(str(one) for one in broken[:20])
        for program in self.programs:
            assert "Traceback" not in program.output, program.output
        return dump

    # -- gates and jobs --------------------------------------------------------------------

    def gate(self, name: str) -> Path:
        """A gate that jobs can wait at; `touch` opens it."""
        return self.folder / f"gate-{name}"

    def hold(self, name: str = "all") -> dict[str, object]:
        """The data of a job that runs until a gate opens."""
        return {"do": "hold", "gate": str(self.gate(name))}

    async def hand_in(self, queue: Queue[Any, Any], job: str, data: object, **options: Any) -> str:
        """Enqueue a job from this process."""
        return await hand_in(queue, self.history, job, data, **options)

    @asynccontextmanager
    async def queue(self, url: str = "", **options: Any) -> AsyncIterator[Queue[Any, Any]]:
        """Open the queue in this process."""
        async with Queue[Any, Any](QUEUE, url or self.url, defaults=JobOptions(**options)) as queue:
            yield queue

    def close(self) -> None:
        """End every program."""
        for program in self.programs:
            program.end()
        for looker in (self._looker, self._file_looker):
            if looker is not None:
                looker.close()
        self.history.close()
