"""One queue in many threads, and how its own thread comes and goes."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.servers import Server
from tests.sync.conftest import AnyQueue, Context, Place, private_home, sync_threads
from toril import (
    InvalidOption,
    MemoryStorage,
    StorageClosed,
    StorageUnavailable,
    SyncQueue,
    TorilError,
)
from toril.ids import ulid


def until(holds: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for something to hold, not for a time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not so within {seconds} s"
        time.sleep(0.001)


def square(job: Context) -> Any:
    return job.data**2


def test_many_threads_share_one_queue(place: Place) -> None:
    place.work(square, concurrency=8)
    queue = place.queue()

    def ask(n: int) -> Any:
        return queue.enqueue_and_wait(f"job-{n}", n)

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, range(200))) == [n**2 for n in range(200)]
    assert sync_threads() == ["toril-sync-jobs"]


def test_nothing_starts_before_the_first_call() -> None:
    queue: AnyQueue = SyncQueue("jobs", "memory:")
    assert repr(queue) == "<SyncQueue 'jobs' on memory:>"
    assert queue.name == "jobs"
    assert sync_threads() == []
    queue.close()


def test_what_a_queue_refuses_is_refused_when_it_is_made() -> None:
    with pytest.raises(InvalidOption):
        SyncQueue("jobs", "redus://host")


def test_with_opens_at_once_and_closes(place: Place) -> None:
    with place.queue() as queue:
        queue.enqueue("job-1", 1)
        assert sync_threads() == ["toril-sync-jobs"]
    assert sync_threads() == []


def test_a_server_that_is_away_is_an_error_and_no_thread_is_left() -> None:
    queue: AnyQueue = SyncQueue("jobs", "redis://127.0.0.1:1?timeout=0.2")
    with pytest.raises(StorageUnavailable):
        queue.enqueue("job-1", 1)
    queue.close()
    assert sync_threads() == []


def test_a_closed_queue_refuses_and_closes_again(place: Place) -> None:
    queue = place.queue()
    queue.enqueue("job-1", 1)
    queue.close()
    queue.close()
    with pytest.raises(StorageClosed, match="make another SyncQueue"):
        queue.enqueue("job-2", 1)
    assert sync_threads() == []


def test_closing_ends_the_waits_of_other_threads(place: Place) -> None:
    queue = place.queue()
    queue.enqueue("job-1", 1)

    def follow() -> list[object]:
        return list(queue.events())

    with ThreadPoolExecutor(2) as pool:
        result = pool.submit(queue.wait_until_finished, "job-1", None)
        events = pool.submit(follow)
        home = queue._homes[os.getpid()]
        until(lambda: len(home._tasks) == 2)
        queue.close()
        for waiting in (result, events):
            with pytest.raises(StorageClosed):
                waiting.result(20)


def test_a_forgotten_queue_ends_its_thread(place: Place) -> None:
    queue: AnyQueue | None = SyncQueue("jobs", place.url)
    assert queue is not None
    queue.enqueue("job-1", 1)
    assert sync_threads() == ["toril-sync-jobs"]
    queue = None
    gc.collect()
    until(lambda: sync_threads() == [])


async def test_blocking_an_event_loop_is_refused() -> None:
    queue: AnyQueue = SyncQueue("jobs", "memory:")
    for call in (
        lambda: queue.enqueue("job-1", 1),
        lambda: queue.events(),
        queue.close,
        queue.__enter__,
    ):
        with pytest.raises(TorilError, match="use Queue with await"):
            call()
    assert sync_threads() == []
    status = (await asyncio.to_thread(queue.enqueue, "job-1", 1)).status
    assert status == "queued"
    await asyncio.to_thread(queue.close)


def test_a_memory_storage_can_be_shared_as_an_object() -> None:
    storage = MemoryStorage()
    with SyncQueue[int, int]("jobs", storage) as one, SyncQueue[int, int]("jobs", storage) as two:
        one.enqueue("job-1", 1)
        assert two.get_job_counts().waiting == 1


def test_ctrl_c_while_waiting_leaves_the_queue_usable(place: Place) -> None:
    queue = place.queue()
    queue.enqueue("job-1", 4)
    home = queue._homes[os.getpid()]

    def interrupt() -> None:
        until(lambda: len(home._tasks) == 1 and len(home._calls) == 1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    other = threading.Thread(target=interrupt)
    # A shell's background job starts with SIGINT ignored; then nothing would interrupt it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        other.start()
        with pytest.raises(KeyboardInterrupt):
            queue.wait_until_finished("job-1", None)
        other.join()
    finally:
        signal.signal(signal.SIGINT, before)
    until(lambda: not home._tasks)
    place.work(square)
    assert queue.wait_until_finished("job-1") == 16


FORK = """
import os, sys
from toril import MemoryStorage, SyncQueue, TorilError
queue = SyncQueue("jobs", eval(sys.argv[1]))
if sys.argv[2] == "used":
    queue.enqueue("parent", 1)
child = os.fork()
try:
    who, status = "parent" if child else "child", queue.enqueue(f"by-{child == 0}", 1).status
    os.write(1, f"{who} {status}\\n".encode())
    queue.close()
except TorilError as error:
    os.write(1, f"refused: {error}\\n".encode())
if child == 0:
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
"""


def fork(storage: str, used: str) -> list[str]:
    """Fork a program that holds a queue; return what both halves said, the child's first."""
    done = subprocess.run(
        [
            *(sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning"),
            *("-c", FORK, storage, used),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return sorted(done.stdout.splitlines())


def test_a_forked_child_connects_anew(valkey: Server) -> None:
    url = repr(f"{valkey.url}?prefix=t{ulid()}")
    assert fork(url, "used") == ["child queued", "parent queued"]


def test_a_forked_child_joins_the_embedded_server() -> None:
    with private_home() as home:
        assert fork(repr(f"embedded:{home}"), "used") == ["child queued", "parent queued"]


@pytest.mark.parametrize("storage", ["'memory:'", "'memory:shared'", "MemoryStorage()"])
def test_memory_that_was_used_before_a_fork_is_refused_in_the_child(storage: str) -> None:
    said = fork(storage, "used")
    assert said[0] == "parent queued"
    assert said[1].startswith("refused: queue 'jobs' on memory:")


def test_a_queue_that_was_not_used_before_a_fork_works_in_both() -> None:
    assert fork("'memory:'", "unused") == ["child queued", "parent queued"]


def test_a_program_that_forgets_to_close_ends_in_silence(valkey: Server) -> None:
    program = "import sys; from toril import SyncQueue; SyncQueue('jobs', sys.argv[1])"
    program += ".enqueue('job-1', 1); queue = SyncQueue('jobs', sys.argv[1]); queue.is_paused()"
    done = subprocess.run(
        [sys.executable, "-c", program, f"{valkey.url}?prefix=t{ulid()}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("", "")
