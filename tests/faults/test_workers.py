"""Workers that die, freeze or share a name; `reliability.md` W1-W4, W8, W9."""

from __future__ import annotations

import asyncio
import signal
import time
from functools import partial

import pytest

from tests.faults.stage import LEASE_S, REAP_S, Stage

RESTART_S = LEASE_S + 2 * REAP_S + 1


async def kill_mid_job(stage: Stage, job: str, number: int) -> float:
    """W1 once: returns how long the job waited for its second start."""
    first = stage.worker(f"a{number}")
    await stage.ready(first)
    async with stage.queue() as queue:
        await stage.hand_in(queue, job, stage.hold(job))
    await stage.started(job)
    second = stage.worker(f"b{number}")
    await stage.ready(second)
    first.process.kill()
    died = time.monotonic()
    again = await stage.started(job, times=2, seconds=RESTART_S + 5)
    stage.gate(job).touch()
    await stage.until(lambda: stage.of("commit", "ok", job=job), 5)
    second.end()
    return again.t_mono - died


@pytest.mark.on_bullmq
async def test_w1_a_killed_workers_job_restarts_in_time(stage: Stage) -> None:
    assert await kill_mid_job(stage, "j", 1) <= RESTART_S
    job = stage.check().by_id["j"]
    assert (job.state, job.stalls, job.made, job.started) == ("completed", 1, 1, 2)
    assert len(stage.of("run", "invoke", job="j")) == 2
    assert [one.attempt for one in stage.of("run", "invoke", job="j")] == [1, 1]


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_w1_fifty_times(stage: Stage) -> None:
    waits = [await kill_mid_job(stage, f"j{number}", number) for number in range(50)]
    print(f"restart after kill -9: max {max(waits):.2f} s")
    assert max(waits) <= RESTART_S
    assert all(job.stalls == 1 for job in stage.check().jobs)


@pytest.mark.on_bullmq
async def test_w2_a_death_before_the_commit_runs_the_job_again_and_ends_it_once(
    stage: Stage,
) -> None:
    dying = stage.worker("dying", env={"TORIL_FAIL": "before_commit:kill"})
    async with stage.queue() as queue:
        await stage.hand_in(queue, "j", {})
    await stage.until(lambda: not dying.alive, 10, "the failpoint did not kill")
    assert dying.process.returncode == -signal.SIGKILL
    stage.worker("heir")
    await stage.drained(1)
    job = stage.check().by_id["j"]
    assert (job.state, job.stalls, job.started) == ("completed", 1, 2)
    assert len(stage.of("run", "ok", job="j")) == 2
    assert isinstance(job.result, dict)
    assert job.result["proc"] == "heir"


@pytest.mark.on_bullmq
async def test_w3_a_death_after_the_commit_runs_nothing_again(stage: Stage) -> None:
    dying = stage.worker("dying", env={"TORIL_FAIL": "after_send:kill"})
    async with stage.queue() as queue:
        await stage.hand_in(queue, "j", {})
        await stage.until(lambda: not dying.alive, 10, "the failpoint did not kill")
        stage.worker("heir")
        await stage.hand_in(queue, "k", {"do": "sleep", "seconds": LEASE_S + 2 * REAP_S})
        await stage.drained(2)
    dump = stage.check()
    assert [dump.by_id[job].started for job in "jk"] == [1, 1]
    assert len(stage.of("run", "invoke", job="j")) == 1


@pytest.mark.on_bullmq
async def test_w3_with_a_refill_the_jobs_it_claimed_are_not_lost(stage: Stage) -> None:
    async with stage.queue() as queue:
        for job in "abc":
            await stage.hand_in(queue, job, {})
    dying = stage.worker("dying", env={"TORIL_FAIL": "after_send:kill"})
    await stage.until(lambda: not dying.alive, 10, "the failpoint did not kill")
    stage.worker("heir")
    await stage.drained(3)
    dump = stage.check()
    assert dump.by_id["a"].started == 1
    assert dump.by_id["b"].stalls == 1  # granted with the commit, to one who died


@pytest.mark.on_bullmq
async def test_w4_a_zombie_overwrites_nothing_and_goes_on(stage: Stage) -> None:
    zombie = stage.worker("zombie")
    async with stage.queue() as queue:
        data = {"do": "progress", "gate": str(stage.gate("all"))}
        await stage.hand_in(queue, "j", data)
        await stage.started("j")
        zombie.signal(signal.SIGSTOP)
        heir = stage.worker("heir")
        second = await stage.started("j", times=2, seconds=RESTART_S + 5)
        assert second.proc == "heir"
        stage.gate("all").touch()
        await stage.until(lambda: stage.of("commit", "ok", job="j", proc="heir"), 5)
        heir.signal(signal.SIGTERM)
        await stage.until(lambda: not heir.alive, 10)
        zombie.signal(signal.SIGCONT)
        await stage.until(lambda: stage.of("lost", job="j", proc="zombie"), 5)
        await stage.hand_in(queue, "k", {})
        await stage.until(lambda: stage.of("commit", "ok", job="k", proc="zombie"), 5)
    dump = stage.check()
    job = dump.by_id["j"]
    assert isinstance(job.result, dict)
    assert isinstance(job.progress, dict)
    assert job.result["proc"] == "heir"
    assert job.progress["token"] == second.token
    assert len(stage.of("lost", job="j")) == 1
    assert not stage.of("commit", job="j", proc="zombie")


