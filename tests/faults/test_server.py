"""Servers that freeze, die, forget or run full; `reliability.md` S1-S4, S6, S8."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable

import pytest

from tests.faults.stage import LEASE_S, Stage
from tests.servers import SAFE, Server
from toril.errors import StorageFull

CALL_S = 3.0 + 4.0 + 1.0
"""What one call may take: a command's timeout, the patience for repeats, a second of grace."""


async def freeze(stage: Stage, server: Server, seconds: float) -> None:
    """S1: stop the server under a producer and workers."""
    worker = stage.worker("w", concurrency=4)
    await stage.ready(worker)
    producer = stage.producer("p", count=400, gap=0.005)
    await stage.until(lambda: len(stage.of("enqueue", "ok")) > 50, 10)
    server.signal(signal.SIGSTOP)
    stage.history.write("fault", "ok", name="SIGSTOP")
    await asyncio.sleep(seconds)  # how long the fault lasts, not a wait for something
    server.signal(signal.SIGCONT)
    thawed = time.monotonic()
    await stage.until(lambda: stage.of("commit", "ok", after=thawed), 5, "no work")
    print(f"at work {time.monotonic() - thawed:.1f} s after the thaw")
    await stage.until(lambda: not producer.alive, 60)
    answers = [one for one in stage.of("enqueue") if one.phase != "invoke"]
    assert len(answers) == 400
    assert max(float(str(one.data["took"])) for one in answers) <= CALL_S
    await stage.drained(len(stage.of("enqueue", "ok")), 30)
    dump = stage.check()
    assert sum(job.stalls for job in dump.jobs) <= 4


async def test_s1_a_frozen_server_costs_errors_or_time_but_no_second_job(
    stage: Stage, server: Server
) -> None:
    await freeze(stage, server, 3 * LEASE_S)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_s1_a_server_frozen_for_forty_seconds(stage: Stage, server: Server) -> None:
    await freeze(stage, server, 40)


@pytest.mark.on_bullmq
async def test_s2_a_killed_server_with_a_log_loses_nothing_acked(
    stage: Stage, serve: Callable[..., Server]
) -> None:
    server = serve(*SAFE)
    stage.url = server.url
    worker = stage.worker("w", concurrency=4)
    await stage.ready(worker)
    producer = stage.producer("p", count=600, gap=0.003)
    await stage.until(lambda: len(stage.of("enqueue", "ok")) > 100, 10)
    server.kill()
    used = worker.cpu_s()
    await asyncio.sleep(3)  # how long the fault lasts
    used = worker.cpu_s() - used
    server.start()
    back = time.monotonic()
    await stage.until(lambda: stage.of("commit", "ok", after=back), 5, "not back in 5 s")
    await stage.until(lambda: not producer.alive, 30)
    await stage.drained(len(stage.of("enqueue", "ok")))
    stage.check()
    assert used < 0.05 * 3 + 0.05, f"{used:.2f} s of CPU in 3 s"


async def test_s3_a_server_that_forgot_everything_does_not_kill_the_worker(
    stage: Stage, server: Server
) -> None:
    worker = stage.worker("w", concurrency=2)
    async with stage.queue() as queue:
        await stage.hand_in(queue, "held", stage.hold())
        await stage.started("held")
        server.kill()
        server.start()
        stage.gate("all").touch()
        await stage.until(lambda: stage.of("gone", job="held") or stage.of("lost", job="held"), 10)
        await stage.hand_in(queue, "new", {})
        await stage.until(lambda: stage.of("commit", "ok", job="new"), 5)
    assert worker.alive
    assert not stage.of("commit", job="held")
    stage.check(lossy=True)


@pytest.mark.on_bullmq
async def test_s4_scripts_flushed_all_the_time_are_not_noticed(
    stage: Stage, server: Server
) -> None:
    stage.worker("w", concurrency=4, steady=True)
    producer = stage.producer("p", count=1500, at_once=10, gap=0.01)
    flushes = 0
    while producer.alive:
        stage.looker.call("SCRIPT", "FLUSH")
        flushes += 1
        await asyncio.sleep(0.1)
    assert flushes > 10
    await stage.drained(1500)
    dump = stage.check()
    assert len(stage.of("enqueue", "ok")) == 1500
    assert all(job.started == 1 for job in dump.jobs)
    levels = {one.data["level"] for one in stage.of("log")}
    assert levels <= {"INFO"}


async def test_s6_a_full_server_refuses_new_jobs_and_lets_old_ones_end(
    stage: Stage, server: Server
) -> None:
    worker = stage.worker("w", concurrency=2, lease=2)
    await stage.ready(worker)
    async with stage.queue() as queue:
        for job in ("a", "b", "c"):
            await stage.hand_in(queue, job, stage.hold(job))
        await stage.started("a")
        await stage.started("b")
        stage.looker.call("CONFIG", "SET", "maxmemory", "1")
        begun = time.monotonic()
        with pytest.raises(StorageFull):
            await queue.enqueue("full", {})
        assert time.monotonic() - begun < 0.5
        assert await stage.hand_in(queue, "refused", {}) == "fail"
        # Renewals go on: twice the lease later nobody has taken the jobs away.
        until = time.monotonic() + 2 * 2
        await stage.until(lambda: time.monotonic() > until, 8)
        for job in ("a", "b", "c"):
            stage.gate(job).touch()
        await stage.drained(3)
        stage.looker.call("CONFIG", "SET", "maxmemory", "0")
        assert await stage.hand_in(queue, "later", {}) == "ok"
        await stage.drained(4)
    dump = stage.check()
    assert all(job.stalls == 0 and job.started == 1 for job in dump.jobs)
    assert "full" not in dump.by_id


async def test_s8_a_flushed_server_does_not_kill_the_worker(stage: Stage, server: Server) -> None:
    worker = stage.worker("w", concurrency=4)
    async with stage.queue() as queue:
        for number in range(20):
            await stage.hand_in(queue, f"old-{number}", stage.hold())
        await stage.started("old-3")
        stage.looker.call("FLUSHALL")
        stage.gate("all").touch()
        await stage.until(lambda: len(stage.of("gone")) + len(stage.of("lost")) >= 4, 10)
        for number in range(20):
            await stage.hand_in(queue, f"new-{number}", {})
        assert await queue.storage.queues() == [queue.name]
        await stage.drained(20)
        # The server knows of an end before the worker has its reply.
        for number in range(20):
            await stage.committed(f"new-{number}")
    assert worker.alive
    assert {one.job for one in stage.of("commit")} == {f"new-{n}" for n in range(20)}
    stage.check(lossy=True)
