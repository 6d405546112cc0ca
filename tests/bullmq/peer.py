"""Node's BullMQ as a peer: one process that does what a test asks."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, Literal

from tests.bullmq.install import HERE, packages, tool

Json = Any
"""What JSON can say."""

Package = Literal["bullmq", "bullmq-next"]
OLD: Final[Package] = "bullmq"
NEXT: Final[Package] = "bullmq-next"

LIMIT_S: Final = 30.0


class NodeError(Exception):
    """What Node threw."""


class Agent:
    """The process behind every `NodeQueue`; commands may overlap."""

    def __init__(self, port: int, home: Path) -> None:
        self._process = subprocess.Popen(
            [tool("node"), str(HERE / "agent.mjs"), str(home), str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Json]] = {}
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="node-agent", daemon=True)
        self._reader.start()

    @classmethod
    def start(cls, port: int) -> Agent:
        """Install what is missing, then start."""
        return cls(port, packages())

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    async def ask(self, verb: str, **command: Json) -> Json:
        """Let Node do one thing and return what it says."""
        return await asyncio.wait_for(asyncio.wrap_future(self._send(verb, command)), LIMIT_S)

    def _send(self, verb: str, command: Mapping[str, Json]) -> Future[Json]:
        number = next(self._numbers)
        answer: Future[Json] = Future()
        assert self._process.stdin is not None
        with self._lock:
            self._waiting[number] = answer
            line = json.dumps({"n": number, "verb": verb, **command}, ensure_ascii=False)
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        return answer

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            with self._lock:
                answer = self._waiting.pop(said["n"])
            if answer.set_running_or_notify_cancel():
                if "error" in said:
                    answer.set_exception(NodeError(said["error"]))
                else:
                    answer.set_result(said["value"])
        for answer in self._waiting.values():
            if answer.set_running_or_notify_cancel():
                answer.set_exception(NodeError("the Node process ended"))

    def kill(self) -> None:
        """Let it die without a word, with everything it holds."""
        self._process.kill()
        self._end()

    def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._end()

    def _end(self) -> None:
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._reader.join(10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()


class NodeQueue:
    """One queue, as Node's classes see it. `name` is the name on the wire."""

    def __init__(
        self, agent: Agent, name: str, package: Package = OLD, *, prefix: str = "bull"
    ) -> None:
        self._agent = agent
        self.name = name
        self._about: dict[str, Json] = {"queue": name, "package": package, "prefix": prefix}
        self._package: Package = package
        self._prefix = prefix

    def of(self, name: str) -> NodeQueue:
        """Another queue of the same process."""
        return NodeQueue(self._agent, name, self._package, prefix=self._prefix)

    async def ask(self, verb: str, **command: Json) -> Json:
        """Send a command about this queue."""
        return await self._agent.ask(verb, **self._about, **command)

    async def call(self, method: str, *args: Json) -> Json:
        """Call a method of `Queue`."""
        return await self.ask("queue", method=method, args=args)

    async def add(self, name: str, data: Json, **options: Json) -> Json:
        """Add a job; options by their names in Node."""
        return await self.call("add", name, data, options)

    async def add_bulk(self, jobs: Sequence[Mapping[str, Json]]) -> Json:
        """Add many jobs."""
        return await self.call("addBulk", list(jobs))

    async def add_flow(self, flow: Mapping[str, Json]) -> Json:
        """Add a tree of jobs; each node names its queue."""
        return await self.ask("flow", flow=flow)

    async def job(self, job_id: str, method: str, *args: Json) -> Json:
        """Call a method of the job of that id."""
        return await self.ask("job", id=job_id, method=method, args=args)

    async def counts(self) -> dict[str, int]:
        """What `getJobCounts` says."""
        found: dict[str, int] = await self.call("getJobCounts")
        return found

    async def jobs(self, *states: str) -> list[dict[str, Json]]:
        """What `getJobs` says."""
        found: list[dict[str, Json]] = await self.call("getJobs", list(states))
        return found

    async def pause(self) -> None:
        """Pause the queue."""
        await self.call("pause")

    async def resume(self) -> None:
        """Resume the queue."""
        await self.call("resume")

    # -- step by step ----------------------------------------------------------------------

    async def claim(self, token: str, **options: Json) -> Json:
        """Claim one job by hand, None if there is none; options are a Worker's."""
        return await self.ask("claim", token=token, options=options)

    async def reap(self, **options: Json) -> None:
        """Run one stall check; options are a Worker's."""
        await self.ask("reap", options=options)

    # -- on its own ------------------------------------------------------------------------

    async def work(
        self, behaviour: str, *, options: Mapping[str, Json] | None = None, **settings: Json
    ) -> NodeWorker:
        """Start a worker; `node/behaviours.mjs` has what it may do."""
        name = f"worker-{next(_workers)}"
        command = {"worker": name, "behaviour": behaviour, "options": options or {}}
        await self.ask("work", **command, **settings)
        return NodeWorker(self, name)

    async def listen(self, since: str = "0-0") -> None:
        """Collect all events, or those after a stream id."""
        await self.ask("listen", **{"from": since})

    async def heard(self, event: str, job_id: str | None = None) -> list[dict[str, Json]]:
        """Wait for an event, then tell all that were heard."""
        command = {} if job_id is None else {"id": job_id}
        found: list[dict[str, Json]] = await self.ask("heard", event=event, **command)
        return found


_workers: Final = itertools.count(1)


class NodeWorker:
    """A worker that runs in the Node process."""

    def __init__(self, queue: NodeQueue, name: str) -> None:
        self._queue = queue
        self.name = name

    async def ran(self, count: int) -> list[dict[str, Json]]:
        """Wait until that many runs have ended; tell all of them."""
        found: list[dict[str, Json]] = await self._queue.ask("ran", worker=self.name, count=count)
        return found

    async def started(self, count: int) -> list[dict[str, Json]]:
        """Wait until that many runs have begun; tell all of them."""
        found: list[dict[str, Json]] = await self._queue.ask(
            "started", worker=self.name, count=count
        )
        return found

    async def stop(self, *, force: bool = False) -> list[dict[str, Json]]:
        """Close it, with `force` without waiting for its jobs; tell its runs."""
        found: list[dict[str, Json]] = await self._queue.ask("stop", worker=self.name, force=force)
        return found
