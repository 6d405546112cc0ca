"""The examples of the flows, run in the session of the tests."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EXPECTED = {
    "spark_ingest": [
        "rows: 1000, created: 1000, there already: 0",
        "rows: 1000, created: 0, there already: 1000",
        "order-7: invoice {'number': 7, 'total': 70.0} priority 1",
    ],
    "spark_archive": [
        "archived: 20, deleted: 20, changed: 0",
        "left in the store: 0",
        "square-7: completed 7 -> 49",
    ],
    "spark_replay": [
        "ada@a.slow: timeout after 30 s",
        "bob@b.gone: no such address",
        "eve@e.slow: timeout after 30 s",
        "would retry: ada@a.slow eve@e.slow",
        "retried: 2 of 2, changed meanwhile: 0",
        "waiting: 2, failed: 1",
    ],
    "spark_export": [
        "rows: 3, not fitting the schema: 1",
        "a 4 not None",
        "b 2 hello None",
        'c None None "nothing"',
    ],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_works_and_says_so(
    spark: SparkSession,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out.splitlines() == EXPECTED[name]
    assert len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) < 50


def test_without_java_an_example_says_so_in_one_line_and_ends_well(tmp_path: Path) -> None:
    for name in EXPECTED:
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / f"{name}.py")],
            cwd=tmp_path,
            env={**os.environ, "JAVA_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        (line,) = done.stdout.splitlines()
        assert "Spark needs Java 17 or newer, none was found" in line
