"""Disks that are full, fail or tear; `reliability.md` D2-D6.

The shim fails or kills at each system call on the database, one run of a program per call.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.file.life import QUEUE, WISH
from toril.event import Cursor, EventKind
from toril.job import JobSpec, State
from toril.outcome import DONE, Completed
from toril.storage.file import FileStorage
from toril.storage.protocol import Claim, Receipt

ROOT = Path(__file__).parents[2]
STEPS = ("enqueue", "claim", "settle")
BEFORE = {"enqueue": None, "claim": State.WAITING, "settle": State.ACTIVE}
AFTER = {"enqueue": State.WAITING, "claim": State.ACTIVE, "settle": State.COMPLETED}
KILL = 1
MOST_CALLS = 40


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shim, compiled; without a compiler these tests cannot run."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler, on Linux")
    library = tmp_path_factory.mktemp("shim") / "shim.so"
    source = Path(__file__).with_name("shim.c")
    options = ("-shared", "-fPIC", "-O1", "-D_FILE_OFFSET_BITS=64", "-U_FILE_OFFSET_BITS")
    subprocess.run([compiler, *options, "-o", library, source, "-ldl"], check=True)
    return library


class Trial:
    """One run of the program."""

    def __init__(self, shim: Path, directory: Path, step: str, number: int, action: int) -> None:
        self.directory = directory
        self.run = subprocess.run(
            [sys.executable, "-m", "tests.file.life", directory, step, str(number), str(action)],
            cwd=ROOT,
            env={**os.environ, "LD_PRELOAD": str(shim)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.said = [json.loads(line) for line in self.run.stdout.splitlines()]

    @property
    def killed(self) -> bool:
        return self.run.returncode == -signal.SIGKILL


def calls_of(shim: Path, folder: Path, step: str) -> str:
    """The calls a step makes when nothing is wrong."""
    trial = Trial(shim, folder / f"dry-{step}", step, MOST_CALLS, 0)
    assert trial.said, trial.run.stderr
    return str(trial.said[0]["calls"])


async def state_in(directory: Path) -> State | None:
    """Look from another process's point of view."""
    storage = FileStorage(directory)
    await storage.open()
    (record,) = await storage.get(QUEUE, ["a"])
    await storage.close()
    return None if record is None else record.state


async def finish(directory: Path) -> list[EventKind]:
    """Lead the job to its end, whatever was before, and return its events."""
    storage = FileStorage(directory)
    await storage.open()
    await storage.enqueue(QUEUE, [JobSpec(id="a", payload=b'"data"', origin="o1")])
    batch = await storage.claim(QUEUE, WISH)
    if not batch.jobs:  # claimed by the one that died; known again by its token
        batch = await storage.claim(QUEUE, WISH)
    for job in batch.jobs:
        assert job.spec.payload == b'"data"'
        outcome = Completed(lease=job.lease, result=b'"done"')
        assert (await storage.settle(QUEUE, [outcome])).answers == [DONE]
    (record,) = await storage.get(QUEUE, ["a"])
    assert record is not None
    assert (record.state, record.result) == (State.COMPLETED, b'"done"')
    kinds = [event.kind for event in await storage.events(QUEUE, Cursor.START)]
    await storage.close()
    return kinds


@pytest.mark.timeout(300)
@pytest.mark.parametrize("step", STEPS)
async def test_d2_a_full_disk_at_any_call_changes_nothing_and_the_next_try_works(
    step: str, shim: Path, tmp_path: Path
) -> None:
    calls = calls_of(shim, tmp_path, step)
    writes = [number for number, call in enumerate(calls, 1) if call in "wWtT"]
    assert writes, calls
    for number in writes:
        trial = Trial(shim, tmp_path / f"{step}-{number}", step, number, errno.ENOSPC)
        assert trial.said[0]["error"].startswith("StorageFull"), trial.said
        assert "nothing was written" in trial.said[0]["error"]
        assert trial.said[1]["error"] == "", "it did not recover when there was space again"
        assert await state_in(trial.directory) is AFTER[step]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("step", STEPS)
async def test_d4_a_death_at_any_call_loses_nothing_and_ends_nothing_twice(
    step: str, shim: Path, tmp_path: Path
) -> None:
    calls = calls_of(shim, tmp_path, step)
    for number in range(1, len(calls) + 1):
        trial = Trial(shim, tmp_path / f"{step}-{number}", step, number, KILL)
        assert trial.killed, trial.run.stderr
        assert not trial.said, "it acknowledged what it had not finished"
        assert await state_in(trial.directory) in (BEFORE[step], AFTER[step])
        kinds = await finish(trial.directory)
        assert kinds.count(EventKind.ADDED) == kinds.count(EventKind.COMPLETED) == 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize("step", STEPS)
