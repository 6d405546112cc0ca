"""Many processes on one file storage: wake-ups, the write lock, forks."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toril.errors import StorageError, StorageUnavailable
from toril.event import Cursor
from toril.job import JobSpec, State, Terms
from toril.outcome import Completed
from toril.storage.file import FileStorage
from toril.storage.file import notify as notify_module
from toril.storage.file.bells import Bells, News, Waker
from toril.storage.file.notify import Listener, Toucher
from toril.storage.protocol import Claim

ROOT = Path(__file__).parents[2]
WISH = Claim(token="here", worker_id="h", count=9, lease_ms=60_000)


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[FileStorage]:
    opened = FileStorage(tmp_path / "store")
    await opened.open()
    yield opened
    await opened.close()


class Neighbour:
    """A process of `tests.file.neighbour`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the neighbour died"
        said: dict[str, Any] = json.loads(line)
        return said


@contextmanager
def neighbour(verb: str, storage: FileStorage) -> Iterator[Neighbour]:
    command = [sys.executable, "-m", "tests.file.neighbour", verb, str(storage.address.directory)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            said = Neighbour(process)
            assert said.hear() == {"ready": True}
            yield said
        finally:
            process.kill()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify is of Linux")
@pytest.mark.parametrize("verb", ["wait", "events", "finished"])
async def test_a_process_that_never_polls_hears_of_news_elsewhere(
    verb: str, storage: FileStorage
) -> None:
    if verb == "finished":
        await storage.enqueue("q", [JobSpec(id="a", reply=True)])
    with neighbour(verb, storage) as other:
        # Its next look of its own is an hour away: what it sees, it was told.
        if verb == "finished":
            (job,) = (await storage.claim("q", WISH)).jobs
            await storage.settle("q", [Completed(lease=job.lease, result=b"1")])
        else:
            await storage.enqueue("q", [JobSpec(id="a")])
        said = await asyncio.to_thread(other.hear)
    assert set(said["ids"]) == {"a"}


async def test_a_wake_up_that_comes_before_the_look_is_not_lost(storage: FileStorage) -> None:
    other = FileStorage(storage.address.directory, poll=3600)
    await other.open()
    for number in range(50):
        waiting = asyncio.ensure_future(other.wait(["q"], 600_000))
        await storage.enqueue("q", [JobSpec(id=f"job-{number}")])
        await asyncio.wait_for(waiting, 30)
        wish = replace(WISH, token=f"token-{number}")
        assert [job.spec.id for job in (await other.claim("q", wish)).jobs] == [f"job-{number}"]
    await other.close()


async def test_without_the_kernel_touches_are_seen_by_their_times(tmp_path: Path) -> None:
    bells = Bells()
    listener = Listener(tmp_path, bells, 3600, inotify=False)
    toucher = Toucher(tmp_path)
    try:
        assert not listener.told_by_kernel
        waker = Waker()
        bells.add(["q"], News.WORK, waker)
        listener.arm()
        for _ in range(3):
            toucher.touch("q", News.WORK)
            await asyncio.wait_for(waker.future, 30)
            waker.rearm()
        bells.discard(["q"], News.WORK, waker)
    finally:
        listener.stop()
        toucher.close()


@pytest.mark.parametrize("inotify", [True, False])
async def test_behind_the_touches_stands_a_slow_look(inotify: bool, tmp_path: Path) -> None:
    bells = Bells()
    listener = Listener(tmp_path, bells, 0.05, inotify=inotify)
    try:
        waker = Waker()
        bells.add(["q"], News.WORK, waker)
        listener.arm()
        await asyncio.wait_for(waker.future, 30)
    finally:
        listener.stop()


async def test_a_touch_that_fails_harms_nobody(storage: FileStorage, tmp_path: Path) -> None:
    notify = storage.address.directory / "notify"
    for path in notify.iterdir():
        path.unlink()
    notify.rmdir()
    await storage.enqueue("q", [JobSpec(id="a")])
    assert (await storage.counts("q")).waiting == 1


def _open_below(directory: Path) -> int:
    links = [link for link in Path("/proc/self/fd").iterdir() if link.exists()]
    return sum(directory in link.readlink().parents for link in links)


async def test_many_queues_hold_few_files_open(
    storage: FileStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify_module, "_OPEN", 4)
    for number in range(20):
        await storage.enqueue(f"q{number}", [JobSpec(id="a")])
    assert _open_below(storage.address.directory / "notify") <= 4


async def test_a_lock_held_by_another_process_is_a_clear_error_in_time(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path / "store", timeout=0.2)
    await storage.open()
    with neighbour("hold", storage) as other:
        with pytest.raises(StorageUnavailable, match=r"write lock for more than 0\.2 s"):
            await storage.enqueue("q", [JobSpec(id="a")])
        assert (await storage.counts("q")).total == 0, "reading needs no lock"
        assert other.process.stdin is not None
        other.process.stdin.close()
        other.process.wait(30)
    (receipt,) = await storage.enqueue("q", [JobSpec(id="a")])
    assert receipt.created
    await storage.close()


async def test_a_forked_child_is_told_to_open_its_own(storage: FileStorage) -> None:
    await storage.enqueue("q", [JobSpec(id="a")])
    child = os.fork()
    if child == 0:  # no test framework here: only the exit code speaks
        code = 9
        try:
            storage.heartbeat()
        except StorageError as error:
            code = 0 if "does not survive a fork" in str(error) else 8
        os._exit(code)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert (await storage.counts("q")).waiting == 1


async def test_a_storage_made_before_a_fork_may_be_opened_after_it(tmp_path: Path) -> None:
    code = (
        "import asyncio, os, sys\n"
        "from toril import FileStorage\n"
        "from toril.job import JobSpec\n"
        "storage = FileStorage(sys.argv[1])\n"
        "async def put(name):\n"
        "    await storage.open()\n"
        "    await storage.enqueue('q', [JobSpec(id=name)])\n"
        "    await storage.close()\n"
        "child = os.fork()\n"
        "asyncio.run(put('child' if child == 0 else 'parent'))\n"
        "if child: sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code, str(tmp_path / "store")], check=True
    )
    storage = FileStorage(tmp_path / "store")
    await storage.open()
    ids = {one.spec.id for one in await storage.peek("q", State.WAITING, 0, 9)}
    await storage.close()
    assert ids == {"child", "parent"}


async def test_two_storages_of_one_process_share_a_directory(storage: FileStorage) -> None:
    # The second one's checks must not drop the locks of the first.
    for number in range(3):
        second = FileStorage(storage.address.directory)
        await second.open()
        await second.enqueue("q", [JobSpec(id=f"second-{number}")])
        await second.close()
        await storage.enqueue("q", [JobSpec(id=f"first-{number}")])
    with neighbour("wait", storage):
        pass
    await storage.enqueue("q", [JobSpec(id="last")])
    assert (await storage.counts("q")).waiting + (await storage.counts("q")).active == 7


async def test_callers_share_a_commit_and_an_error_stays_with_its_call(
    storage: FileStorage,
) -> None:
    assert storage._desk is not None
    statements: list[str] = []
    storage._desk.writer._db.set_trace_callback(statements.append)
    good = [storage.enqueue("q", [JobSpec(id=f"job-{number}")]) for number in range(40)]
    bad = [
        storage.enqueue("q", [JobSpec(id=f"bad-{number}", payload=None)])  # type: ignore[arg-type]
        for number in range(3)
    ]
    answers = await asyncio.gather(*good[:20], *bad, *good[20:], return_exceptions=True)
    errors = [one for one in answers if isinstance(one, BaseException)]
    assert len(errors) == 3
    assert all(isinstance(one, StorageError) for one in errors)
    assert statements.count("COMMIT") <= 20, "43 calls were to share their commits"
    assert (await storage.counts("q")).waiting == 40
    assert await storage.cursor("q") == Cursor(80)
    assert [one.spec.id for one in await storage.peek("q", State.WAITING, 0, 99)] == [
        f"job-{number}" for number in range(40)
    ]


async def test_what_is_past_its_time_is_deleted_without_anybody_asking(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path / "store")
    await storage.open()
    terms = Terms(result_ttl_ms=1)
    await storage.enqueue("q", [JobSpec(id=f"job-{number}", terms=terms) for number in range(2500)])
    jobs = (await storage.claim("q", replace(WISH, count=2500))).jobs
    await storage.settle("q", [Completed(lease=job.lease, result=b"1") for job in jobs])
    await storage.close()
    await storage.open()  # the cleaner begins with its first idle moment

    def rows() -> int:
        db = sqlite3.connect(tmp_path / "store" / "toril.db")
        try:
            found: int = db.execute("SELECT count(*) FROM jobs").fetchone()[0]
            return found
        finally:
            db.close()

    while await asyncio.to_thread(rows):  # noqa: ASYNC110 - another thread deletes them
        await asyncio.sleep(0.01)
    assert (await storage.counts("q")).total == 0
    await storage.close()
