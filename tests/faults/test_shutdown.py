"""Workers that are told to stop, kindly and less kindly; `reliability.md` X1-X5."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.faults.stage import SHORT, Stage
from tests.servers import Server
from toril import Worker


@pytest.mark.on_bullmq
async def test_x1_jobs_shorter_than_the_grace_finish_and_no_new_one_starts(stage: Stage) -> None:
    worker = stage.worker("w", concurrency=4, shutdown_timeout=10, steady=True)
    async with stage.queue() as queue:
        for number in range(12):
            await stage.hand_in(queue, f"j{number:02}", stage.hold())
        await stage.started("j03")
    worker.signal(signal.SIGTERM)
    await stage.until(lambda: _said(stage, "stopping"), 5)
    stage.gate("all").touch()
    assert await stage.ended(worker, 8) == 0
    dump = stage.check(drained=False)
    states = [dump.by_id[f"j{number:02}"].state for number in range(12)]
    assert states == ["completed"] * 4 + ["waiting"] * 8
    assert len(stage.of("run", "invoke")) == 4
    assert dump.by_id["j04"].started == 0
    stage.worker("next", concurrency=4, steady=True)
    await stage.drained(12)
    assert all(job.started == 1 for job in stage.check().jobs)


@pytest.mark.on_bullmq
async def test_x2_a_job_longer_than_the_grace_goes_back_to_the_front_at_once(
    stage: Stage,
) -> None:
    worker = stage.worker("w", shutdown_timeout=0.5, lease=30)
    async with stage.queue() as queue:
        for job in ("long", "waiting"):
            await stage.hand_in(queue, job, stage.hold())
        await stage.started("long")
    other = stage.worker("other", lease=30)
    await stage.ready(other)
    await stage.started("waiting")
    worker.signal(signal.SIGTERM)
    asked = time.monotonic()
    assert await stage.ended(worker, 5) == 0
    assert time.monotonic() - asked < 2
    returned = stage.looker.dump().by_id["long"]
    assert (returned.state, returned.stalls, returned.made) == ("waiting", 0, 0)
    stage.gate("all").touch()
    again = await stage.started("long", times=2)
    assert again.t_mono - asked < 5
    await stage.drained(2)
    ended = stage.check().by_id["long"]
    assert (ended.stalls, ended.made, ended.started) == (0, 1, 2)


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.on_bullmq
async def test_x3_a_second_signal_hands_back_and_ends_at_once(
    stage: Stage, second: signal.Signals
) -> None:
    worker = stage.worker("w", concurrency=2, shutdown_timeout=60, lease=30)
    async with stage.queue() as queue:
        for job in ("a", "b"):
            await stage.hand_in(queue, job, stage.hold())
            await stage.started(job)
    worker.signal(signal.SIGTERM)
    await stage.until(lambda: _said(stage, "stopping"), 5)
    assert worker.alive
    worker.signal(second)
    asked = time.monotonic()
    assert await stage.ended(worker, 5) == 0
    took = time.monotonic() - asked
    print(f"ended after {took:.2f} s, {_stopped_after(stage, signals=2):.2f} s of it the worker")
    assert took <= 1
    dump = stage.check(drained=False)
    assert [dump.by_id[job].state for job in "ab"] == ["waiting", "waiting"]
    assert [dump.by_id[job].stalls for job in "ab"] == [0, 0]


@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_x4_stopping_while_the_server_is_away_does_not_hang(
    stage: Stage, server: Server, how: str
) -> None:
    grace = 3.0
    worker = stage.worker("w", concurrency=2, shutdown_timeout=grace)
    async with stage.queue() as queue:
        await stage.hand_in(queue, "j", stage.hold())
        await stage.started("j")
    if how == "killed":
        server.kill()
    else:
        server.signal(signal.SIGSTOP)
    worker.signal(signal.SIGTERM)
    asked = time.monotonic()
    await stage.ended(worker, 20)
    took, own = time.monotonic() - asked, _stopped_after(stage, signals=1)
    print(f"ended after {took:.2f} s of a grace of {grace:g} s, {own:.2f} s of it the worker")
    # What is left is the end of the process itself.
    assert took <= grace + 0.5
    assert "Traceback" not in worker.output
    if how == "frozen":
        server.signal(signal.SIGCONT)


async def test_x5_cancelling_run_hands_back_and_leaves_nothing_behind(stage: Stage) -> None:
    async def hold(_job: object) -> None:
        await asyncio.Event().wait()

    before = _holdings()
    async with stage.queue() as queue:
        worker = Worker(queue, hold, concurrency=3, **SHORT)  # type: ignore[arg-type]
        running = asyncio.ensure_future(worker.run())
        for job in ("a", "b", "c"):
            await stage.hand_in(queue, job, {})
        await stage.until(lambda: worker.active == 3, 5)
        running.cancel()
        asked = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert time.monotonic() - asked < 1
        dump = stage.check(drained=False)
    assert all((job.state, job.stalls) == ("waiting", 0) for job in dump.jobs)
    stage.looker.close()
    await stage.until(lambda: _holdings() == before, 3, f"{_holdings()} left of {before}")


def _holdings() -> tuple[int, int, int]:
    """Count tasks, threads of ours and sockets."""
    threads = sum(one.name.startswith("toril-") for one in threading.enumerate())
    links = [one.readlink() for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    return len(asyncio.all_tasks()), threads, sum("socket" in str(link) for link in links)


def _stopped_after(stage: Stage, *, signals: int) -> float:
    """Seconds from the last signal to the end of the worker; its process ends after it."""
    asked, ended = stage.of("signal", proc="w"), stage.of("worker", proc="w")[-1]
    assert len(asked) == signals
    assert ended.phase != "invoke", "it did not come to its end"
    return ended.t_mono - asked[-1].t_mono


def _said(stage: Stage, event: str) -> bool:
    return any(one.data.get("event") == event for one in stage.of("log"))
