"""Processes on a file storage that are killed at random points; `reliability.md` 4.3."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.faults.nemesis import Nemesis, pick_seed
from tests.faults.stage import Program, Stage
from toril.storage.file import FileStorage

WORKERS = 4


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A stage on a directory of its own."""
    stage = Stage(tmp_path, FileStorage(tmp_path / "store").url)
    yield stage
    stage.close()


class Crowd:
    """Workers that are replaced when they are killed."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._born = 0
        self.killed = 0
        self.workers = [self._new() for _ in range(WORKERS)]

    def _new(self) -> Program:
        self._born += 1
        return self._stage.worker(f"w{self._born}", concurrency=4)

    def kill(self, chance: random.Random) -> None:
        """Kill one of them, in whatever it is doing."""
        at = chance.randrange(WORKERS)
        self.workers[at].process.kill()
        self.killed += 1
        self.workers[at] = self._new()


async def massacre(stage: Stage, jobs: int, kills: int, seed: int) -> None:
    crowd = Crowd(stage)
    await stage.ready(*crowd.workers)
    half = jobs // 2
    producers = [
        stage.producer("good", count=half, at_once=20, gap=0.02),
        stage.producer(
            *("bad",), count=half, at_once=20, gap=0.02, data={"do": "fail"},
            options={"attempts": 2, "backoff": 0.05},
        ),
    ]  # fmt: skip
    nemesis = Nemesis(stage.history, seed, {"kill worker": crowd.kill})
    await nemesis.run(kills, (0.05, 0.4))
    for producer in producers:
        assert await stage.ended(producer, 300) == 0, producer.output
    assert len(stage.of("enqueue", "ok")) == jobs
    await stage.drained(jobs, 120)
    dump = stage.check()
    ends = [step for step in dump.trail if step.kind in ("completed", "failed")]
    assert len(ends) == len({step.job for step in ends}) == jobs
    stalls = sum(job.stalls for job in dump.jobs)
    print(f"{jobs} jobs, {crowd.killed} kills, {stalls} stalls, 0 lost, 0 ended twice")
    # Each worker may have four jobs in hand, and four more granted with its last commit.
    assert stalls <= 8 * crowd.killed


async def test_workers_killed_at_random_points_lose_nothing_and_end_nothing_twice(
    stage: Stage,
) -> None:
    await massacre(stage, 1_500, 12, pick_seed(5))


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_workers_killed_over_twenty_thousand_jobs_lose_nothing(stage: Stage) -> None:
    await massacre(stage, 20_000, 250, pick_seed(6))


def _handed_in(stage: Stage, name: str, count: int) -> bool:
    return len(stage.of("enqueue", "ok", proc=name)) >= count


async def test_a_producer_killed_while_it_hands_in_leaves_whole_jobs_only(stage: Stage) -> None:
    workers = [stage.worker("w1", concurrency=4)]
    await stage.ready(*workers)
    for number in range(6):
        producer = stage.producer(f"p{number}", count=5_000, at_once=10)
        await stage.until(partial(_handed_in, stage, f"p{number}", 40), 30)
        producer.process.kill()
        producer.process.wait()
    acked = len(stage.of("enqueue", "ok"))
    await stage.drained(acked, 60)
    dump = stage.check()
    assert len(dump.jobs) >= acked
