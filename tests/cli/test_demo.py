"""The demo as a newcomer runs it."""

from __future__ import annotations

from pathlib import Path

from tests.cli.program import toril


def test_the_demo_adds_up_and_says_in_one_line_that_java_is_missing(tmp_path: Path) -> None:
    done = toril("demo", cwd=tmp_path, JAVA_HOME=str(tmp_path))
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert len([line for line in lines if line.startswith("ok ")]) == 6
    assert not [line for line in lines if line.startswith("BAD")]
    assert lines[-1] == "all is well"
    (reason,) = [line for line in done.err.splitlines() if line.startswith("no report: ")]
    assert "Java 17" in reason
    assert "\r" not in done.err
    assert list(tmp_path.iterdir()) == []


def test_the_demo_is_a_document_for_programs(tmp_path: Path) -> None:
    told = toril("demo", "--no-spark", "--json", cwd=tmp_path).json()
    assert all(told["checks"].values())
    assert (told["jobs"], told["recovered"], told["report"]) == (3601, 50, None)
