"""A project that `toril init` made is run as its owner would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import toril


def test_the_project_it_makes_runs_from_the_first_call_on(tmp_path: Path) -> None:
    made = toril("init", "shop", cwd=tmp_path)
    assert (made.code, made.out) == (0, "wrote shop/tasks.py and shop/main.py\n")
    assert made.err.splitlines() == [
        "next: cd shop",
        "next: toril worker tasks",
        "next: toril call tasks add 2 3",
    ]
    shop = tmp_path / "shop"
    url = f"file:{tmp_path / 'queues'}"
    for call in (["add", "2", "3"], ["greet", "Ada", "greeting=Ahoy"]):
        queued = toril("call", "tasks", *call, "--no-wait", cwd=shop, TORIL_URL=url)
        assert queued.code == 0, queued.err
    worked = toril("worker", "tasks", "--burst", cwd=shop, TORIL_URL=url)
    assert worked.code == 0, worked.err
    assert worked.out.startswith("2 completed, 0 failed in ")
    events = toril("events", "default", "--kind", "completed", cwd=shop, TORIL_URL=url)
    assert events.out.count(" completed ") == 2


def test_its_program_gets_results_on_the_embedded_server(tmp_path: Path) -> None:
    assert toril("init", "-q", cwd=tmp_path).err == ""
    home = str(tmp_path / ".toril")
    environment = {k: v for k, v in os.environ.items() if k != "TORIL_URL"} | {"TORIL_HOME": home}
    worker = subprocess.Popen(
        [sys.executable, "-m", "toril.cli", "worker", "tasks"],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert worker.stderr is not None
        assert worker.stderr.readline().startswith("toril ")
        called = toril("call", "tasks", "add", "2", "3", cwd=tmp_path, TORIL_HOME=home)
        assert (called.code, called.out) == (0, "5\n")
        done = subprocess.run(
            [sys.executable, "main.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, "Hello, Ada!\n[1, 2, 3]\n"), done.stderr
    finally:
        worker.terminate()
        worker.communicate(timeout=60)


@pytest.mark.parametrize("name", ["tasks.py", "main.py"])
def test_what_is_there_is_never_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    refused = toril("init", cwd=tmp_path)
    assert refused.code == 2
    assert f"'{name}' exists already; nothing was written" in refused.err
    refused.check_brief()
    assert [one.name for one in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_a_place_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = toril("init", "file/shop", cwd=tmp_path)
    assert refused.code == 2
    assert "'file/shop' cannot be written to (Not a directory)" in refused.err
    refused.check_brief()


def test_with_json_the_files_and_next_steps_are_a_document(tmp_path: Path) -> None:
    made = toril("init", "--json", cwd=tmp_path).json()
    assert made == {
        "written": ["tasks.py", "main.py"],
        "next": ["toril worker tasks", "toril call tasks add 2 3"],
    }
