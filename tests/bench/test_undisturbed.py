"""A run that the host took time from is measured again, whatever it measured."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.compare import busy


@pytest.mark.parametrize(
    ("taken", "runs", "counts"),
    [
        ([0], 1, 0),
        ([20], 1, 0),
        ([30, 10], 2, 1),
        ([50, 40, 30, 60, 70], 5, 2),
    ],
    ids=["nothing taken", "little taken", "the second is quiet", "none is quiet"],
)
def test_the_run_that_lost_least_counts_and_the_first_is_told(
    monkeypatch: pytest.MonkeyPatch, taken: list[float], runs: int, counts: int
) -> None:
    clock = _ticks(taken)
    monkeypatch.setattr(busy, "stolen_ms", lambda: next(clock))
    measured = 0

    def measure() -> dict[str, float]:
        nonlocal measured
        measured += 1
        return {"figure": float(measured - 1)}

    assert busy.undisturbed(measure, "figure") == {
        "figure": counts,
        "figure, at first": 0,
        busy.STOLEN: taken[counts],
    }
    assert measured == runs


def _ticks(taken: list[float]) -> Iterator[float]:
    """What the host has taken by the start and the end of each run; some between them, too."""
    total = 1000.0
    for one in taken:
        yield total
        total += one
        yield total
        total += 500
