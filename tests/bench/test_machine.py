"""What is known of the machine under a benchmark."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.machine import stolen_ms

STAT = """\
cpu  30 0 0 0 0 0 0 9 0 0
cpu0 10 0 0 0 0 0 0 2 0 0
cpu1 20 0 0 0 0 0 0 7 0 0
intr 5 0 0
ctxt 12
"""


def test_the_core_that_the_host_took_most_of_counts(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text(STAT)
    assert stolen_ms(stat) == 7 * 1000 / os.sysconf("SC_CLK_TCK")


def test_where_nothing_is_known_nothing_was_stolen(tmp_path: Path) -> None:
    assert stolen_ms(tmp_path / "none") == 0
