"""What a program has set for the garbage collector itself is respected."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "(50000, 10, 10)"),
        ("gc.set_threshold(50_000, 20, 20)", "(50000, 20, 20)"),
        ("gc.set_threshold(0)", "(0, 10, 10)"),
    ],
)
def test_thresholds_are_raised_and_never_lowered(before: str, after: str) -> None:
    program = f"""
import gc
from toril.garbage import spare_collections
{before}
spare_collections()
assert gc.get_freeze_count() > 1_000
print(gc.get_threshold())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == after


def test_what_was_spared_for_a_while_is_as_it_was_before() -> None:
    program = """
import gc
from toril.garbage import spared_collections
gc.set_threshold(800, 11, 12)
with spared_collections():
    assert gc.get_freeze_count() > 1_000
    print(gc.get_threshold())
assert gc.get_freeze_count() == 0
print(gc.get_threshold())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["(50000, 11, 12)", "(800, 11, 12)"]
