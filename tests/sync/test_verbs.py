"""Every verb of a queue, without await."""

from __future__ import annotations

import inspect
from datetime import timedelta
from typing import Any, assert_type

import pytest

from tests.sync.conftest import Context, Place
from toril import (
    Cursor,
    EnqueueResult,
    EventKind,
    EventsTrimmed,
    InvalidOption,
    Job,
    JobCancelled,
    JobFailed,
    JobNotFound,
    Limiter,
    NewJob,
    Queue,
    State,
    SyncQueue,
    WaitTimeout,
)

NOT_FOR_CALLERS = {"start", "stop"}
"""Verbs of a queue's life and its worker."""


def double(job: Context) -> Any:
    return job.data * 2


def refuse(job: Context) -> Any:
    raise ValueError(f"no {job.data}")


def test_every_verb_has_a_blocking_twin_with_the_same_parameters() -> None:
    verbs = {
        name: verb
        for name, verb in inspect.getmembers(Queue, inspect.iscoroutinefunction)
        if not name.startswith("_") and name not in NOT_FOR_CALLERS
    }
    assert len(verbs) >= 29
    for name, verb in verbs.items():
        twin = inspect.getattr_static(SyncQueue, name)
        assert inspect.isfunction(twin)
        assert not inspect.iscoroutinefunction(twin)
        assert inspect.signature(twin) == inspect.signature(verb)
        assert twin.__doc__ == verb.__doc__


def test_events_take_what_a_queues_events_take_and_a_timeout() -> None:
    ours = inspect.signature(SyncQueue.events).parameters
    theirs = inspect.signature(Queue.events).parameters
    assert list(ours) == [*theirs, "timeout"]
    assert all(ours[name] == theirs[name] for name in theirs)


def test_the_constructor_takes_what_a_queues_takes() -> None:
    ours, theirs = inspect.signature(SyncQueue.__init__), inspect.signature(Queue.__init__)
    assert ours == theirs


def test_a_type_checker_knows_the_verbs() -> None:
    with SyncQueue[int, str]("jobs", "memory:") as queue:
        assert_type(queue.enqueue("job-1", 1, delay=5), EnqueueResult[str])
        assert_type(queue.get_result("job-1"), str | None)
        assert_type(queue.get_job("job-1"), Job[int, str] | None)
        queue.update_data("job-1", "no number")  # type: ignore[arg-type]


def test_a_job_is_handed_in_and_its_result_waited_for(place: Place) -> None:
    place.work(double)
    queue = place.queue()
    assert queue.enqueue_and_wait("job-1", 21, timeout=timedelta(seconds=20)) == 42
    again = queue.enqueue("job-1", 21)
    assert (again.status, again.result) == ("completed", 42)
    assert queue.get_result("job-1") == 42
    assert queue.update_result_ttl("job-1", 60)
    status = queue.get_status("job-1")
    assert status is not None
    assert (status.state, status.attempts) == (State.COMPLETED, 1)
    assert queue.wait_until_finished("job-1") == 42


def test_errors_are_those_of_a_queue(place: Place) -> None:
    queue = place.queue()
    options: Any = {"delya": 5}
    with pytest.raises(InvalidOption, match="delya"):
        queue.enqueue("job-1", 1, **options)
    with pytest.raises(JobNotFound):
        queue.wait_until_finished("nobody")
    with pytest.raises(WaitTimeout, match="no worker serves"):
        queue.enqueue_and_wait("job-1", 1, timeout=0.01)
    queue.drain()
    place.work(refuse)
    with pytest.raises(JobFailed, match="no luck"):
        queue.enqueue_and_wait("job-2", "luck", attempts=1)
    assert queue.retry_jobs() == 1


def test_jobs_are_looked_at_and_tended(place: Place) -> None:
    queue = place.queue()
    queue.pause()
    assert queue.is_paused()
    added = queue.add("send", {"to": "ann"}, id="mail", priority=5)
    found = queue.get_job("mail")
    assert found is not None
    assert (found.data, found.state) == (added.data, added.state)
    queue.add_bulk([NewJob(name="send", data=n, id=f"n-{n}") for n in range(3)])
    queue.enqueue("later", 1, delay=60)
    assert [job.data for job in queue.get_jobs("waiting")] == [0, 1, 2]
    counts = queue.get_job_counts()
    assert (counts.waiting, counts.prioritized, counts.delayed, counts.paused) == (3, 1, 1, True)
    assert queue.change_priority("mail", 1)
    assert queue.change_delay("later", 30)
    assert queue.update_data("n-0", "new")
    assert queue.promote("later")
    assert not queue.retry_job("n-0")
    assert queue.promote_jobs() == 0
    assert queue.cancel("n-1").status == "cancelled"
    assert queue.remove_job("n-2")
    assert list(queue.logs("n-0")) == []
    assert list(queue.get_workers()) == []
    queue.tune(concurrency=2, limiter=Limiter(max=5, duration=1))
    assert list(queue.clean(state="waiting")) == ["n-0", "later"]
    assert queue.drain() == 1
    queue.resume()
    queue.obliterate()
    assert queue.get_job_counts().total == 0


def test_who_waits_for_a_cancelled_job_is_told(place: Place) -> None:
    queue = place.queue()
    queue.enqueue("job-1", 1)
    events = queue.events(timeout=20)
    queue.cancel("job-1")
    assert next(events).kind is EventKind.CANCELLED
    with pytest.raises((JobCancelled, JobNotFound)):
        queue.wait_until_finished("job-1")


def test_events_are_followed_from_the_call_on(place: Place) -> None:
    queue = place.queue()
    queue.enqueue("before", 1)
    events = queue.events(timeout=0.05)
    queue.enqueue("job-1", 1)
    kinds = [event.kind for event in events]
    assert kinds == [EventKind.ADDED, EventKind.WAITING]


def test_events_can_be_read_again_and_without_waiting(place: Place) -> None:
    queue = place.queue()
    for n in range(3):
        queue.enqueue(f"job-{n}", n)
    everything = list(queue.events(Cursor.START, timeout=0))
    assert len(everything) == 6
    assert list(queue.events(everything[1].cursor, timeout=0)) == everything[2:]


def test_events_wait_for_the_next_one(place: Place) -> None:
    queue = place.queue()
    events = queue.events()
    place.work(double)
    queue.enqueue("job-1", 1)
    for event in events:
        if event.kind is EventKind.COMPLETED:
            break


def test_trimmed_events_are_an_error_unless_they_may_be_skipped(place: Place) -> None:
    queue = place.queue()
    queue.tune(events_kept=4)
    for n in range(10):
        queue.enqueue(f"job-{n}", n)
    with pytest.raises(EventsTrimmed):
        list(queue.events(Cursor.START, timeout=0))
    seen = list(queue.events(Cursor.START, skip_trimmed=True, timeout=0))
    assert seen[-1].job_id == "job-9"


@pytest.mark.parametrize("timeout", [-1, "5"])
def test_an_impossible_timeout_is_refused_at_once(timeout: Any) -> None:
    with SyncQueue[Any, Any]("jobs", "memory:") as queue, pytest.raises(InvalidOption):
        queue.events(timeout=timeout)
