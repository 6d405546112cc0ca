"""A worker whose server is away: quiet, idle, and soon back at work."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.faults.stage import Program, Stage
from tests.servers import Server


async def away(server: Server, worker: Program, seconds: float) -> float:
    """Take the server away; return the share of a processor the worker used meanwhile."""
    server.kill()
    begun, used = time.monotonic(), worker.cpu_s()
    await asyncio.sleep(seconds)  # how long the fault lasts
    share = (worker.cpu_s() - used) / (time.monotonic() - begun)
    server.start()
    return share


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
async def test_eight_seconds_without_a_server_cost_four_lines_and_no_cpu(
    stage: Stage, server: Server, busy: bool
) -> None:
    # The defaults: a lease of 30 s and a reaper that passes every 30 s.
    worker = stage.worker("w", concurrency=2, lease=30, reap_interval=30)
    await stage.ready(worker)
    async with stage.queue() as queue:
        if busy:
            await stage.hand_in(queue, "held", stage.hold())
            await stage.started("held")
        fell = time.monotonic()
        share = await away(server, worker, 8)
        lines = [str(one.data["text"]) for one in stage.of("log", after=fell)]
        back = time.monotonic()
        stage.gate("all").touch()
        await stage.hand_in(queue, "new", {})
        # The waits between attempts double; after eight seconds one may have just begun.
        await stage.committed("new", seconds=12)
        print(f"{share:.1%} of a CPU, back after {time.monotonic() - back:.2f} s", *lines, sep="\n")
    assert len(lines) <= 4
    assert share < 0.05
    assert worker.alive
    stage.check(lossy=True)


async def test_a_worker_is_back_within_five_seconds_of_a_five_second_outage(
    stage: Stage, server: Server
) -> None:
    worker = stage.worker("w", lease=30, reap_interval=30)
    await stage.ready(worker)
    await away(server, worker, 5)
    back = time.monotonic()
    async with stage.queue() as queue:
        await stage.hand_in(queue, "new", {})
        await stage.committed("new", seconds=5)
    assert stage.of("commit", job="new")[0].t_mono - back <= 5
    stage.check(lossy=True)
