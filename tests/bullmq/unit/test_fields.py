"""The batch scripts go by the number of a job's fields, and see every one that is unusual."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.bullmq.unit.test_storage import bench_on, store
from tests.servers import Server
from toril.job import JobSpec, Keep, Terms
from toril.outcome import DONE, AnswerKind, Completed
from toril.storage.bullmq.leases import read_note
from toril.testing import Bench


@pytest.fixture
async def bench(server: Server) -> AsyncIterator[Bench]:
    """A bench on an open storage."""
    made = await bench_on(server.url)
    yield made
    await made.storage.close()


async def write(bench: Bench, job_id: str, *fields: str) -> None:
    """Set fields of a job behind the storage's back."""
    key = store(bench).keys(bench.queue).of(job_id)
    await store(bench).client.call(key, "HSET", key, *fields)


async def read(bench: Bench, job_id: str) -> dict[bytes, bytes]:
    """Read all fields of a job."""
    key = store(bench).keys(bench.queue).of(job_id)
    flat: Any = await store(bench).client.call(key, "HGETALL", key)
    return dict(zip(flat[::2], flat[1::2], strict=True))


@pytest.mark.parametrize(
    ("fields", "made"), [(("progress", "50"), b"1"), (("atm", "4"), b"5"), (("deid", "key"), b"1")]
)
async def test_a_field_that_a_job_gains_while_it_runs_is_seen_at_its_end(
    bench: Bench, fields: tuple[str, str], made: bytes
) -> None:
    await bench.add("a", "b", "c")
    jobs = await bench.take_many(3)
    assert [read_note(job.lease)["bare"] for job in jobs] == [True] * 3
    await write(bench, "b", *fields)
    outcomes = [Completed(lease=job.lease, result=b"7") for job in jobs]
    assert (await bench.settle(*outcomes)).answers == [DONE] * 3
    assert [(await read(bench, one))[b"atm"] for one in "abc"] == [b"1", made, b"1"]
    assert [(await read(bench, one))[b"returnvalue"] for one in "abc"] == [b"7"] * 3


@pytest.mark.parametrize(
    ("children", "fields"),
    [
        (("SADD", "dependencies", "child"), ()),
        (("SADD", "dependencies", "child"), ("progress", "50")),
        (("ZADD", "unsuccessful", "1", "child"), ("defa", "child failed")),
        (("ZADD", "unsuccessful", "1", "child"), ("progress", "50")),
    ],
    ids=["waits for one", "progress, waits for one", "one failed", "progress, one failed"],
)
async def test_children_that_a_job_gains_while_it_runs_are_seen_at_its_end(
    bench: Bench, children: tuple[str, ...], fields: tuple[str, ...]
) -> None:
    await bench.add("a", "b", "c")
    jobs = await bench.take_many(3)
    command, part, *members = children
    key = store(bench).keys(bench.queue).of(f"b:{part}")
    await store(bench).client.call(key, command, key, *members)
    if fields:
        await write(bench, "b", *fields)
    outcomes = [Completed(lease=job.lease, result=b"7") for job in jobs]
    first, second, third = (await bench.settle(*outcomes)).answers
    assert (first, third) == (DONE, DONE)
    assert second.kind is AnswerKind.REFUSED
    assert b"returnvalue" not in await read(bench, "b")


async def test_an_ending_is_left_for_one_who_came_while_the_job_ran(bench: Bench) -> None:
    await bench.add("a", "b", terms=Terms(keep_completed=Keep(count=0)))
    jobs = await bench.take_many(2)
    await write(bench, "b", "toril-w", "1")
    await bench.settle(*(Completed(lease=job.lease, result=b"7") for job in jobs))
    (ending,) = await bench.storage.finished(bench.queue, ["b"], 0)
    assert ending.result == b"7"
    keys = store(bench).keys(bench.queue)
    left = [keys.of(f"toril-end:{one}") for one in "ab"]
    assert [await store(bench).client.exists(key) for key in left] == [False, True]


@pytest.mark.parametrize(("ttl_ms", "left"), [(59_000, True), (60_000, False), (None, False)])
async def test_an_ending_is_left_only_where_the_job_itself_is_sooner_gone(
    bench: Bench, ttl_ms: int | None, left: bool
) -> None:
    terms = Terms(result_ttl_ms=ttl_ms)
    spec = JobSpec(id="a", payload=b"1", origin="o", reply=True, terms=terms)
    await bench.storage.enqueue(bench.queue, [spec])
    (job,) = await bench.take_many(1)
    assert (await bench.settle(Completed(lease=job.lease, result=b"7"))).answers == [DONE]
    (ending,) = await bench.storage.finished(bench.queue, ["a"], 0)
    assert ending.result == b"7"
    key = store(bench).keys(bench.queue).of("toril-end:a")
    assert await store(bench).client.exists(key) is left


async def test_unusual_fields_come_with_the_job_that_is_handed_out(bench: Bench) -> None:
    await bench.add("a", "b", "c")
    await write(bench, "b", "stc", "1", "ats", "3")
    key = store(bench).keys(bench.queue).of("c")
    await store(bench).client.call(key, "HDEL", key, "delay")
    await write(bench, "c", "ats", "1")  # as many fields as usual, but others
    jobs = await bench.take_many(3)
    assert [(job.spec.id, job.started, job.stalls) for job in jobs] == [
        ("a", 1, 0),
        ("b", 4, 1),
        ("c", 2, 0),
    ]
    assert [read_note(job.lease)["bare"] for job in jobs] == [True, False, False]
    assert [(await read(bench, one))[b"ats"] for one in "abc"] == [b"1", b"4", b"2"]


@pytest.mark.parametrize("names", [("x", "x", "x"), ("x", "ü", "x")])
async def test_jobs_are_added_under_their_names_be_it_one_or_several(
    bench: Bench, names: tuple[str, ...]
) -> None:
    ids = [f"job-{number}" for number in range(len(names))]
    specs = [JobSpec(id=one, name=name, payload=b"1") for one, name in zip(ids, names, strict=True)]
    await bench.storage.enqueue(bench.queue, specs)
    assert [(await bench.known(one)).spec.name for one in ids] == list(names)
    events = store(bench).keys(bench.queue).of("events")
    told: Any = await store(bench).client.call(events, "XRANGE", events, "-", "+")
    added = [flat[5].decode() for _, flat in told if flat[1] == b"added"]
    assert added == list(names)
