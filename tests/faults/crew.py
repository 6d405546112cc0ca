"""Programs that are killed, frozen and cut off: a worker and a producer that keep a history.

    python -m tests.faults.crew worker --url … --history … --name w1 --options '{"lease": 1}'
    python -m tests.faults.crew producer --url … --history … --name p1 --count 100

What a job does is in its data, {"do": …}: nothing, "sleep" and "block" for `seconds`, "hold" until
the file `gate` exists, "fail", "exit" (the process), "progress" (write one, after the gate).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import time
import warnings
from pathlib import Path
from typing import Any

from tests.faults.history import History
from toril import JobContext, JobOptions, Queue, Worker
from toril.errors import InvalidInput, LeaseLost, StorageDenied, StorageError, StorageFull

QUEUE = "faults"
_GATE_EVERY_S = 0.02


def token_of(job: JobContext[Any]) -> str:
    """What fences one run: the lease's token, and which start of the job it is."""
    lease = job._claimed.lease
    return f"{lease.token}:{lease.note}"


async def open_gate(path: str) -> None:
    """Wait until somebody makes the file."""
    while not await asyncio.to_thread(Path(path).exists):  # noqa: ASYNC110 - another process
        await asyncio.sleep(_GATE_EVERY_S)


class Hands:
    """The worker's handler and hooks, all of which write history."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._runs: list[JobContext[Any]] = []

    async def handle(self, job: JobContext[Any]) -> object:
        """Do what the job's data says."""
        write, token = self._history.write, token_of(job)
        self._runs.append(job)
        write("run", "invoke", job.id, attempt=job.attempt, token=token, stalls=job.stalls)
        try:
            result = await self._do(job, token)
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
            write("run", "fail", job.id, attempt=job.attempt, token=token, error=text)
            raise
        write("run", "ok", job.id, attempt=job.attempt, token=token, lost=job.lost)
        return result

    async def _do(self, job: JobContext[Any], token: str) -> object:
        data = job.data if isinstance(job.data, dict) else {}
        match data.get("do"):
            case "sleep":
                await asyncio.sleep(data["seconds"])
            case "block":
                time.sleep(data["seconds"])  # noqa: ASYNC251 - to block the loop is the point
            case "hold":
                await open_gate(data["gate"])
            case "fail":
                raise RuntimeError("asked to fail")
            case "exit":
                os._exit(9)
            case "progress":
                await open_gate(data["gate"])
                await self._progress(job, token)
        return {"token": token, "proc": self._history.proc, "worker": job.worker_id}

    async def _progress(self, job: JobContext[Any], token: str) -> None:
        try:
            await job.progress({"token": token})
        except LeaseLost:
            self._history.write("progress", "fail", job.id, token=token)
        else:
            self._history.write("progress", "ok", job.id, token=token)

    def listen(self, worker: Worker[Any, Any]) -> None:
        """Write down what the worker says through its hooks."""

        def commit(kind: str, job: JobContext[Any]) -> None:
            self._history.write(
                "commit", "ok", job.id, attempt=job.attempt, token=token_of(job), kind=kind
            )

        hooks = worker.hooks
        hooks.on("completed", lambda job, _result: commit("completed", job))
        hooks.on("failed", lambda job, _error: commit("failed", job))
        hooks.on("retrying", lambda job, _error, _delay: commit("retried", job))
        hooks.on("stalled", lambda job_id: self._history.write("stalled", "info", job_id))

    def lost(self, job_id: str, op: str) -> None:
        """Write down that a run learnt it is not wanted any more."""
        for run in self._runs:
            if run.id == job_id and (run.lost or op == "gone"):
                self._history.write(op, "info", job_id, attempt=run.attempt, token=token_of(run))
                self._runs.remove(run)
                return
        self._history.write(op, "info", job_id)


