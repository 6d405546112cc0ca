"""The regression guard: what counts as a loss."""

from __future__ import annotations

import json

from benchmarks.compare.guard import BASELINE, LAYOUTS, WORK, cpu_per_job, losses


def test_a_quarter_more_is_no_loss_yet() -> None:
    assert losses({"W3 lean": 2.5}, {"W3 lean": 2.0}) == []


def test_more_than_a_quarter_is_named_with_both_numbers() -> None:
    (said,) = losses({"W3 lean": 2.6, "W2 lean": 1.0}, {"W3 lean": 2.0, "W2 lean": 1.0})
    assert said == "W3 lean: 2.60 × the ceiling, 1.30 of the baseline's 2.00; 1.25 is allowed"


def test_getting_better_is_no_loss() -> None:
    assert losses({"W3 lean": 1.0}, {"W3 lean": 2.0}) == []


def test_what_was_not_measured_is_not_judged() -> None:
    assert losses({}, {"W3 lean": 2.0}) == []


def test_client_and_server_both_count() -> None:
    assert cpu_per_job({"client µs/job": 20.0, "server µs/job": 15.0}) == 35.0


def test_the_stored_baseline_covers_every_layout_and_workload() -> None:
    assert set(json.loads(BASELINE.read_text())) == {
        f"{w} {name}" for w in WORK for name in LAYOUTS
    }
