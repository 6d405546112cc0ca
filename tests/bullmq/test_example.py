"""Run the pair of example files as their reader would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.bullmq.install import packages, tool
from tests.servers import Server, valkey_binary

pytestmark = pytest.mark.node

EXAMPLE: Final = Path(__file__).resolve().parents[2] / "examples" / "bullmq"


def test_node_works_what_the_python_file_adds(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    (tmp_path / "node_modules").symlink_to(packages() / "node_modules")
    with Server(valkey_binary()) as server:
        worker = subprocess.Popen(
            [tool("node"), "worker.mjs"],
            cwd=tmp_path,
            env={**os.environ, "PORT": str(server.port)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert worker.stdout is not None
        try:
            assert worker.stdout.readline() == "ready\n"
            done = subprocess.run(
                [sys.executable, "-X", "dev", "-W", "error", "producer.py"],
                cwd=tmp_path,
                env={**os.environ, "TORIL_URL": f"bullmq+{server.url}"},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            worker.terminate()
            assert worker.wait(30) == 0
        finally:
            worker.kill()
            worker.wait()
            worker.stdout.close()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "¡Hola, Ada!",
        "¡Hola, Grace!",
        "¡Hola, 🐂!",
        "failed: Error: nobody to greet",
        "completed 3, failed 1",
    ]


@pytest.mark.parametrize("name", ["worker.mjs", "producer.py"])
def test_each_half_is_under_fifty_lines(name: str) -> None:
    assert len((EXAMPLE / name).read_text("utf-8").splitlines()) < 50
