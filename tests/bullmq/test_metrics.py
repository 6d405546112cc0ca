"""Metrics are counted as Node's workers with `metrics` on count them."""

from __future__ import annotations

import time
from typing import Any

import pytest
from redis import Redis

from tests.bullmq.pair import Recorder
from tests.bullmq.peer import Agent, NodeQueue
from tests.servers import Server
from toril import InvalidOption, PermanentError, Queue, Worker
from toril.storage.bullmq import BullmqStorage

pytestmark = pytest.mark.node

MOST = 5
MINUTE = 60_000


class Counts:
    """The metrics of a queue, seen from Node and from below."""

    def __init__(self, server: Server, node: NodeQueue) -> None:
        self._client = Redis(port=server.port, decode_responses=True)
        self._node = node

    def key(self, kind: str) -> str:
        """The key of the counts."""
        return f"bull:{self._node.name}:metrics:{kind}"

    def age(self, minutes: int) -> None:
        """Let time pass since the last count."""
        for kind in ("completed", "failed"):
            last = self._client.hget(self.key(kind), "prevTS")
            assert isinstance(last, str)
            self._client.hset(self.key(kind), "prevTS", str(int(last) - minutes * MINUTE))

    async def all(self) -> dict[str, Any]:
        """What Node's getMetrics says, without the times."""
        found = {
            kind: await self._node.call("getMetrics", kind) for kind in ("completed", "failed")
        }
        for one in found.values():
            assert one["meta"].pop("prevTS") > 0
        return found

    def close(self) -> None:
        """Let the connection go."""
        self._client.close()


async def work(job: Any) -> Any:
    """Do what the job says."""
    if job.data == "fail":
        raise PermanentError("no")
    return job.data


async def play(
    agent: Agent, server: Server, name: str, batch: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Let both sides do the same; tell what toril counted, and what Node."""
    ours, theirs = NodeQueue(agent, f"{{{name}}}"), NodeQueue(agent, f"{{{name}-node}}")
    found, expected = Counts(server, ours), Counts(server, theirs)
    url = f"bullmq+redis://127.0.0.1:{server.port}?metrics={MOST}"
    options = {"metrics": {"maxDataPoints": MOST}, "concurrency": 4}
    async with Queue[Any, Any](name, BullmqStorage(url, batch=batch)) as queue:
        for minutes in (0, 1, 3, 20):
            if minutes:
                found.age(minutes)
                expected.age(minutes)
            jobs = ["done"] * 7 + ["fail"] * 2
            for data in jobs:
                await queue.add("job", data, attempts=1)
                await theirs.add("job", data)
            handler = Recorder(work)
            async with Worker(queue, handler, concurrency=4):
                await handler.ran(len(jobs))
            worker = await theirs.work("by_data", options=options)
            await worker.ran(len(jobs))
            await worker.stop()
    result = await found.all(), await expected.all()
    found.close()
    expected.close()
    return result


@pytest.mark.parametrize("batch", [True, False], ids=["batch", "official"])
async def test_toril_counts_what_node_counts(
    agent: Agent, server: Server, name: str, batch: bool
) -> None:
    while True:
        minute = int(time.time()) // 60
        found, expected = await play(agent, server, f"{name}-{minute}", batch)
        if minute == int(time.time()) // 60:  # if one began meanwhile, the sides differ by right
            break
    assert found == expected
    assert found["completed"]["meta"] == {"count": 28, "prevCount": 21}
    assert (len(found["completed"]["data"]), found["failed"]["meta"]["count"]) == (MOST, 8)


async def test_without_the_option_nothing_is_counted(
    agent: Agent, server: Server, name: str
) -> None:
    node = NodeQueue(agent, f"{{{name}}}")
    url = f"bullmq+redis://127.0.0.1:{server.port}"
    async with Queue[Any, Any](name, url) as queue, Worker(queue, Recorder()):
        job = await queue.add("job", 1)
        await queue.wait_until_finished(job.id)
    assert (await node.call("getMetrics", "completed"))["count"] == 0


@pytest.mark.parametrize("minutes", [0, -1, True, 1.5, "5"])
def test_what_is_no_number_of_minutes_is_refused(minutes: Any) -> None:
    with pytest.raises(InvalidOption, match="metrics="):
        BullmqStorage("bullmq+redis://localhost", metrics=minutes)
