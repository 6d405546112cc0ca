"""Check that whoever waits for work is woken in time."""

from __future__ import annotations

from toril.job import Terms
from toril.outcome import Released
from toril.testing.suite import Bench, check, soon

LONG_MS = 600_000


@check()
async def wait_returns_at_once_when_there_is_work(bench: Bench) -> None:
    await bench.add("a")
    await soon(await bench.spawn(lambda: bench.storage.wait([bench.queue], LONG_MS)))


@check()
async def wait_returns_when_its_time_is_up(bench: Bench) -> None:
    task = await bench.spawn(lambda: bench.storage.wait([bench.queue], 5_000))
    await bench.rig.advance(5_001)
    await soon(task)


@check()
async def wait_is_woken_by_a_new_job_in_any_of_its_queues(bench: Bench) -> None:
    queues = ["first", bench.queue, "last"]
    task = await bench.spawn(lambda: bench.storage.wait(queues, LONG_MS))
    await bench.add("a")
    await soon(task)
    assert await bench.order(1) == ["a"]


@check()
async def wait_is_not_late_for_a_delayed_job(bench: Bench) -> None:
    await bench.add("a", terms=Terms(delay_ms=5_000))
    task = await bench.spawn(lambda: bench.storage.wait([bench.queue], LONG_MS))
    await bench.rig.advance(5_001)
    await soon(task)
    assert await bench.order(1) == ["a"]


@check()
async def wait_learns_of_a_delayed_job_that_is_due_earlier(bench: Bench) -> None:
    await bench.add("far", terms=Terms(delay_ms=300_000))
    task = await bench.spawn(lambda: bench.storage.wait([bench.queue], LONG_MS))
    await bench.add("near", terms=Terms(delay_ms=2_000))
    await bench.rig.advance(2_001)
    await soon(task)
    assert await bench.order(1) == ["near"]


@check()
async def wait_is_woken_when_a_job_comes_back(bench: Bench) -> None:
    await bench.add("a")
    job = await bench.take()
    task = await bench.spawn(lambda: bench.storage.wait([bench.queue], LONG_MS))
    await bench.settle(Released(lease=job.lease))
    await soon(task)
    assert await bench.order(1) == ["a"]


@check()
async def wait_is_woken_when_the_queue_is_resumed(bench: Bench) -> None:
    await bench.add("a")
    await bench.storage.pause(bench.queue, True)
    task = await bench.spawn(lambda: bench.storage.wait([bench.queue], LONG_MS))
    await bench.storage.pause(bench.queue, False)
    await soon(task)
    assert await bench.order(1) == ["a"]


@check()
async def a_cancelled_wait_does_not_swallow_the_wake_up_of_another(bench: Bench) -> None:
    first = await bench.spawn(lambda: bench.storage.wait([bench.queue], LONG_MS))
    second = await bench.spawn(lambda: bench.storage.wait([bench.queue], LONG_MS))
    first.cancel()
    await bench.add("a")
    await soon(second)
    assert await bench.order(1) == ["a"]


@check()
async def a_claim_that_leaves_work_does_not_put_the_next_wait_to_sleep(bench: Bench) -> None:
    waits = [
        await bench.spawn(lambda: bench.storage.wait([bench.queue], LONG_MS)) for _ in range(2)
    ]
    await bench.add("a", "b")
    await soon(waits[0])
    assert await bench.order(1) == ["a"]
    await soon(await bench.spawn(lambda: bench.storage.wait([bench.queue], LONG_MS)))
    assert await bench.order(1) == ["b"]


@check()
async def many_waits_are_all_woken_in_the_end(bench: Bench) -> None:
    waits = [
        await bench.spawn(lambda: bench.storage.wait([bench.queue], LONG_MS)) for _ in range(5)
    ]
    for number in range(len(waits)):
        await bench.add(f"job-{number}")
        await bench.rig.advance(1)
    await bench.add("one-more")
    await bench.rig.advance(LONG_MS)
    for task in waits:
        await soon(task)
