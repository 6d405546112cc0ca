"""Connections that break, fall silent or lose replies; `reliability.md` N1-N4, N7."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from tests.faults.nemesis import Nemesis, pick_seed
from tests.faults.stage import LEASE_S, REAP_S, Stage
from tests.resp.proxy import Proxy
from tests.servers import Server
from toril.errors import WaitTimeout
from toril.storage.protocol import Cancellation, Removal
from toril.storage.redis.scripts import script

NOTICED_S = 3.0 + 4.0 + 1.0
"""When a silent connection is spoken of: the timeout of a command, the patience for repeats, a
second of grace."""
BACK_S = 5.0


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[Proxy]:
    """A proxy before the server; `Stage.through` leads through it."""
    async with Proxy(server.port) as proxy:
        yield proxy


async def kill_connections(stage: Stage, jobs: int, kills: int) -> None:
    """N1: kill every connection, again and again, under load."""
    workers = [stage.worker(f"w{number}", concurrency=4, steady=True) for number in range(2)]
    await stage.ready(*workers)
    producer = stage.producer("p", count=jobs, at_once=4, gap=0.005)
    harms = {"kill": lambda _random: stage.looker.call("CLIENT", "KILL", "TYPE", "normal") and None}
    nemesis = Nemesis(stage.history, pick_seed(), harms)
    await nemesis.run(kills, (0.3, 0.3))
    await stage.until(lambda: not producer.alive, 60)
    await stage.drained(len(stage.of("enqueue", "ok")), 30)
    dump = stage.check()
    assert len(stage.of("enqueue", "ok")) == jobs
    assert not stage.of("lost"), "a finish that was repeated is our own"
    assert sum(job.started - 1 for job in dump.jobs) <= kills
    assert sum(job.stalls for job in dump.jobs) == 0


@pytest.mark.on_bullmq
async def test_n1_killed_connections_lose_and_double_nothing(stage: Stage) -> None:
    await kill_connections(stage, 800, 15)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_n1_connections_killed_for_a_minute(stage: Stage) -> None:
    await kill_connections(stage, 6000, 200)


async def black_hole(stage: Stage, proxy: Proxy, seconds: float) -> None:
    """N2: one worker hears nothing for a while, and no reset tells it so."""
    cut_off = stage.worker("cut-off", url=stage.through(proxy.port))
    async with stage.queue() as queue:
        await stage.hand_in(queue, "j", stage.hold())
        await stage.started("j")
        heir = stage.worker("heir")
        await stage.ready(heir)
        proxy.switch("blackhole")
        fell = time.monotonic()
        second = await stage.started("j", times=2, seconds=LEASE_S + 2 * REAP_S + 3)
        assert second.proc == "heir"
        assert second.t_mono - fell <= LEASE_S + 2 * REAP_S + 1
        stage.gate("all").touch()
        await stage.until(lambda: stage.of("commit", "ok", job="j", proc="heir"), 5)
        heir.end()
        await stage.until(lambda: stage.of("log", proc="cut-off", after=fell), NOTICED_S)
        until = fell + seconds
        await stage.until(lambda: time.monotonic() > until, seconds + 1)
        proxy.switch("pass_")
        healed = time.monotonic()
        await stage.until(lambda: stage.of("lost", job="j", proc="cut-off"), BACK_S, "not told")
        await stage.hand_in(queue, "k", {})
        await stage.until(lambda: stage.of("commit", job="k"), BACK_S, "not back")
        print(f"at work {time.monotonic() - healed:.2f} s after it healed")
    assert cut_off.alive
    assert not stage.of("commit", job="j", proc="cut-off")
    job = stage.check().by_id["j"]
    assert isinstance(job.result, dict)
    assert job.result["proc"] == "heir"


async def test_n2_a_worker_behind_a_black_hole_is_replaced_and_comes_back(
    stage: Stage, proxy: Proxy
) -> None:
    await black_hole(stage, proxy, 8)


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_n2_a_worker_behind_a_black_hole_for_a_minute(stage: Stage, proxy: Proxy) -> None:
    await black_hole(stage, proxy, 60)


@pytest.mark.on_bullmq
async def test_n3_a_worker_on_dead_sockets_is_at_work_again_in_time(
    stage: Stage, proxy: Proxy
) -> None:
    worker = stage.worker("w", url=stage.through(proxy.port))
    await stage.ready(worker)
    async with stage.queue() as queue:
        await stage.hand_in(queue, "before", {})
        await stage.until(lambda: stage.of("commit", "ok", job="before"), 5)
        # One for commands, one that blocks.
        await stage.until(lambda: len(proxy.links) >= 2, 5)
        proxy.switch("dead_old")
        await stage.hand_in(queue, "after", {})
        await stage.until(lambda: stage.of("commit", "ok", job="after"), 10, "still deaf")
    stage.check()


@pytest.mark.parametrize(
    "verb",
    [
        *("enqueue", "claim", "renew", "settle", "pause", "cancel", "remove", "reap", "get"),
        *("outlook", "claim_alone", "settle_alone"),
    ],
)
async def test_n4_a_reply_lost_after_the_command_ran_changes_nothing(
    stage: Stage, proxy: Proxy, verb: str
) -> None:
    stage.worker("w", url=stage.through(proxy.port), concurrency=3, steady=True)
    jobs = [f"j{number}" for number in range(6)]
    async with stage.queue(stage.through(proxy.port)) as queue:
        # Once round in peace, or it would be the NOSCRIPT that is cut.
        await queue.enqueue("warm", {"do": "sleep", "seconds": 0.5})
        await stage.drained(1)
        await queue.cancel("nobody")
        await queue.remove_job("nobody")
        await queue.resume()
        assert await queue.get_status("warm") is not None
        await queue.storage.wait([queue.name], 0)
        proxy.cut_reply_to(script(verb).sha.encode(), times=4)
        await queue.pause()
        for job in [*jobs, "unwanted", "useless"]:
            data = {"do": "sleep", "seconds": 0.8 if job == "j0" else 0.02}
            assert await stage.hand_in(queue, job, data) == "ok"
        answer = await queue.cancel("unwanted")
        stage.history.write("cancel", "ok", "unwanted")
        assert answer.status is Cancellation.CANCELLED
        assert await queue.storage.remove(queue.name, ["useless"]) == [Removal.REMOVED]
        stage.history.write("cancel", "ok", "useless")
        # Who is new asks by itself first, and leaves a claim with the server only then.
        stage.worker("late", url=stage.through(proxy.port), concurrency=3, steady=True)
        await queue.resume()
        await queue.storage.wait([queue.name], 0)
        await stage.drained(1 + len(jobs))
        assert await queue.enqueue_and_wait("lone", {"do": "sleep", "seconds": 0}) is not None
        assert await queue.get_status("j0") is not None
    assert proxy.cuts >= 1, "nothing was cut"
    dump = stage.check()
    assert not {"unwanted", "useless"} & dump.by_id.keys()
    for job in [*jobs, "lone"]:
        one = dump.by_id[job]
        assert (one.state, one.started, one.stalls, one.made) == ("completed", 1, 0, 1)
    assert not stage.of("lost")
    kinds = [step.kind for step in dump.trail]
    assert kinds.count("paused") == kinds.count("resumed") == 1
    assert kinds.count("added") == len(jobs) + 4
    assert kinds.count("cancelled") == kinds.count("removed") == 1
    assert kinds.count("duplicated") == 0


@pytest.mark.parametrize("verb", ["enqueue", "claim_alone", "settle_alone"])
async def test_n4_a_lone_job_outlives_a_lost_reply_without_a_stall(
    stage: Stage, proxy: Proxy, verb: str
) -> None:
    worker = stage.worker("w", url=stage.through(proxy.port), concurrency=3, steady=True)
    await stage.ready(worker)
    async with stage.queue(stage.through(proxy.port)) as queue:
        await queue.enqueue_and_wait("warm", {}, timeout=10)
        proxy.cut_reply_to(script(verb).sha.encode(), times=1)
        # One after the other: the claim that the first one meets went out before the cut.
        for number in range(3):
            await queue.enqueue_and_wait(f"lone-{number}", {}, timeout=10)
    assert proxy.cuts == 1
    found = stage.check().by_id
    for number in range(3):
        one = found[f"lone-{number}"]
        assert (one.state, one.started, one.stalls, one.made) == ("completed", 1, 0, 1)


def kill_blocked(stage: Stage, command: bytes) -> int:
    """Kill the connections that block in a command; return how many."""
    killed = 0
    for line in stage.looker.call("CLIENT", "LIST").splitlines():
        facts = dict(part.partition(b"=")[::2] for part in line.split())
        if facts[b"cmd"] == command:
            killed += int(stage.looker.call("CLIENT", "KILL", "ID", facts[b"id"]))
    return killed


@pytest.mark.parametrize("lost", [b"blmpop", b"blpop"])
async def test_n7_a_waiter_gets_its_result_though_its_connection_is_lost(
    stage: Stage, lost: bytes
) -> None:
    worker = stage.worker("w")
    await stage.ready(worker)
    killed = 0
    async with stage.queue() as queue:
        for number in range(5):
            job = f"j{number}"
            gate = stage.gate(job)
            data = {"do": "hold", "gate": str(gate)}
            stage.history.write("enqueue", "ok", job)
            waiting = asyncio.ensure_future(queue.enqueue_and_wait(job, data, timeout=10))
            await stage.started(job)
            killed += kill_blocked(stage, lost)
            gate.touch()
            killed += kill_blocked(stage, lost)
            begun = time.monotonic()
            result = await waiting
            assert time.monotonic() - begun < 2.5
            assert result["worker"]
        if lost == b"blmpop":
            assert killed
    stage.check()


async def test_n7_a_waiter_for_what_never_ends_gets_its_timeout(stage: Stage) -> None:
    async with stage.queue() as queue:
        waiting = asyncio.ensure_future(queue.enqueue_and_wait("j", {}, timeout=2))
        begun = time.monotonic()
        while not waiting.done():
            kill_blocked(stage, b"blmpop")
            await asyncio.wait([waiting], timeout=0.1)
        with pytest.raises(WaitTimeout):
            await waiting
        assert 1.9 <= time.monotonic() - begun < 4
    stage.check(drained=False)


async def test_n7_a_waiter_whose_server_is_away_gets_its_timeout(
    stage: Stage, server: Server
) -> None:
    async with stage.queue() as queue:
        await stage.hand_in(queue, "j", {})
        begun = time.monotonic()
        waiting = asyncio.ensure_future(queue.wait_until_finished("j", timeout=2))
        await asyncio.sleep(0)
        server.kill()
        with pytest.raises(WaitTimeout):
            await waiting
        assert time.monotonic() - begun < 4
