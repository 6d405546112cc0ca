"""The regression guard: what counts as a loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.compare.guard import (
    BASELINE,
    LAYOUTS,
    WORK,
    Cost,
    in_us,
    losses,
    read_baseline,
    write_baseline,
)

BEFORE = {"W3 lean": Cost(client=3.0, server=0.5)}
HERE = {"W3 lean": Cost(client=2.0, server=20.0)}
"""What a job costs the ceilings on this machine: so the baseline stands for 16 µs."""


def test_a_quarter_more_is_no_loss_yet() -> None:
    assert losses({"W3 lean": Cost(client=5.0, server=0.5)}, HERE, BEFORE) == []


@pytest.mark.parametrize("cost", [Cost(client=5.2, server=0.5), Cost(client=3.0, server=0.72)])
def test_more_than_a_quarter_on_either_side_is_named_with_both_numbers(cost: Cost) -> None:
    (said,) = losses({"W3 lean": cost}, HERE, BEFORE)
    assert said == (
        "W3 lean: 20.4 µs a job, 1.27 of the baseline, which is 16.0 µs here; 1.25 is allowed"
    )


def test_a_machine_where_one_side_is_slow_is_no_loss() -> None:
    slow = {"W3 lean": Cost(client=6.0, server=20.0)}
    assert losses(BEFORE, slow, BEFORE) == []


def test_getting_better_is_no_loss() -> None:
    assert losses({"W3 lean": Cost(client=1.0, server=0.1)}, HERE, BEFORE) == []


def test_what_was_not_measured_is_not_judged() -> None:
    assert losses({}, {}, BEFORE) == []


def test_client_and_server_both_count() -> None:
    assert in_us(Cost(client=2.0, server=0.5), Cost(client=3.0, server=10.0)) == 11.0


def test_a_baseline_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "build" / "baseline.json"
    write_baseline(path, BEFORE)
    assert read_baseline(path) == BEFORE


def test_the_stored_baseline_covers_every_layout_and_workload() -> None:
    assert set(read_baseline(BASELINE)) == {f"{w} {name}" for w in WORK for name in LAYOUTS}
