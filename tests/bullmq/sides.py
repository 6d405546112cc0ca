"""Two sides that can play the same scenario: Node's BullMQ and toril."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, Unpack

import redis

from tests.bullmq.options import TermsGiven, node_options, terms_of
from tests.bullmq.peer import Agent, NodeQueue

LEASE_MS: Final = 30_000
INTERVAL_MS: Final = 30_000
WORKER: Final = "golden"
"""The name of a worker that was given none: toril writes its id into the job then."""


@dataclass(frozen=True, slots=True)
class New:
    """A job for `add_many`."""

    id: str
    data: Any = None
    name: str = "job"
    terms: TermsGiven | None = None


class Side(Protocol):
    """What a scenario may do; all of it leaves traces in the keys of the queue."""

    lab: Lab

    async def add(
        self, job_id: str, data: Any = None, name: str = "job", **terms: Unpack[TermsGiven]
    ) -> None:
        """Add a job."""

    async def add_many(self, jobs: Sequence[New]) -> None:
        """Add jobs in one call."""

    async def claim(
        self,
        count: int = 1,
        *,
        rate: tuple[int, int] | None = None,
        worker: str | None = None,
        child: bool = False,
    ) -> list[str]:
        """Claim jobs; `rate` is (most, in so many milliseconds)."""

    async def complete(self, job_id: str, value: Any = None, *, fetch: bool = False) -> list[str]:
        """Complete a claimed job, with `fetch` claim the next one."""

    async def complete_many(self, job_ids: Sequence[str], *, fetch: int = 0) -> list[str]:
        """Complete claimed jobs in one call, and claim the next ones in it."""

    async def fail(
        self, job_id: str, reason: str = "no", *, for_good: bool = False, fetch: bool = False
    ) -> list[str]:
        """Let a claimed job fail; what follows from its options follows."""

    async def postpone(self, job_id: str, delay_ms: int) -> None:
        """Put a claimed job off without counting the attempt."""

    async def release(self, job_id: str) -> None:
        """Put a claimed job back in front."""

    async def progress(self, job_id: str, value: Any) -> None:
        """Tell how far a claimed job is."""

    async def log(self, job_id: str, line: str) -> None:
        """Write a line into the log of a claimed job."""

    async def renew(self, job_id: str) -> None:
        """Prolong the lease of a claimed job."""

    async def reap(self, max_stalls: int = 1) -> None:
        """Look for stalled jobs, as if the last look was long ago."""

    async def pause(self) -> None:
        """Pause the queue."""

    async def resume(self) -> None:
        """Resume the queue."""

    async def drain(self, *, delayed: bool = False) -> None:
        """Delete the jobs that wait."""

    async def clean(self, state: str, limit: int = 1000) -> None:
        """Delete jobs of one state."""

    async def obliterate(self, *, force: bool = False) -> None:
        """Delete the queue."""

    async def remove(self, job_id: str) -> None:
        """Delete a job."""

    async def promote(self, job_id: str) -> None:
        """Let a delayed job start now."""

    async def retry(self, job_id: str, state: str = "failed") -> None:
        """Put a finished job back in line."""

    async def reprioritize(self, job_id: str, priority: int) -> None:
        """Change the priority of a job."""

    async def reschedule(self, job_id: str, delay_ms: int) -> None:
        """Change the delay of a delayed job."""

    async def update(self, job_id: str, data: Any) -> None:
        """Change the data of a job."""

    async def limit(
        self, *, concurrency: int | None = None, rate: tuple[int, int] | None = None
    ) -> None:
        """Bound the whole queue; what is not given is lifted."""

    async def close(self) -> None:
        """Let go of what was opened."""


class Lab:
    """What happens to a queue from outside, the same for both sides.

    `name` is the queue's name in toril, `queue` its name in Node; so for the queue of children.
    Where the prefix has braces, the names have none.
    """

    def __init__(self, agent: Agent, port: int, name: str, prefix: str = "bull") -> None:
        self.name = name
        self.child_name = f"{name}-child"
        self.prefix = prefix
        tagged = "{" in prefix
        self.queue = name if tagged else f"{{{name}}}"
        self.child_queue = self.child_name if tagged else f"{{{self.child_name}}}"
        self.node = NodeQueue(agent, self.queue, prefix=prefix)
        self._client = redis.Redis(port=port, decode_responses=True)

    def key(self, kind: str) -> str:
        """A key of the queue."""
        return f"{self.prefix}:{self.queue}:{kind}"

    def lapse(self, *job_ids: str) -> None:
        """Let leases run out."""
        self._client.delete(*(self.key(f"{job_id}:lock") for job_id in job_ids))

    def forget_check(self) -> None:
        """Let the interval between two looks for stalled jobs pass."""
        self._client.delete(self.key("stalled-check"))

    def fall_due(self, *job_ids: str) -> None:
        """Let the time of delayed jobs come."""
        self._client.zadd(self.key("delayed"), dict.fromkeys(job_ids, 4096), xx=True)

    def lose_record(self, job_id: str) -> None:
        """Delete what is known of a job, but not its place."""
        self._client.delete(self.key(job_id))

    def age(self, state: str, job_id: str) -> None:
        """Make a job as old as the hills."""
        self._client.zadd(self.key(state), {job_id: 1000}, xx=True)

    def remember_repeatable(self, key: str) -> None:
        """Make a repeatable as versions before 5 left it: its options are its name."""
        self._client.zadd(self.key("repeat"), {key: 1000})

    def lose(self, stem: str) -> None:
        """Delete the jobs whose ids begin so, and nothing else, from where jobs wait."""
        delayed, wait = self.key("delayed"), self.key("wait")
        waiting: Any = self._client.lrange(wait, 0, -1)
        for job_id in (one for one in (*self.ids("delayed"), *waiting) if one.startswith(stem)):
            self._client.zrem(delayed, job_id)
            self._client.lrem(wait, 0, job_id)
            self._client.delete(self.key(job_id))

    def ids(self, state: str) -> list[str]:
        """The ids in a sorted set, lowest score first."""
        found: Any = self._client.zrange(self.key(state), 0, -1)
        return list(found)

    def field(self, kind: str, name: str) -> str | None:
        """A field of a hash."""
        found: Any = self._client.hget(self.key(kind), name)
        return None if found is None else str(found)

    def close(self) -> None:
        """Let the connection go."""
        self._client.close()


class NodeSide:
    """Plays a scenario with Node's classes."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._node = lab.node
        self._tokens = itertools.count(1)
        self._options: dict[str, Mapping[str, Any]] = {}
        self._queues: dict[str, NodeQueue] = {}

    async def add(
        self, job_id: str, data: Any = None, name: str = "job", **terms: Unpack[TermsGiven]
    ) -> None:
        await self._node.add(name, data, jobId=job_id, **node_options(terms_of(terms)))

    async def add_many(self, jobs: Sequence[New]) -> None:
        await self._node.add_bulk(
            [
                {
                    "name": job.name,
                    "data": job.data,
                    "opts": {"jobId": job.id, **node_options(terms_of(job.terms or {}))},
                }
                for job in jobs
            ]
        )

    async def claim(
        self,
        count: int = 1,
        *,
        rate: tuple[int, int] | None = None,
        worker: str | None = None,
        child: bool = False,
    ) -> list[str]:
        options: dict[str, Any] = {"lockDuration": LEASE_MS, "name": worker or WORKER}
        if rate is not None:
            options["limiter"] = {"max": rate[0], "duration": rate[1]}
        node = self._node.of(self.lab.child_queue) if child else self._node
        found = []
        for _ in range(count):
            job = await node.claim(f"token-{next(self._tokens)}", **options)
            if job is None:
                break
            self._hold(node, job["id"], options)
            found.append(job["id"])
        return found

    def _hold(self, node: NodeQueue, job_id: str, options: Mapping[str, Any]) -> None:
        self._options[job_id] = options
        self._queues[job_id] = node

    async def _held(self, verb: str, job_id: str, **command: Any) -> Any:
        command = {"id": job_id, "options": self._options[job_id], **command}
        return await self._queues[job_id].ask(verb, **command)

    async def _end(self, verb: str, job_id: str, **command: Any) -> list[str]:
        job = await self._held(verb, job_id, **command)
        if job is None:
            return []
        self._hold(self._queues[job_id], job["id"], self._options[job_id])
        return [job["id"]]

    async def complete(self, job_id: str, value: Any = None, *, fetch: bool = False) -> list[str]:
        return await self._end("complete", job_id, value=value, fetch=fetch)

    async def complete_many(self, job_ids: Sequence[str], *, fetch: int = 0) -> list[str]:
        *firsts, last = job_ids
        for job_id in firsts:
            await self.complete(job_id, job_id)
        found = await self.complete(last, last, fetch=fetch > 0)
        if found and fetch > 1:
            found += await self.claim(fetch - 1)
        return found

    async def fail(
        self, job_id: str, reason: str = "no", *, for_good: bool = False, fetch: bool = False
    ) -> list[str]:
        words = {"message": reason, "stack": stack_of(reason), "unrecoverable": for_good}
        return await self._end("fail", job_id, fetch=fetch, **words)

    async def postpone(self, job_id: str, delay_ms: int) -> None:
        await self._held("postpone", job_id, delay=delay_ms)

    async def release(self, job_id: str) -> None:
        await self._held("held", job_id, method="moveToWait", args=["$token"])

    async def progress(self, job_id: str, value: Any) -> None:
        await self._held("held", job_id, method="updateProgress", args=[value])

    async def log(self, job_id: str, line: str) -> None:
        await self._held("held", job_id, method="log", args=[line])

    async def renew(self, job_id: str) -> None:
        await self._held("renew", job_id)

    async def reap(self, max_stalls: int = 1) -> None:
        self.lab.forget_check()
        await self._node.reap(maxStalledCount=max_stalls, stalledInterval=INTERVAL_MS)

    async def pause(self) -> None:
        await self._node.pause()

    async def resume(self) -> None:
        await self._node.resume()

    async def drain(self, *, delayed: bool = False) -> None:
        await self._node.call("drain", delayed)

    async def clean(self, state: str, limit: int = 1000) -> None:
        await self._node.call("clean", 0, limit, {"waiting": "wait"}.get(state, state))

    async def obliterate(self, *, force: bool = False) -> None:
        await self._node.call("obliterate", {"force": force})

    async def remove(self, job_id: str) -> None:
        await self._node.call("remove", job_id)

    async def promote(self, job_id: str) -> None:
        await self._node.job(job_id, "promote")

    async def retry(self, job_id: str, state: str = "failed") -> None:
        await self._node.job(job_id, "retry", state)

    async def reprioritize(self, job_id: str, priority: int) -> None:
        await self._node.job(job_id, "changePriority", {"priority": priority})

    async def reschedule(self, job_id: str, delay_ms: int) -> None:
        await self._node.job(job_id, "changeDelay", delay_ms)

    async def update(self, job_id: str, data: Any) -> None:
        await self._node.job(job_id, "updateData", data)

    async def limit(
        self, *, concurrency: int | None = None, rate: tuple[int, int] | None = None
    ) -> None:
        if concurrency is None:
            await self._node.call("removeGlobalConcurrency")
        else:
            await self._node.call("setGlobalConcurrency", concurrency)
        if rate is None:
            await self._node.call("removeGlobalRateLimit")
        else:
            await self._node.call("setGlobalRateLimit", *rate)

    async def close(self) -> None:
        """Do nothing: the agent holds everything."""


def stack_of(reason: str) -> str:
    """What both sides give as the trace of an error."""
    return f"Error: {reason}\n    at a line of a file"


def json_text(value: Any) -> bytes:
    """JSON as both sides write it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