@pytest.mark.on_bullmq
async def test_w4_a_zombie_frozen_at_its_commit_is_refused_by_the_server(stage: Stage) -> None:
    zombie = stage.worker("zombie", env={"TORIL_FAIL": "before_commit:stop"})
    async with stage.queue() as queue:
        await stage.hand_in(queue, "j", {})
        await stage.until(lambda: stage.of("run", "ok", job="j", proc="zombie"), 10)
        stage.worker("heir")
        await stage.until(
            lambda: stage.of("commit", "ok", job="j", proc="heir"), RESTART_S + 5, "no heir"
        )
        zombie.signal(signal.SIGCONT)
        await stage.until(lambda: stage.of("lost", job="j", proc="zombie"), 5)
        await stage.hand_in(queue, "k", {})
        await stage.drained(2)
    job = stage.check().by_id["j"]
    assert isinstance(job.result, dict)
    assert job.result["proc"] == "heir"


async def test_w8_two_workers_of_one_id_share_no_job(stage: Stage) -> None:
    for name in ("twin-a", "twin-b"):
        stage.worker(name, worker_id="same", concurrency=4, lease=3)
    async with stage.queue() as queue:
        for number in range(100):
            await stage.hand_in(queue, f"j{number}", {"do": "sleep", "seconds": 0.01})
        await stage.drained(100)
        # One of them dies: its job comes back, the other's stays where it is.
        holds = {}
        for job in ("x", "y"):
            await stage.hand_in(queue, job, {"do": "hold", "gate": str(stage.gate(job))})
            holds[job] = await stage.started(job)
    stage.programs[0].process.kill()
    mine = [job for job, start in holds.items() if start.proc == stage.programs[0].name]
    for job in mine:
        await stage.started(job, times=2)
    for job in holds:
        stage.gate(job).touch()
    await stage.drained(102)
    dump = stage.check()
    assert sum(job.stalls for job in dump.jobs) == len(mine)
    assert len(stage.of("run", "invoke")) == 102 + len(mine)


async def test_w8_a_worker_that_signs_off_takes_nothing_from_its_namesake(stage: Stage) -> None:
    first = stage.worker("first", worker_id="same", steady=True)
    async with stage.queue() as queue:
        await stage.hand_in(queue, "j", stage.hold())
        await stage.started("j")
        second = stage.worker("second", worker_id="same")
        await stage.ready(second)
        second.signal(signal.SIGTERM)
        assert await stage.ended(second) == 0
        # The next renewal enters the other one again.
        listed = partial(queue.storage.workers, queue.name)
        deadline = time.monotonic() + 2 * LEASE_S
        while [(one.id, one.active) for one in await listed()] != [("same", 1)]:
            assert time.monotonic() < deadline, "not in the list of workers"
            await asyncio.sleep(0.02)
        stage.gate("all").touch()
        await stage.committed("j", proc="first")
    assert first.alive
    assert [(job.started, job.stalls) for job in stage.check().jobs] == [(1, 0)]


async def restarts_under_load(stage: Stage, restarts: int) -> None:
    """W9: workers come and go while others work on jobs longer than a reap interval."""
    steady = stage.worker("steady", concurrency=4, reap_interval=0.2, lease=3)
    await stage.ready(steady)
    jobs = [f"j{number}" for number in range(4)]
    async with stage.queue() as queue:
        for job in jobs:
            await stage.hand_in(queue, job, stage.hold())
        for job in jobs:
            await stage.started(job)
        for number in range(restarts):
            passing = stage.worker(f"passing-{number}", reap_interval=0.2)
            await stage.ready(passing)
            await stage.hand_in(queue, f"k{number}", {})
            await stage.committed(f"k{number}")
            passing.signal(signal.SIGTERM)
            await stage.ended(passing)
    stage.gate("all").touch()
    await stage.drained(len(jobs) + restarts)
    dump = stage.check()
    assert all(job.started == 1 and job.stalls == 0 for job in dump.jobs)
    assert len(stage.of("run", "invoke")) == len(jobs) + restarts


async def test_w9_restarts_never_requeue_a_healthy_job(stage: Stage) -> None:
    await restarts_under_load(stage, 6)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_w9_two_hundred_restarts(stage: Stage) -> None:
    await restarts_under_load(stage, 200)