class Scribe(logging.Handler):
    """Writes log records into the history."""

    def __init__(self, history: History, hands: Hands) -> None:
        super().__init__(logging.INFO)
        self._history = history
        self._hands = hands

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what is not about one job's ordinary life."""
        event = getattr(record, "event", record.name)
        if event in ("picked_up", "completed"):
            return
        job_id = getattr(record, "job_id", None)
        if event in ("lease_lost", "gone"):
            self._hands.lost(str(job_id), "lost" if event == "lease_lost" else "gone")
        text = record.getMessage()
        self._history.write("log", "info", job_id, event=event, level=record.levelname, text=text)


async def work(args: argparse.Namespace, history: History) -> None:
    """Work until told to stop: the first signal asks, the second one insists."""
    hands = Hands(history)
    logger = logging.getLogger("toril")
    logger.setLevel(logging.INFO)
    logger.addHandler(Scribe(history, hands))
    queue: Queue[Any, Any] = Queue(args.queue, args.url)
    worker: Worker[Any, Any] = Worker(queue, hands.handle, **json.loads(args.options))
    hands.listen(worker)
    running = asyncio.ensure_future(worker.run())
    asked = 0

    def stop() -> None:
        nonlocal asked
        asked += 1
        history.write("signal", "info", number=asked)
        if asked == 1:
            asyncio.ensure_future(worker.stop())  # noqa: RUF006 - it only asks
        else:
            running.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    history.write("worker", "invoke", pid=os.getpid(), worker=worker.id)
    try:
        await running
    except asyncio.CancelledError:
        history.write("worker", "info", text="cancelled")
    except BaseException as error:
        history.write("worker", "fail", error=repr(error))
        raise
    history.write("worker", "ok")


async def hand_in(
    queue: Queue[Any, Any], history: History, job_id: str, data: object, **options: Any
) -> str:
    """Enqueue one job and write down what is known of it."""
    history.write("enqueue", "invoke", job_id)
    begun = time.monotonic()
    try:
        result = await queue.enqueue(job_id, data, **options)
    except (StorageFull, StorageDenied, InvalidInput) as error:
        took = time.monotonic() - begun
        history.write("enqueue", "fail", job_id, error=repr(error), took=took)
        return "fail"
    except StorageError as error:
        took = time.monotonic() - begun
        history.write("enqueue", "info", job_id, error=repr(error), took=took)
        return "info"
    took = time.monotonic() - begun
    history.write("enqueue", "ok", job_id, status=result.status, took=took)
    return "ok"


async def produce(args: argparse.Namespace, history: History) -> None:
    """Hand in jobs one after the other, or all at once, and close."""
    options = JobOptions(**json.loads(args.options))
    async with Queue[Any, Any](args.queue, args.url, defaults=options) as queue:
        history.write("producer", "invoke", pid=os.getpid())
        if args.gate:
            await open_gate(args.gate)
        data = json.loads(args.data)
        ids = [args.id] * args.count if args.id else _ids(args.name, args.count)
        for first in range(0, len(ids), args.at_once):
            some = ids[first : first + args.at_once]
            await asyncio.gather(*(hand_in(queue, history, one, data) for one in some))
            if args.gap:
                await asyncio.sleep(args.gap)
        history.write("producer", "ok")


def skew_clock(seconds: float) -> None:
    """Make the wall clock of this process wrong."""
    true_time, true_ns = time.time, time.time_ns
    time.time = lambda: true_time() + seconds
    time.time_ns = lambda: true_ns() + int(seconds * 1e9)


def _ids(name: str, count: int) -> list[str]:
    return [f"{name}-{number:05}" for number in range(count)]


def main() -> None:
    """Run one of the programs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=["worker", "producer"])
    for name in ("url", "history", "name"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--queue", default=QUEUE)
    parser.add_argument("--options", default="{}")
    parser.add_argument("--data", default="{}")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--gap", type=float, default=0.0)
    parser.add_argument("--id", default="")
    parser.add_argument("--gate", default="")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    skew_clock(float(os.environ.get("TORIL_TEST_SKEW", "0")))
    history = History(Path(args.history), args.name)
    asyncio.run({"worker": work, "producer": produce}[args.program](args, history))


if __name__ == "__main__":
    main()
