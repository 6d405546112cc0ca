"""Run the pairs of blocks of the README and the docs in which Node and Python share a queue."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.bullmq.install import packages, tool
from tests.docs.pages import PAGES, ROOT, WITH_NODE, Block, blocks
from tests.servers import Server, valkey_binary

pytestmark = pytest.mark.node

WRITTEN: Final = "redis://127.0.0.1:6379"
README: Final = ROOT / "README.md"
COOKBOOK: Final = ROOT / "docs" / "cookbook.md"
LIMIT_S: Final = 60


def with_node(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.note == WITH_NODE]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(valkey_binary()) as running:
        yield running


def write(page: Path, folder: Path, server: Server) -> dict[str, Block]:
    """Write the files of a page, for this server."""
    (folder / "node_modules").symlink_to(packages() / "node_modules")
    found = {block.file: block for block in with_node(page) if block.file}
    for name, block in found.items():
        (folder / name).write_text(block.code.replace(WRITTEN, server.url), encoding="utf-8")
    return found


def program(name: str) -> list[str]:
    return [tool("node") if name.endswith(".mjs") else sys.executable, name]


@contextmanager
def working(name: str, folder: Path, server: Server) -> Iterator[None]:
    """Have a worker run meanwhile."""
    process = subprocess.Popen(
        program(name), cwd=folder, env={**os.environ, "PORT": str(server.port)}
    )
    try:
        yield
        assert process.poll() is None, "the worker has ended by itself"
    finally:
        process.kill()
        process.wait()


def said(name: str, folder: Path, server: Server) -> str:
    """Run a producer; give what it printed."""
    done = subprocess.run(
        program(name),
        cwd=folder,
        env={**os.environ, "PORT": str(server.port)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_node_works_what_the_readme_adds(tmp_path: Path, server: Server) -> None:
    found = write(README, tmp_path, server)
    with working("worker.mjs", tmp_path, server):
        assert said("producer.py", tmp_path, server) == found["producer.py"].output


def test_python_works_what_the_cookbook_adds_in_node(tmp_path: Path, server: Server) -> None:
    write(COOKBOOK, tmp_path, server)
    with working("work.py", tmp_path, server):
        assert said("add.mjs", tmp_path, server) == "5\n"


def test_no_pair_of_the_docs_is_left_out() -> None:
    found = {page: [block.file for block in with_node(page)] for page in PAGES if with_node(page)}
    assert found == {
        README: ["worker.mjs", "producer.py"],
        COOKBOOK: ["add.mjs", "work.py"],
    }
