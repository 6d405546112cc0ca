"""Jobs handed in one by one, at the same time, share calls; each caller gets his own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.bullmq.unit.test_storage import bench_on, store
from tests.servers import Server
from toril.clock import give_way
from toril.errors import StorageUnavailable
from toril.job import JobSpec, State
from toril.storage.bullmq.joins import Joins
from toril.storage.protocol import Receipt


class Gate:
    """Takes jobs when it is told to."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.open = asyncio.Event()
        self.error: Exception | None = None

    async def add(self, jobs: Sequence[JobSpec]) -> Sequence[Receipt]:
        self.calls.append([spec.id for spec in jobs])
        await self.open.wait()
        if self.error is not None:
            raise self.error
        return [Receipt(id=spec.id, created=True, state=State.WAITING) for spec in jobs]

    async def add_one(self, spec: JobSpec) -> Receipt:
        (receipt,) = await self.add([spec])
        return receipt


class Stubborn(Exception):
    """Is not made again from what it keeps."""

    def __init__(self, *, why: str) -> None:
        super().__init__(why)


def hand_in(joins: Joins, *ids: str) -> list[asyncio.Task[Receipt]]:
    """Hand in jobs by a caller each."""
    return [asyncio.create_task(joins.hand_in(JobSpec(id=one, payload=b"1"))) for one in ids]


async def test_who_is_alone_goes_at_once_and_those_who_come_meanwhile_together() -> None:
    gate = Gate()
    callers = hand_in(Joins(gate.add, gate.add_one), "a", "b", "c", "d")
    await give_way(5)
    assert gate.calls == [["a"], ["b", "c", "d"]]
    gate.open.set()
    assert [one.id for one in await asyncio.gather(*callers)] == ["a", "b", "c", "d"]


@pytest.mark.parametrize("turns", [1, 2, 5])
async def test_a_caller_who_is_cancelled_takes_nobody_along(turns: int) -> None:
    gate = Gate()
    callers = hand_in(Joins(gate.add, gate.add_one), "a", "b", "c")
    await give_way(turns)
    callers[0].cancel()
    callers[1].cancel()
    await give_way(5)
    gate.open.set()
    assert (await callers[2]).id == "c"
    assert [one.cancelled() for one in callers] == [True, True, False]


async def test_an_error_reaches_each_caller_as_his_own() -> None:
    gate = Gate()
    gate.error = StorageUnavailable("the server is away")
    joins = Joins(gate.add, gate.add_one)
    callers = hand_in(joins, "a", "b", "c")
    await give_way(5)
    gate.open.set()
    errors = await asyncio.gather(*callers, return_exceptions=True)
    assert [str(one) for one in errors] == ["the server is away"] * 3
    assert len({id(one) for one in errors}) == 3
    gate.error = None
    assert (await joins.hand_in(JobSpec(id="d", payload=b"1"))).created


async def test_an_error_that_cannot_be_copied_reaches_everybody_too() -> None:
    gate = Gate()
    gate.error = Stubborn(why="it is gone")
    callers = hand_in(Joins(gate.add, gate.add_one), "a", "b", "c")
    await give_way(5)
    gate.open.set()
    errors = await asyncio.gather(*callers, return_exceptions=True)
    assert [str(one) for one in errors] == ["it is gone"] * 3


async def test_of_callers_with_the_same_id_one_makes_the_job(server: Server) -> None:
    bench = await bench_on(server.url)
    ids = ["a", "b", "b", "c", "a", "d"]
    specs = [JobSpec(id=one, payload=b"1", origin=f"o{at}") for at, one in enumerate(ids)]
    asked = [bench.storage.enqueue(bench.queue, [spec]) for spec in specs]
    receipts = [one for (one,) in await asyncio.gather(*asked)]
    assert [(one.id, one.created) for one in receipts] == [
        *(("a", True), ("b", True), ("b", False)),
        *(("c", True), ("a", False), ("d", True)),
    ]
    assert (await store(bench).counts(bench.queue)).waiting == 4
    await bench.storage.close()
