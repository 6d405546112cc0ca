"""The example, run as its reader would: with Spark, and where there is no Java."""

from __future__ import annotations

import logging
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.report_reader import Page

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "spark_report.py"


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("spark")
def test_the_example_writes_a_report_that_agrees_with_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    level = logging.getLogger("toril").level
    try:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    finally:
        logging.getLogger("toril").setLevel(level)
    store, events, written = capsys.readouterr().out.splitlines()[-3:]
    assert store.removeprefix("store: ") == events.removeprefix("events: ")
    assert written == "written: report.html"
    tiles = Page((tmp_path / "report.html").read_text(encoding="utf-8")).sections["queue-1"].tiles
    assert events == f"events: {tiles['completed']} completed, {tiles['failed']} failed"


def test_the_example_is_skipped_in_one_line_where_java_is_missing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", str(EXAMPLE)],
        cwd=tmp_path,
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert line.startswith("skipped: toril[E14] Spark needs Java 17 or newer, none was found.")


def test_the_example_is_under_fifty_lines() -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 50
