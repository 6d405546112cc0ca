"""Let mypy read the programs of the docs: who copies one into a typed project gets no complaint."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.docs.pages import PAGES, ROOT, Block, name_of, snippets

FLAGS: Final = (
    *("--strict", "--allow-untyped-defs", "--allow-untyped-calls"),
    *("--follow-imports=silent", "--config-file="),
)


def write(block: Block, folder: Path) -> str:
    """Write a block as a module whose name tells where it stands."""
    name = "".join(one if one.isalnum() else "_" for one in block.where)
    (folder / f"{name}.py").write_text(block.code, encoding="utf-8")
    return f"{name}.py"


def test_the_programs_of_the_docs_are_typed(tmp_path: Path) -> None:
    # The pages on Spark build on a session that a test gives them.
    pages = [page for page in PAGES if not name_of(page).startswith("docs/spark")]
    found = [block for page in pages for block in snippets(page) if block.reason is None]
    for block in found:
        if block.file is not None:  # those that import one another are on one page
            (tmp_path / block.file).write_text(block.code, encoding="utf-8")
    names = [write(block, tmp_path) for block in found]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *FLAGS, "--cache-dir", str(tmp_path / "cache"), *names],
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(names) > 50
