"""The examples of working on Spark, run in the session of the tests."""

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
    "spark_fleet": ["completed: 500 failed: 0", "tasks: 2 died: 0", "left: 0"],
    "spark_batch": ["batches: 3 completed: 499", "failed: RowError: amount is negative"],
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


@pytest.mark.parametrize("name", EXPECTED)
def test_without_java_an_example_says_so_in_one_line_and_ends_well(
    name: str, tmp_path: Path
) -> None:
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
