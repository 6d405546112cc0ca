"""Ids made by the counter of the queue, as Node's are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.resp.proxy import Proxy
from tests.servers import Server
from toril import Dedup, InvalidOption, NewJob, Queue, State, StorageUnavailable
from toril.ids import ulid
from toril.job import JobSpec
from toril.storage.bullmq import BullmqStorage


@pytest.fixture
async def queue(server: Server) -> AsyncIterator[Queue[Any, Any]]:
    """A queue whose ids are counted."""
    storage = BullmqStorage(f"bullmq+{server.url}?prefix=c{ulid()}", ids="counter")
    async with Queue[Any, Any]("q", storage) as made:
        yield made


async def test_the_url_can_say_that_ids_are_counted(server: Server) -> None:
    url = f"bullmq+{server.url}?prefix=c{ulid()}&ids=counter"
    async with Queue[Any, Any]("q", url) as queue:
        assert (await queue.add("job", "one")).id == "1"
        assert "ids=counter" in queue.storage.url
    storage = BullmqStorage(url, ids="ulid")
    async with Queue[Any, Any]("q", storage) as queue:
        assert len((await queue.add("job", "two")).id) == 26


async def test_jobs_without_an_id_are_counted_in_their_order(queue: Queue[Any, Any]) -> None:
    assert (await queue.add("job", "one")).id == "1"
    jobs = await queue.add_bulk(
        [
            NewJob(name="job", data="two"),
            NewJob(name="job", data="named", id="mine"),
            NewJob(name="job", data="four"),
        ]
    )
    assert [job.id for job in jobs] == ["2", "mine", "4"]
    later = await queue.add("job", "later", delay=60)
    assert (later.id, later.state) == ("5", State.DELAYED)
    waiting = await queue.get_jobs(State.WAITING)
    assert [job.data for job in waiting] == ["one", "two", "named", "four"]


async def test_a_counted_job_whose_dedup_key_is_held_is_answered_by_the_holder(
    queue: Queue[Any, Any],
) -> None:
    first = await queue.add("job", "one", dedup=Dedup("key"))
    second = await queue.add("job", "two", dedup=Dedup("key"))
    assert (first.id, second.id, second.data) == ("1", "1", "one")
    assert (await queue.get_job_counts()).waiting == 1


async def test_a_counted_hand_in_whose_answer_is_lost_is_not_sent_again(server: Server) -> None:
    async with Proxy(server.port) as proxy:
        url = f"bullmq+redis://127.0.0.1:{proxy.port}?prefix=c{ulid()}"
        storage = BullmqStorage(url, ids="counter")
        await storage.open()
        await storage.enqueue("q", [JobSpec(id="warm")])
        proxy.cut_reply_to(b"handed-in")
        fresh = ulid()
        spec = JobSpec(id=fresh, name="handed-in", origin=fresh, fresh=True)
        with pytest.raises(StorageUnavailable):
            await storage.enqueue("q", [spec])
        assert (await storage.counts("q")).waiting == 2
        await storage.close()


def test_another_maker_of_ids_is_refused() -> None:
    with pytest.raises(InvalidOption, match="ids='uuid': must be 'ulid' or 'counter'"):
        BullmqStorage("bullmq+redis://127.0.0.1:6379", ids="uuid")  # type: ignore[arg-type]
