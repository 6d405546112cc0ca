"""What only a real server shows of the BullMQ storage."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.resp.proxy import Proxy
from tests.servers import Server, valkey_binary
from toril.errors import StorageError
from toril.ids import ulid
from toril.job import KEEP_ALL, KEEP_NONE, Dedup, JobSpec, Keep, State, Terms
from toril.outcome import DONE, Completed
from toril.storage import open_bulk, open_storage
from toril.storage.bullmq import BullmqStorage
from toril.storage.protocol import Claim, Rate
from toril.testing import Bench, MemoryRig, Rig

WISH: Final = Claim(token="t", worker_id="w", count=1, lease_ms=30_000)


class LiveRig(MemoryRig):
    """A rig for tests that neither move time nor crash anybody."""

    def __init__(self, storage: BullmqStorage) -> None:
        self.storage = storage  # type: ignore[assignment]


async def bench_on(url: str, *, batch: bool = True, keep_completed: Keep = KEEP_ALL) -> Bench:
    """Open a storage under a prefix of its own."""
    storage = BullmqStorage(
        f"bullmq+{url}?prefix=u{ulid()}", batch=batch, keep_completed=keep_completed
    )
    await storage.open()
    rig: Rig = LiveRig(storage)
    return Bench(rig)


@pytest.fixture
async def bench(server: Server) -> AsyncIterator[Bench]:
    """A bench on an open storage."""
    made = await bench_on(server.url)
    yield made
    await made.storage.close()


def store(bench: Bench) -> BullmqStorage:
    """The storage of a bench."""
    storage = bench.storage
    assert isinstance(storage, BullmqStorage)
    return storage


async def test_an_untagged_twin_is_refused_until_the_user_says_which(server: Server) -> None:
    queue = f"twin{ulid()}"
    node = BullmqStorage(f"bullmq+{server.url}?hash_tag=off")
    await node.open()
    await Bench(LiveRig(node), queue).add("a")
    storage = BullmqStorage(f"bullmq+{server.url}")
    await storage.open()
    with pytest.raises(StorageError, match=r"name the Node queue.*hash_tag=off"):
        await Bench(LiveRig(storage), queue).add("b")
    assert await node.counts(queue) != await storage.counts(queue)
    explicit = BullmqStorage(f"bullmq+{server.url}?hash_tag=on")
    await explicit.open()
    (receipt,) = await Bench(LiveRig(explicit), queue).add("b")
    assert receipt.created
    for one in (node, storage, explicit):
        await one.close()


async def test_a_lean_twin_is_refused(server: Server) -> None:
    queue = f"twin{ulid()}"
    lean = open_storage(server.url)
    await lean.open()
    await lean.pause(queue, False)
    storage = BullmqStorage(f"bullmq+{server.url}")
    await storage.open()
    with pytest.raises(StorageError, match="toril's own layout"):
        await storage.pause(queue, True)
    await storage.close()
    await lean.close()


@pytest.mark.parametrize("tagging", ["on", "off"])
async def test_the_lean_side_refuses_a_bullmq_twin(server: Server, tagging: str) -> None:
    queue = f"twin{ulid()}"
    peer = BullmqStorage(f"bullmq+{server.url}?hash_tag={tagging}")
    await peer.open()
    await Bench(LiveRig(peer), queue).add("a")
    lean = open_storage(server.url)
    await lean.open()
    with pytest.raises(StorageError, match=r"a BullMQ queue of this name.*open it as 'bullmq\+…'"):
        await lean.enqueue(queue, [JobSpec(id="b", payload=b"1")])
    with pytest.raises(StorageError, match=r"a BullMQ queue of this name.*open it as 'bullmq\+…'"):
        await lean.claim(queue, WISH)
    assert queue not in await lean.queues()
    bulk = open_bulk(server.url)
    with pytest.raises(StorageError, match="hash_tag=on if both are meant to exist"):
        bulk.write_jobs(queue, ["b"], [b"1"])
    bulk.close()
    explicit = open_storage(f"{server.url}?hash_tag=on")
    await explicit.open()
    (receipt,) = await explicit.enqueue(queue, [JobSpec(id="b", payload=b"1")])
    assert receipt.created
    assert (await explicit.claim(queue, WISH)).jobs
    await explicit.destroy(queue, force=True)
    for one in (peer, lean, explicit):
        await one.close()


@pytest.mark.parametrize("batch", [True, False])
async def test_a_claim_whose_connection_breaks_finds_what_it_was_granted(
    server: Server, batch: bool
) -> None:
    async with Proxy(server.port) as proxy:
        bench = await bench_on(f"redis://127.0.0.1:{proxy.port}", batch=batch)
        await bench.add("a", "b", "c", "d")
        await bench.claim(0, worker="w-broken")  # seen now: the next word of it is the claim
        proxy.cut_reply_to(b"w-broken")
        jobs = (await bench.claim(2, worker="w-broken")).jobs
        assert [job.spec.id for job in jobs] == ["a", "b"]
        assert [(job.stalls, job.started) for job in jobs] == [(0, 1), (0, 1)]
        assert (await bench.storage.counts(bench.queue)).active == 2
        await bench.storage.close()


@pytest.mark.parametrize("batch", [True, False])
async def test_a_settle_whose_connection_breaks_loses_neither_answer_nor_refill(
    server: Server, batch: bool
) -> None:
    async with Proxy(server.port) as proxy:
        bench = await bench_on(f"redis://127.0.0.1:{proxy.port}", batch=batch)
        await bench.add("a", "b", "c")
        job = await bench.take()
        proxy.cut_reply_to(b"w-broken")
        done = Completed(lease=job.lease, result=b"1")
        settlement = await bench.settle(done, refill=bench.wish(1, worker="w-broken"))
        assert list(settlement.answers) == [DONE]
        assert [job.spec.id for job in settlement.batch.jobs] == ["b"]
        counts = await bench.storage.counts(bench.queue)
        assert (counts.active, counts.completed, counts.waiting) == (1, 1, 1)
        await bench.storage.close()


async def test_pausing_merges_what_clients_of_another_kind_left(bench: Bench) -> None:
    storage = store(bench)
    wait, paused = (storage.keys(bench.queue).of(name) for name in ("wait", "paused"))
    await bench.add("a", "b")
    await storage.pause(bench.queue, True)
    await bench.add("c")
    # A 6.x client adds to `wait` also while the queue is paused.
    await storage.client.call(wait, "LPUSH", wait, "d")
    for _ in range(2):
        await storage.pause(bench.queue, False)
    assert await storage.client.call(paused, "EXISTS", paused) == 0
    assert await storage.client.call(wait, "LRANGE", wait, 0, -1) == [b"d", b"c", b"b", b"a"]


async def test_the_storage_keeps_finished_jobs_as_told_where_the_job_says_nothing(
    server: Server,
) -> None:
    bench = await bench_on(server.url, keep_completed=KEEP_NONE)
    await bench.run("a")
    await bench.run("b", terms=Terms(keep_completed=Keep(count=5)))
    assert await bench.state("a") is None
    assert await bench.state("b") is State.COMPLETED
    await bench.storage.close()


async def test_jobs_not_plain_go_through_a_batch_storage_all_the_same(bench: Bench) -> None:
    await bench.limits.tune(bench.queue, concurrency=30)
    ids = [f"job-{number}" for number in range(30)]
    await bench.add(*ids)
    jobs = await bench.take_many(30)
    outcomes = [Completed(lease=job.lease, result=b"1") for job in jobs]
    settlement = await bench.settle(*outcomes, refill=bench.wish(5))
    assert list(settlement.answers) == [DONE] * 30
    await bench.limits.tune(bench.queue, rate=Rate(max=3, duration_ms=60_000))
    await bench.add(*(f"more-{number}" for number in range(5)))
    batch = await bench.claim(5)
    assert (len(batch.jobs), batch.limited_for_ms > 0) == (3, True)


async def test_many_outcomes_settle_in_one_call_and_are_refilled(bench: Bench) -> None:
    ids = [f"job-{number:03}" for number in range(150)]
    await bench.add(*ids)
    jobs = await bench.take_many(60)
    outcomes = [Completed(lease=job.lease, result=b"1") for job in jobs]
    settlement = await bench.settle(*outcomes, refill=bench.wish(60))
    assert list(settlement.answers) == [DONE] * 60
    assert [job.spec.id for job in settlement.batch.jobs] == ids[60:120]
    assert (await bench.storage.counts(bench.queue)).completed == 60


async def test_text_that_is_not_utf8_is_refused_and_nothing_is_stored(bench: Bench) -> None:
    with pytest.raises(ValueError, match="not UTF-8"):
        await bench.add("a", payload=b"\xff")
    assert await bench.record("a") is None


async def test_an_ending_is_heard_in_the_noise_of_many_others(bench: Bench) -> None:
    storage = store(bench)
    await bench.add("mine", reply=True)
    mine = await bench.take()
    task = asyncio.create_task(storage.finished(bench.queue, ["mine"], 60_000))
    for number in range(20):
        await bench.add(*(f"noise-{number}-{part}" for part in range(200)))
    await bench.complete(mine, b'"heard"')
    for number in range(20, 30):
        await bench.add(*(f"noise-{number}-{part}" for part in range(50)))
    (ending,) = await asyncio.wait_for(task, 10)
    assert ending.result == b'"heard"'


@pytest.mark.parametrize(
    "url",
    [
        "bullmq+redis://localhost",
        "bullmq+rediss://user:secret@localhost:6380/2",
        "bullmq+unix:///tmp/x.sock",
        "bullmq+redis+cluster://a:1,b:2",
        "bullmq+redis+sentinel://a:1,b:2/mymaster",
        "bullmq+embedded:",
    ],
)
def test_every_kind_of_server_opens_by_url(url: str) -> None:
    storage = open_storage(url)
    assert isinstance(storage, BullmqStorage)
    assert "secret" not in storage.url


async def test_an_embedded_server_holds_queues_that_node_could_open(tmp_path: Path) -> None:
    storage = BullmqStorage(f"bullmq+embedded:{tmp_path}/data")
    await storage.open()
    bench = Bench(LiveRig(storage))
    await bench.run("a", result=b'"done"')
    key = "bull:{checks}:completed"
    assert await storage.client.call(key, "ZCARD", key) == 1
    await storage.close()


async def test_a_durable_storage_answers_when_the_job_is_on_disk() -> None:
    with Server(valkey_binary(), "--appendonly", "yes") as server:
        storage = BullmqStorage(f"bullmq+{server.url}?durability=local")
        await storage.open()
        bench = Bench(LiveRig(storage))
        await bench.add("a")
        job = await bench.take()
        assert await bench.answer(Completed(lease=job.lease, result=b'"kept"')) == DONE
        await storage.close()
        server.kill()
        server.start()
        await storage.open()
        assert (await bench.known("a")).result == b'"kept"'
        await storage.close()


async def test_answers_stand_where_their_outcomes_do(bench: Bench) -> None:
    storage = store(bench)
    ids = [f"job-{number:02}" for number in range(60)]
    await bench.add(*ids)
    jobs = (await bench.claim(60)).jobs
    for lost in ("job-24", "job-40"):  # the last of a batch, and one inside
        lock = storage.keys(bench.queue).lock(lost)
        await storage.client.call(lock, "SET", lock, "another")
    settlement = await bench.settle(*(Completed(lease=job.lease, result=b"1") for job in jobs))
    lost_ids = [
        job.spec.id
        for job, answer in zip(jobs, settlement.answers, strict=True)
        if answer is not DONE
    ]
    assert lost_ids == ["job-24", "job-40"]


async def test_after_a_job_that_is_left_none_of_the_next_batch_is_completed(bench: Bench) -> None:
    storage = store(bench)
    ids = [f"job-{number:02}" for number in range(50)]
    await bench.add(*ids)
    jobs = (await bench.claim(50)).jobs
    tied = storage.keys(bench.queue).of("job-03")
    await storage.client.call(tied, "HSET", tied, "deid", "key")
    await bench.settle(*(Completed(lease=job.lease, result=b"1") for job in jobs))
    events = storage.keys(bench.queue).of("events")
    told: Any = await storage.client.call(events, "XRANGE", events, "-", "+")
    ended = [entry[3].decode() for _, entry in told if entry[1] == b"completed"]
    assert ended == ids


@pytest.mark.parametrize("field", ["ats", "atm"])
async def test_a_count_that_is_no_number_keeps_no_other_job_from_its_end(
    bench: Bench, field: str
) -> None:
    storage = store(bench)
    await bench.add("a", "b")
    broken = storage.keys(bench.queue).of("b")
    await storage.client.call(broken, "HSET", broken, field, "many")
    jobs = (await bench.claim(2)).jobs
    outcomes = [Completed(lease=job.lease, result=b"1") for job in jobs]
    assert (await bench.settle(*outcomes)).answers == [DONE, DONE]
    assert (await storage.counts(bench.queue)).completed == 2


@pytest.mark.parametrize("seed", range(8))
async def test_jobs_that_end_in_any_order_leave_the_others_running(bench: Bench, seed: int) -> None:
    storage = store(bench)
    ids = [f"job-{number:02}" for number in range(40)]
    await bench.add(*ids, *(f"next-{number}" for number in range(9)))
    jobs = await bench.take_many(40)
    some = random.Random(seed).sample(jobs, 20)
    some.insert(7, some[3])  # told twice
    outcomes = [Completed(lease=job.lease, result=b"1") for job in some]
    settlement = await bench.settle(*outcomes, refill=bench.wish(5))
    assert settlement.answers == [DONE] * 21
    fresh = [job.spec.id for job in settlement.batch.jobs]
    assert fresh == [f"next-{number}" for number in range(5)]
    keys = storage.keys(bench.queue)
    active: Any = await storage.client.call(keys.base, "LRANGE", keys.of("active"), 0, -1)
    ended = {job.spec.id for job in some}
    left = [job_id for job_id in ids if job_id not in ended]
    assert [one.decode() for one in reversed(active)] == [*left, *fresh]
    assert (await storage.counts(bench.queue)).completed == 20


@pytest.mark.parametrize("size", [7, 25, 60])
@pytest.mark.parametrize("other", [Terms(lifo=True), Terms(dedup=Dedup("k")), Terms(delay_ms=1)])
@pytest.mark.parametrize("every", [2, 5, 17])
async def test_a_mixed_bulk_lines_up_in_the_given_order_after_an_id_that_was_taken(
    bench: Bench, server: Server, size: int, other: Terms, every: int
) -> None:
    specs = [
        JobSpec(id=f"job-{at:03}", payload=b"1", terms=other if at % every == 1 else Terms())
        for at in range(size)
    ]

    async def play(one: Bench) -> tuple[object, list[object]]:
        await one.add("job-002")
        await one.add("job-004")
        await one.storage.enqueue(one.queue, specs)
        client, keys = store(one).client, store(one).keys(one.queue)
        entries: Any = await client.call(keys.base, "XRANGE", keys.of("events"), "-", "+")
        line = await client.call(keys.base, "LRANGE", keys.of("wait"), 0, -1)
        return line, [flat[:4] for _, flat in entries]

    official = await bench_on(server.url, batch=False)
    try:
        assert await play(bench) == await play(official)
    finally:
        await official.storage.close()


@pytest.mark.parametrize("taken", [0, 24, 25, 26, 49, 50, 51, 130])
async def test_calls_under_way_wait_for_what_the_one_before_left(bench: Bench, taken: int) -> None:
    storage = store(bench)
    ids = [f"job-{number:03}" for number in range(140)]
    await bench.add(ids[taken])
    specs = [JobSpec(id=one, payload=b"1", origin=f"o-{one}") for one in ids]
    receipts = await storage.enqueue(bench.queue, specs)
    assert [receipt.id for receipt in receipts if not receipt.created] == [ids[taken]]
    assert [receipt.id for receipt in receipts] == ids
    wait = storage.keys(bench.queue).of("wait")
    line: Any = await storage.client.call(wait, "LRANGE", wait, 0, -1)
    there = [job_id for job_id in ids if job_id != ids[taken]]
    assert [one.decode() for one in reversed(line)] == [ids[taken], *there]


async def test_a_bulk_whose_replies_are_lost_lines_up_once_and_in_order(server: Server) -> None:
    ids = [f"job-{number:03}" for number in range(200)]
    specs = [JobSpec(id=one, payload=b"1", origin=f"o-{one}") for one in ids]
    async with Proxy(server.port) as proxy:
        bench = await bench_on(f"redis://127.0.0.1:{proxy.port}")
        await bench.add("warm")
        proxy.cut_reply_to(b"job-030", times=2)
        receipts = await bench.storage.enqueue(bench.queue, specs)
        assert [(one.id, one.created) for one in receipts] == [(job_id, True) for job_id in ids]
        assert proxy.cuts == 2
        wait = store(bench).keys(bench.queue).of("wait")
        line: Any = await store(bench).client.call(wait, "LRANGE", wait, 0, -1)
        assert [one.decode() for one in reversed(line)] == ["warm", *ids]
        await bench.storage.close()


async def test_jobs_line_up_in_order_after_an_id_that_was_taken(bench: Bench) -> None:
    storage = store(bench)
    ids = [f"job-{number:03}" for number in range(120)]
    await bench.add("job-003")
    await bench.add(*ids)
    wait = storage.keys(bench.queue).of("wait")
    line = await storage.client.call(wait, "LRANGE", wait, 0, -1)
    assert isinstance(line, list)
    there = [job_id.encode() for job_id in ids if job_id != "job-003"]
    assert line[::-1] == [b"job-003", *there]
