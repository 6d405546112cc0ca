"""A worker whose server is away: quiet, idle, and soon back at work."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from tests.faults.stage import Program, Stage
from tests.servers import Server

pytestmark = pytest.mark.client_side

BACK_S = 5.0
"""`reliability.md` S1, S2: the first commit after the server is back."""


async def away(server: Server, worker: Program, seconds: float, how: str = "killed") -> float:
    """Take the server away; return the share of a processor the worker used meanwhile."""
    if how == "killed":
        server.kill()
    else:
        server.signal(signal.SIGSTOP)
    begun, used = time.monotonic(), worker.cpu_s()
    await asyncio.sleep(seconds)  # how long the fault lasts
    share = (worker.cpu_s() - used) / (time.monotonic() - begun)
    if how == "killed":
        server.start()
    else:
        server.signal(signal.SIGCONT)
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
        await stage.committed("new", seconds=BACK_S)
        print(f"{share:.1%} of a CPU, back after {time.monotonic() - back:.2f} s", *lines, sep="\n")
    assert stage.of("commit", job="new")[0].t_mono - back <= BACK_S
    assert len(lines) <= 4
    assert share < 0.05
    assert worker.alive
    stage.check(lossy=True)


async def back_after(stage: Stage, server: Server, seconds: float, how: str) -> None:
    """The next job must be committed within five seconds of the server's return."""
    worker = stage.worker("w", lease=30, reap_interval=30)
    await stage.ready(worker)
    await away(server, worker, seconds, how)
    back = time.monotonic()
    async with stage.queue() as queue:
        await stage.hand_in(queue, "new", {})
        await stage.committed("new", seconds=BACK_S)
    took = stage.of("commit", job="new")[0].t_mono - back
    print(f"back after {took:.2f} s")
    assert took <= BACK_S
    stage.check(lossy=True)


@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_a_worker_is_back_within_five_seconds_of_a_five_second_outage(
    stage: Stage, server: Server, how: str
) -> None:
    await back_after(stage, server, 5, how)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_a_worker_is_back_within_five_seconds_of_a_forty_second_outage(
    stage: Stage, server: Server, how: str
) -> None:
    await back_after(stage, server, 40, how)