async def test_d6_a_failed_sync_is_not_tried_again(step: str, shim: Path, tmp_path: Path) -> None:
    calls = calls_of(shim, tmp_path, step)
    syncs = [number for number, call in enumerate(calls, 1) if call in "sS"]
    assert syncs, f"durability is local, and nothing was synced: {calls}"
    for number in syncs:
        trial = Trial(shim, tmp_path / f"{step}-{number}", step, number, errno.EIO)
        first, second = (said["error"] for said in trial.said)
        assert "the disk failed" in first
        assert second == first, "it went on as if the disk could be trusted"
        assert await state_in(trial.directory) in (BEFORE[step], AFTER[step])
        kinds = await finish(trial.directory)
        assert kinds.count(EventKind.COMPLETED) == 1


@pytest.mark.parametrize("step", STEPS)
def test_d5_an_answer_comes_after_its_last_write_was_synced(
    step: str, shim: Path, tmp_path: Path
) -> None:
    calls = calls_of(shim, tmp_path, step)
    assert "W" in calls
    assert calls.endswith("S"), f"written and not synced: {calls}"


def _copies(source: Path, target: Path) -> None:
    target.mkdir(mode=0o700)
    for name in ("toril.db", "toril.db-wal"):
        shutil.copy(source / name, target / name)
        (target / name).chmod(0o600)


@pytest.mark.timeout(300)
async def test_d3_a_log_torn_at_any_place_opens_with_whole_jobs_only(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    storage = FileStorage(whole)
    await storage.open()
    ids = [f"job-{number}" for number in range(6)]
    for job_id in ids:
        (receipt,) = await storage.enqueue("q", [JobSpec(id=job_id, payload=b'"whole"')])
        assert receipt == Receipt(id=job_id, created=True, state=State.WAITING)
    torn = tmp_path / "torn"
    _copies(whole, torn)
    await storage.close()
    log = (torn / "toril.db-wal").read_bytes()
    frame, head = 4096 + 24, 32
    edges = {head + frame * number + off for number in range(1000) for off in (-1, 0, 1, 24)}
    places = sorted(set(range(0, len(log), 509)) | {at for at in edges if 0 <= at <= len(log)})
    seen = set()
    for at in places:
        copy = tmp_path / f"at-{at}"
        _copies(torn, copy)
        os.truncate(copy / "toril.db-wal", at)
        reopened = FileStorage(copy, durability="memory")
        await reopened.open()
        records = await reopened.peek("q", State.WAITING, 0, 99)
        assert [one.spec.id for one in records] == ids[: len(records)], f"torn at {at}"
        assert all(one.spec.payload == b'"whole"' for one in records)
        counts = await reopened.counts("q")
        last = await reopened.cursor("q")
        assert (counts.waiting, last) == (len(records), Cursor(2 * len(records)))
        await reopened.close()
        shutil.rmtree(copy)
        seen.add(len(records))
    assert seen == set(range(7)), "the tears did not reach every commit"


async def test_a_death_in_the_middle_of_a_checkpoint_does_not_make_a_store_look_broken(
    tmp_path: Path,
) -> None:
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    storage = FileStorage(whole)
    await storage.open()
    await storage.enqueue("q", [JobSpec(id=f"job-{number}") for number in range(300)])
    _copies(whole, torn)
    await storage.close()  # checkpoints: page 1 now tells of pages that the copy has in its log
    with (whole / "toril.db").open("rb") as after, (torn / "toril.db").open("r+b") as half:
        half.write(after.read(4096))
    assert (torn / "toril.db").stat().st_size < (whole / "toril.db").stat().st_size
    reopened = FileStorage(torn)
    await reopened.open()
    assert (await reopened.counts("q")).waiting == 300
    await reopened.close()


async def test_a_record_with_unreadable_options_fails_its_job_and_no_other(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path / "store")
    await storage.open()
    await storage.enqueue("q", [JobSpec(id=one) for one in "abc"])
    await storage.close()
    with sqlite3.connect(tmp_path / "store" / "toril.db") as db:
        db.execute("UPDATE jobs SET terms = 'garbage' WHERE id = 'b'")
    db.close()
    await storage.open()
    wish = Claim(token="t", worker_id="w", count=3, lease_ms=1_000)
    jobs = (await storage.claim("q", wish)).jobs
    assert [job.spec.id for job in jobs] == ["a", "b", "c"]
    assert [job.doom is not None for job in jobs] == [False, True, False]
    assert "unreadable" in str(jobs[1].doom)
    await storage.close()
