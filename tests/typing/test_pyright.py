"""Check that pyright, as editors run it, knows typed tasks as mypy does.

One program, read and never run. A comment behind a line is the type pyright must reveal there, or
the rule it must see broken; a line without one must pass.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.typing.test_typing import OPENING, ROOT, expected

PROGRAM: Final = """
async def program() -> None:
    job = await add.enqueue(1, 2)
    reveal_type(job)  # TaskJob[int]
    reveal_type(await job.result())  # int
    reveal_type(await add.call(1, 2))  # int
    reveal_type(await (await fetch.enqueue("u")).result())  # bytes
    reveal_type(add(1, 2))  # int
    reveal_type(await fetch("u"))  # bytes
    reveal_type(await queue.enqueue_and_wait("a", order))  # str
    await add.enqueue("x", 2)  # reportArgumentType
    await add.enqueue(1, 2, 3)  # reportCallIssue
    await add.call(1, c=2)  # reportCallIssue
    await add.options(delai=5).enqueue(1)  # reportCallIssue
    text: str = await add.call(1, 2)  # reportAssignmentType
    await queue.enqueue("a", ["items"])  # reportArgumentType
    await add.options(delay=5, id="a").enqueue(1)
    await queue.enqueue("a", order, delay=1, attempts=5)
"""


def test_a_second_type_checker_infers_results_and_refuses_wrong_arguments(tmp_path: Path) -> None:
    if shutil.which("node") is None:  # pyright is written for it, and would fetch one
        reason = "node is not installed (Debian: apt-get install nodejs)"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    path = tmp_path / "program.py"
    path.write_text(OPENING + PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, path],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    lines = path.read_text(encoding="utf-8").splitlines()
    found: dict[str, str] = {}
    for said in json.loads(done.stdout)["generalDiagnostics"]:
        code = lines[said["range"]["start"]["line"]].strip().partition("  # ")[0]
        # Type of "add.call(1, 2)" is "int"
        found[code] = said.get("rule") or said["message"].rpartition(' is "')[2].removesuffix('"')
    assert found == expected(PROGRAM)
