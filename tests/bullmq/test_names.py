"""Which queue is meant: braces, prefixes, twins; and what the options are called on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bullmq.pair import Pair, Recorder, until
from tests.bullmq.peer import Agent, NodeQueue
from tests.servers import Server
from toril import Backoff, Dedup, Keep, NewJob, Queue, StorageError, Worker
from toril.storage.bullmq import BullmqStorage

pytestmark = pytest.mark.node


async def test_a_queue_without_braces_is_shared_with_hash_tag_off(
    agent: Agent, server: Server, name: str
) -> None:
    node = NodeQueue(agent, name)
    await node.add("job", 1, jobId="before")
    url = f"bullmq+redis://127.0.0.1:{server.port}?hash_tag=off"
    async with Queue[Any, Any](name, url) as queue:
        handler = Recorder()
        async with Worker(queue, handler):
            await handler.ran(1)
            await queue.wait_until_finished("before")
        worker = await node.work("echo")
        await queue.add("job", 2, id="after")
        assert await queue.wait_until_finished("after") == 2
        assert len(await worker.stop()) == 1
    assert (await node.counts())["completed"] == 2


async def test_a_queue_without_braces_is_not_overlooked(
    agent: Agent, server: Server, name: str
) -> None:
    await NodeQueue(agent, name).add("job", 1)
    async with Queue[Any, Any](name, f"bullmq+redis://127.0.0.1:{server.port}") as queue:
        with pytest.raises(StorageError) as caught:
            await queue.add("job", 1)
    assert f"'{{{name}}}'" in str(caught.value)
    assert "hash_tag=off" in str(caught.value)


async def test_ids_by_the_counter_go_on_where_node_is(
    agent: Agent, server: Server, name: str
) -> None:
    node = NodeQueue(agent, f"{{{name}}}")
    await node.add("job", "from Node")
    storage = BullmqStorage(f"bullmq+redis://127.0.0.1:{server.port}", ids="counter")
    async with Queue[Any, Any](name, storage) as queue:
        assert (await queue.add("job", "from toril")).id == "2"
        await node.add("job", "from Node again")
        theirs, ours, _ = sorted(await node.jobs("waiting"), key=lambda job: int(job["id"]))
        assert (ours["id"], ours["data"]) == ("2", "from toril")
        assert "jobId" not in ours["opts"]
        assert "jobId" not in theirs["opts"]
        async with Worker(queue, Recorder()):
            assert await queue.wait_until_finished("2") == "from toril"
            assert await queue.wait_until_finished("3") == "from Node again"


async def test_a_bulk_has_ids_by_the_counter_where_none_are_given(
    server: Server, name: str
) -> None:
    storage = BullmqStorage(f"bullmq+redis://127.0.0.1:{server.port}", ids="counter")
    async with Queue[Any, Any](name, storage) as queue:
        jobs = await queue.add_bulk(
            [NewJob(name="job", data=1), NewJob(name="job", data=2, id="mine")]
            + [NewJob(name="job", data=number) for number in (3, 4)]
        )
        # The counter goes on for an id of our own too, as with Node.
        assert [(job.id, job.data) for job in jobs] == [("1", 1), ("mine", 2), ("3", 3), ("4", 4)]


async def test_a_prefix_is_shared(agent: Agent, server: Server, name: str) -> None:
    node = NodeQueue(agent, f"{{{name}}}", prefix="shop")
    await node.add("job", 1, jobId="a")
    url = f"bullmq+redis://127.0.0.1:{server.port}?prefix=shop"
    async with Queue[Any, Any](name, url) as queue:
        handler = Recorder()
        async with Worker(queue, handler):
            await queue.wait_until_finished("a")
    assert handler.ids == ["a"]


async def seen(node: NodeQueue) -> bool:
    """Whether Node sees the worker `py`."""
    return any(one["rawname"].endswith(":w:py") for one in await node.call("getWorkers"))


async def test_a_prefix_with_a_tag_is_shared_in_both_directions(
    agent: Agent, server: Server, name: str
) -> None:
    node = NodeQueue(agent, name, prefix="{bull}")
    await node.add("job", 1, jobId="from-node")
    url = f"bullmq+redis://127.0.0.1:{server.port}?prefix={{bull}}"
    async with Queue[Any, Any](name, url) as queue:
        async with Worker(queue, Recorder(), name="py"):
            assert await queue.wait_until_finished("from-node") == 1
            await until(lambda: seen(node))
        worker = await node.work("echo")
        await queue.add("job", 2, id="from-toril")
        assert await queue.wait_until_finished("from-toril") == 2
        assert len(await worker.stop()) == 1
        assert name in await queue.storage.queues()
    assert (await node.counts())["completed"] == 2


async def test_a_queue_in_braces_is_not_overlooked_under_a_prefix_with_a_tag(
    agent: Agent, server: Server, name: str
) -> None:
    await NodeQueue(agent, f"{{{name}}}", prefix="{bull}").add("job", 1)
    url = f"bullmq+redis://127.0.0.1:{server.port}?prefix={{bull}}"
    async with Queue[Any, Any](name, url) as queue:
        with pytest.raises(StorageError, match="hash_tag=on"):
            await queue.add("job", 1)


async def test_node_reads_the_defaults_of_toril_as_its_own_options(pair: Pair) -> None:
    await pair.queue.add("job", 1, id="a")
    (job,) = await pair.node.jobs("waiting")
    del job["opts"]["toril"]
    assert job["opts"] == {
        "jobId": "a",
        "attempts": 3,
        "backoff": {"type": "exponential", "delay": 1000, "jitter": 0.2},
        "keepLogs": 1000,
    }


async def test_node_reads_every_option_of_toril(pair: Pair) -> None:
    await pair.queue.add(
        "job",
        1,
        id="a",
        delay=60,
        priority=7,
        lifo=True,
        attempts=9,
        backoff=Backoff("fixed", 2, jitter=0, max_delay=5),
        keep_completed=Keep(count=5, age=60),
        keep_failed=False,
        dedup=Dedup("k", ttl=3),
        keep_logs=4,
    )
    (job,) = await pair.node.jobs("delayed")
    del job["opts"]["toril"]
    assert job["opts"] == {
        "jobId": "a",
        "delay": 60_000,
        "priority": 7,
        "lifo": True,
        "attempts": 9,
        "backoff": {"type": "fixed", "delay": 2000, "maxDelay": 5000},
        "removeOnComplete": {"age": 60, "count": 5},
        "removeOnFail": True,
        "deduplication": {"id": "k", "ttl": 3000},
        "keepLogs": 4,
    }


async def test_toril_reads_every_option_of_node(pair: Pair) -> None:
    await pair.node.add(
        "job",
        1,
        jobId="a",
        delay=60_000,
        priority=7,
        lifo=True,
        attempts=9,
        backoff={"type": "exponential", "delay": 2000, "jitter": 0.5},
        removeOnComplete={"age": 60, "count": 5},
        removeOnFail=3,
        deduplication={"id": "k", "ttl": 3000},
        keepLogs=4,
    )
    job = await pair.queue.get_job("a")
    assert job is not None
    terms = job.terms
    assert (terms.delay_ms, terms.priority, terms.lifo, terms.attempts) == (60_000, 7, True, 9)
    assert terms.backoff == Backoff("exponential", 2, jitter=0.5)
    assert (terms.keep_completed, terms.keep_failed) == (Keep(5, 60), Keep(3))
    assert (terms.dedup, terms.keep_logs) == (Dedup("k", ttl=3), 4)
