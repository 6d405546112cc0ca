"""The events of the memory storage: what is kept of them, and read again."""

from __future__ import annotations

import gc

import pytest

from toril.errors import EventsTrimmed
from toril.event import Cursor, EventKind
from toril.storage.memory_log import EventLog

MANY = 2_000


def filled(count: int = MANY) -> EventLog:
    """A log whose events tell their own number as the time."""
    log = EventLog()
    for number in range(1, count + 1):
        log.append(EventKind.WAITING, number, f"job-{number}", extras=("active",))
    return log


@pytest.mark.parametrize("after", [0, 1, 511, 512, 513, 1023, 1024, 1999, 2000])
@pytest.mark.parametrize("limit", [1, 512, 1_000, 5_000])
def test_events_are_read_in_order_wherever_a_read_begins(after: int, limit: int) -> None:
    read = filled().read(Cursor(after), None, limit)
    assert [event.time_ms for event in read] == list(range(after + 1, MANY + 1))[:limit]
    assert all(event.cursor == Cursor(event.time_ms) for event in read)
    assert all(event.job_id == f"job-{event.time_ms}" for event in read)


@pytest.mark.parametrize("until", [1, 512, 700, 1024, 1025, 3_000])
def test_a_read_ends_where_it_is_told(until: int) -> None:
    read = filled().read(Cursor(0), Cursor(until), 5_000)
    assert [event.time_ms for event in read] == list(range(1, min(until, MANY) + 1))


@pytest.mark.parametrize("kept", [1, 5, 512, 513, 1_500, 1_999])
def test_just_the_newest_events_are_kept(kept: int) -> None:
    log = filled()
    log.resize(kept)
    with pytest.raises(EventsTrimmed) as trimmed:
        log.read(Cursor(0), None, 10)
    assert trimmed.value.count == MANY - kept
    assert trimmed.value.resume == Cursor(MANY - kept)
    rest = log.read(Cursor(MANY - kept), None, 5_000)
    assert [event.time_ms for event in rest] == list(range(MANY - kept + 1, MANY + 1))


def test_the_oldest_events_go_as_new_ones_come() -> None:
    log = EventLog()
    log.resize(700)
    for number in range(1, MANY + 1):
        log.append(EventKind.ADDED, number)
        first = max(0, number - 700)
        assert log.read(Cursor(first), Cursor(first + 1), 1)[0].time_ms == first + 1
        assert log.dropped == first


def test_events_that_went_stay_away_when_more_are_kept() -> None:
    log = filled()
    log.resize(10)
    log.resize(None)
    log.append(EventKind.ADDED, MANY + 1)
    assert log.dropped == MANY - 10
    assert len(log.read(Cursor(MANY - 10), None, 100)) == 11


def test_a_cleared_log_counts_on() -> None:
    log = filled()
    log.clear()
    assert log.empty
    assert log.read(Cursor(MANY), None, 10) == []
    log.append(EventKind.ADDED, MANY + 1)
    assert [event.cursor for event in log.read(Cursor(MANY), None, 10)] == [Cursor(MANY + 1)]
    with pytest.raises(EventsTrimmed, match=f"{MANY:,} events"):
        log.read(Cursor(0), None, 10)


def test_an_event_tells_what_its_kind_carries() -> None:
    log = EventLog()
    log.append(EventKind.COMPLETED, 1, "a", "n", 2, "w", ("active", 10, 20))
    log.append(EventKind.FAILED, 2, extras=("active", "boom"))
    log.append(EventKind.DRAINED, 3)
    completed, failed, drained = log.read(Cursor(0), None, 10)
    assert (completed.prev, completed.result_size, completed.duration_ms) == ("active", 10, 20)
    assert (completed.job_name, completed.attempt, completed.worker_id) == ("n", 2, "w")
    assert (failed.prev, failed.reason, failed.duration_ms) == ("active", "boom", None)
    assert drained.prev is None


def test_the_collector_has_nothing_to_do_with_old_events() -> None:
    log = filled()
    for _ in range(2):  # what is inside first, then what it is in
        gc.collect()
    assert not any(gc.is_tracked(piece) for piece in log._pieces)
