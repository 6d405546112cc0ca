"""Run the code blocks of the README and the docs, and compare what they print."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.docs import run_blocks
from tests.docs.pages import (
    BACKGROUND,
    NOT_RUN,
    ON_SPARK,
    PAGES,
    ROOT,
    WITH_NODE,
    Block,
    blocks,
    name_of,
    snippets,
)
from tests.docs.terminal import Terminal, agrees, commands
from toril import JobOptions
from toril.worker_options import WorkerOptions

LIMIT_S: Final = 90
FENCE: Final = re.compile(r"^[ \t]*```+[ \t]*(\w+)", re.MULTILINE)
CODE: Final = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?")
HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
NOTES: Final = re.compile(rf"{ON_SPARK}|{WITH_NODE}|{BACKGROUND}|fails with \d|{NOT_RUN}.+")
SHOWN: Final = {"text", "console", "python", "js", "ini", "yaml", "dockerfile", "json", "toml"}

# Those on Spark share a session, in tests/spark.
HERE: Final = [page for page in PAGES if not page.name.startswith("spark")]


def is_run(block: Block) -> bool:
    """Whether a block is run here: not for nothing, nor elsewhere."""
    return block.reason is None and block.note not in (ON_SPARK, WITH_NODE)


def programs(page: Path) -> list[Block]:
    """The blocks of a page that are run as they stand; files wait for a command."""
    return [block for block in snippets(page) if is_run(block) and block.file is None]


def consoles(page: Path) -> list[Block]:
    """What a page types into a shell."""
    return [block for block in blocks(page) if block.language == "console" and is_run(block)]


def complaints(found: Sequence[Block], directory: Path) -> list[str]:
    """Run blocks in one process; say what is wrong with them."""
    task = directory / ".blocks.json"
    task.write_text(json.dumps([[block.where, block.code, block.output] for block in found]))
    done = subprocess.run(
        [sys.executable, "-W", "error", run_blocks.__file__, str(task)],
        cwd=directory,
        env={**os.environ, "TORIL_HOME": str(directory / ".toril")},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said: list[str] = json.loads(done.stdout.splitlines()[-1])
    return said


def with_blocks(choose: object) -> list[Path]:
    assert callable(choose)
    return [page for page in HERE if choose(page)]


@pytest.mark.parametrize("page", with_blocks(programs), ids=name_of)
def test_the_programs_of_a_page_print_what_it_says(page: Path, tmp_path: Path) -> None:
    assert complaints(programs(page), tmp_path) == []


@pytest.mark.parametrize("page", with_blocks(consoles), ids=name_of)
def test_a_shell_shows_what_a_page_says(page: Path, tmp_path: Path) -> None:
    for block in snippets(page):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.code, encoding="utf-8")
    terminal = Terminal(tmp_path)
    said: list[str] = []
    try:
        for block in consoles(page):
            said.append(terminal.type(block))
    finally:
        said += terminal.end()
    assert [one for one in said if one] == []


@pytest.mark.parametrize("page", HERE, ids=name_of)
def test_every_file_of_a_page_is_used_by_a_command(page: Path) -> None:
    found = [block for block in snippets(page) if is_run(block) and block.file]
    typed = "\n".join(command for block in consoles(page) for command, _ in commands(block))
    typed += "\n".join(
        line for block in found for line in block.code.splitlines() if "import" in line
    )
    files = [block.file for block in found if block.file]
    assert [file for file in files if not re.search(rf"\b{Path(file).stem}\b", typed)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_block_escapes(page: Path) -> None:
    fences = FENCE.findall(page.read_text(encoding="utf-8"))
    found = list(blocks(page))
    texts = sum(block.output is not None for block in found)
    assert len(fences) == len(found) + texts
    assert {*fences} <= SHOWN
    notes = [block.note for block in found if block.note and not NOTES.fullmatch(block.note)]
    assert notes == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_inside_the_repository_leads_somewhere(page: Path) -> None:
    links = LINK.findall(CODE.sub("`code`", page.read_text(encoding="utf-8")))
    assert [target for target, _ in links if not (page.parent / target).exists()] == []
    for target, anchor in links:
        if anchor:
            there = page.parent / target if target else page
            assert anchor in anchors_of(there), f"{target}#{anchor}"


def anchors_of(page: Path) -> set[str]:
    """The names of a page's headings in links, as code hosts make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text))
    return {heading.replace(" ", "-") for heading in plain}


def test_the_readme_opens_with_a_sum_that_is_five() -> None:
    first = snippets(ROOT / "README.md")[0]
    assert first.file == "hello.py"
    assert 'Queue("hello")' in first.code
    typed = [one for block in consoles(ROOT / "README.md") for one in commands(block)]
    assert typed[0] == ("python hello.py", "5\n")


@pytest.mark.parametrize("options", [JobOptions, WorkerOptions])
def test_the_options_page_names_every_option(options: type[JobOptions | WorkerOptions]) -> None:
    text = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.+?) \|", text, re.MULTILINE)
    named = set(re.findall(r"`(\w+)`", " ".join(rows)))
    assert {field.name for field in dataclasses.fields(options)} - named == set()


def page_of(text: str, directory: Path) -> Path:
    path = directory / "page.md"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "printed '1\\n', the page says '2\\n'"),
        ("```python\nraise SystemExit('no')\n```\n", "SystemExit: no"),
    ],
    ids=["wrong-output", "error"],
)
def test_a_wrong_program_is_noticed(page: str, said: str, tmp_path: Path) -> None:
    (complaint,) = complaints(snippets(page_of(page, tmp_path)), tmp_path)
    assert said in complaint


@pytest.mark.parametrize(
    "page",
    [
        "```python\nprint(1)\n```\n\n```text\n1\n```\n",
        "```python\nprint(1)\n```\n\nNot output:\n\n```text\n2\n```\n",
    ],
    ids=["right-output", "no-output"],
)
def test_a_right_program_is_let_pass(page: str, tmp_path: Path) -> None:
    assert complaints(snippets(page_of(page, tmp_path)), tmp_path) == []


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("```console\n$ python -c 'print(5)'\n4\n```\n", "the page says:\n4"),
        ("```console\n$ python -c 'exit(3)'\n```\n", "ended with 3"),
        ("<!-- fails with 3 -->\n```console\n$ python -c 'exit(3)'\n```\n", ""),
        ("```console\n$ python -c 'print(5, 6, 7, sep=chr(10))'\n5\n…\n7\n```\n", ""),
        ("```console\n$ rm -r jobs\n```\n", "is no plain call"),
        ("```console\n$ toril queue list > queues\n```\n", "is no plain call"),
    ],
    ids=["wrong-output", "wrong-code", "right-code", "left-out", "other-program", "redirection"],
)
def test_a_wrong_command_is_noticed(page: str, said: str, tmp_path: Path) -> None:
    (block,) = blocks(page_of(page, tmp_path))
    complaint = Terminal(tmp_path).type(block)
    assert said in complaint
    assert bool(complaint) == bool(said)


def test_times_and_ids_may_differ_and_words_may_not() -> None:
    assert agrees("12:00:01.5 add done in 4 ms\n", "09:30:00.000 add done in 17 ms\n")
    assert not agrees("12:00:01.5 add failed in 4 ms\n", "12:00:01.5 add done in 4 ms\n")


def test_a_note_right_above_a_block_keeps_it_from_running(tmp_path: Path) -> None:
    text = "<!-- not run: needs a server -->\n```python\n1\n```\n\nText.\n\n```python\n2\n```\n"
    path = page_of(text, tmp_path)
    assert [block.reason for block in snippets(path)] == ["needs a server", None]
