"""Axes with round numbers, and bins of a round size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.report_data import START_MS, busy_queue
from toril.spark.report.bins import MOST, Bins, add_up, choose_bins, fill
from toril.spark.report.model import Minute, SlaMinute
from toril.spark.report.scale import (
    Axis,
    buckets,
    count_axis,
    duration_axis,
    level_axis,
    share_axis,
    time_ticks,
)

MINUTE = 60_000


def labels(axis: Axis) -> list[str]:
    return [tick.label.replace("\u00a0", " ") for tick in axis.ticks]


def test_a_count_axis_has_whole_numbers() -> None:
    assert labels(count_axis(0)) == ["0", "1"]
    assert labels(count_axis(3)) == ["0", "1", "2", "3"]
    assert labels(count_axis(87)) == ["0", "50", "100"]
    assert labels(count_axis(1_234_567)) == ["0", "500k", "1M", "1.5M"]


def test_a_level_axis_has_fractions_where_levels_are_low() -> None:
    assert labels(level_axis(0.31)) == ["0", "0.1", "0.2", "0.3", "0.4"]
    assert labels(level_axis(7)) == ["0", "2", "4", "6", "8"]


def test_a_share_axis_goes_to_a_hundred_and_further_where_it_must() -> None:
    assert labels(share_axis(0.02)) == ["0", "25", "50", "75", "100"]
    assert labels(share_axis(1.3)) == ["0", "50", "100", "150", "200"]


def test_a_duration_axis_turns_logarithmic_where_durations_differ_widely() -> None:
    assert labels(duration_axis([12, 80])) == ["0", "20 ms", "40 ms", "60 ms", "80 ms"]
    assert labels(duration_axis([5000, 100_000])) == ["0", "30 s", "1 min", "1 min 30 s", "2 min"]
    wide = duration_axis([3, 45_000])
    assert wide.log
    assert labels(wide) == ["1 ms", "10 ms", "100 ms", "1 s", "10 s", "1 min"]


def test_an_axis_without_values_still_has_two_ends() -> None:
    for axis in (count_axis(0), level_axis(0), share_axis(0), duration_axis([])):
        assert axis.high > axis.low
        assert len(axis.ticks) >= 2


@given(st.lists(st.floats(0, 1e13), max_size=5))
def test_every_value_has_a_place_on_its_axis(values: list[float]) -> None:
    highest = max(values, default=0)
    for axis in (count_axis(highest), level_axis(highest), duration_axis(values)):
        assert axis.high >= highest
        assert all(0 <= axis.place(value) <= 1 for value in values)
        places = [tick.at for tick in axis.ticks]
        assert places == sorted(places)
        assert places[0] == 0
        assert places[-1] > 0.85 if axis.log else places[-1] == pytest.approx(1)
        assert 2 <= len(places) <= 9
        assert len({tick.label for tick in axis.ticks}) == len(places)


@given(st.integers(1, 10**9), st.integers(1, 6))
def test_buckets_are_few_and_hold_the_highest(highest: int, most: int) -> None:
    ends = buckets(highest, most)
    assert 1 <= len(ends) <= most
    assert ends[-1] >= highest
    assert len({high - low for low, high in zip((0, *ends), ends, strict=False)}) == 1


def test_midnight_is_written_as_its_day() -> None:
    evening = 1_795_046_400_000 - 90 * MINUTE
    found = [
        tick.label.replace("\u00a0", " ") for tick in time_ticks(evening, evening + 180 * MINUTE)
    ]
    assert found == ["22:30", "23:00", "23:30", "19 Nov", "00:30", "01:00", "01:30"]


@given(st.integers(0, 10**9), st.integers(1, 10**7))
def test_a_time_axis_has_few_labels_and_fewer_on_a_phone(start: int, minutes: int) -> None:
    ticks = time_ticks(start * MINUTE, (start + minutes) * MINUTE)
    assert len(ticks) <= 10
    assert len([tick for tick in ticks if not tick.minor]) <= 5
    assert all(0 <= tick.at <= 1 for tick in ticks)


@given(st.lists(st.integers(0, 10**8), min_size=1, max_size=20))
def test_bins_hold_every_minute_and_are_no_more_than_two_hundred(minutes: list[int]) -> None:
    bins = choose_bins(minute * MINUTE for minute in minutes)
    assert bins is not None
    assert 1 <= bins.count <= MOST
    assert bins.slots >= 12
    assert all(0 <= bins.index(minute * MINUTE) < bins.count for minute in minutes)
    assert bins.start_ms % bins.step_ms == 0


def test_no_minute_gives_no_bins() -> None:
    assert choose_bins([]) is None


@pytest.mark.parametrize(
    ("minutes", "per"),
    [(1, "minute"), (200, "minute"), (300, "2 minutes"), (1440, "10 minutes"), (10_000, "hour")],
)
def test_the_size_of_a_bin_is_a_round_time(minutes: int, per: str) -> None:
    bins = choose_bins(number * MINUTE for number in range(minutes))
    assert bins is not None
    assert bins.per.replace("\u00a0", " ") == per


def test_bins_add_counts_up_and_keep_the_last_backlog_and_the_worst_latency() -> None:
    rows = [
        Minute(queue="q", minute_ms=0, added=3, completed=1, backlog=2, wait_p95_ms=9, busy_ms=7),
        Minute(queue="q", minute_ms=MINUTE, added=1, failed=2, backlog=1, wait_p95_ms=4),
        Minute(queue="q", minute_ms=6 * MINUTE, added=1, backlog=2, utilisation=0.5),
        Minute(queue="q", minute_ms=7 * MINUTE, backlog=2, utilisation=0.25),
    ]
    late = [SlaMinute(queue="q", minute_ms=3 * MINUTE, within=4, breached=5)]
    first, second, third, fourth = fill(Bins(0, 2 * MINUTE, 4, 0), rows, late)
    assert (first.added, first.completed, first.failed, first.backlog) == (4, 1, 2, 1)
    assert (first.wait_p95_ms, first.busy_ms, first.utilisation) == (9, 7, None)
    assert (second.backlog, second.within, second.breached) == (1, 4, 5)  # nothing happened
    assert (third.backlog, third.wait_p95_ms) == (1, None)
    assert (fourth.backlog, fourth.utilisation) == (2, 0.375)


@given(st.integers(1, 700), st.integers(0, 5))
def test_bins_lose_nothing(minutes: int, seed: int) -> None:
    data = busy_queue("q", minutes, seed)
    bins = choose_bins(row.minute_ms for row in data.per_minute)
    assert bins is not None
    rows = fill(bins, data.per_minute, data.sla)
    both = add_up(bins, [rows, rows])
    total = data.totals[0]
    for name in ("added", "completed", "failed", "retried", "stalled", "cancelled"):
        assert sum(getattr(row, name) for row in rows) == getattr(total, name)
        assert sum(getattr(row, name) for row in both) == 2 * getattr(total, name)
    assert rows[-1].backlog == total.unfinished
    assert both[0].start_ms == START_MS // bins.step_ms * bins.step_ms
