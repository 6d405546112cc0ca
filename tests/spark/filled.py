"""Queues for the tests of fleets and batches, and a look at what became of their jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from toril import Job, JobOptions, NewJob, State, SyncQueue


@contextmanager
def filled(
    queue: str, url: str, jobs: int, options: JobOptions | None = None
) -> Iterator[SyncQueue[Any, Any]]:
    """A queue with so many jobs in it, ids and data counted from 0."""
    with SyncQueue[Any, Any](queue, url, defaults=options) as found:
        found.add_bulk([NewJob(name="job", data={"n": n}, id=f"job-{n}") for n in range(jobs)])
        yield found


def by_number(queue: SyncQueue[Any, Any], state: State = State.COMPLETED) -> dict[int, Job[Any]]:
    """The jobs of a state by the number in their data."""
    return {int(one.data["n"]): one for one in queue.get_jobs(state, 0, 10_000)}


def until(reached: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for something that another process does; fail when it does not come."""
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, f"did not come in {seconds} s"
        time.sleep(0.05)
