"""Run every Python block of the README and the docs, and compare what it prints."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from toril import JobOptions
from toril.worker_options import WorkerOptions

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LIMIT_S: Final = 30

# A python block, the reason above it why it is not run, and the text block right below it.
BLOCK: Final = re.compile(
    r"(?:^<!--\s*not run:\s*(?P<reason>[^\n]+?)\s*-->\n+)?"
    r"^```python\n(?P<code>.*?)^```$"
    r"(?:\n+^```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
FENCE: Final = re.compile(r"^\s*```+\s*python", re.MULTILINE)
CODE: Final = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")


@dataclass(frozen=True)
class Snippet:
    where: str
    code: str
    output: str | None
    reason: str | None


def snippets(path: Path) -> Iterator[Snippet]:
    text = path.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("code"))
        yield Snippet(f"{path.name}:{line}", match["code"], match["output"], match["reason"])


def complaint(snippet: Snippet, directory: Path) -> str:
    """Run a snippet as a script; say what is wrong with it, or nothing."""
    script = directory / "snippet.py"
    script.write_text(snippet.code, encoding="utf-8")
    try:
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-W", "error", str(script)],
            cwd=directory,
            env={**os.environ, "TORIL_HOME": str(directory / ".toril")},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"still running after {LIMIT_S} s"
    if done.returncode:
        return done.stderr
    if snippet.output is not None and done.stdout != snippet.output:
        return f"printed {done.stdout!r}, the page says {snippet.output!r}"
    return ""


# Those on Spark share a session, in tests/spark.
ALL: Final = [
    snippet for page in PAGES if not page.name.startswith("spark") for snippet in snippets(page)
]


@pytest.mark.parametrize("snippet", ALL, ids=lambda snippet: snippet.where)
def test_a_snippet_runs_and_prints_what_the_page_says(snippet: Snippet, tmp_path: Path) -> None:
    if snippet.reason is not None:
        pytest.skip(f"not run: {snippet.reason}")
    assert complaint(snippet, tmp_path) == ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_python_block_escapes(page: Path) -> None:
    assert len(FENCE.findall(page.read_text(encoding="utf-8"))) == len(list(snippets(page)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_inside_the_repository_leads_somewhere(page: Path) -> None:
    targets = LINK.findall(CODE.sub("`code`", page.read_text(encoding="utf-8")))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_readme_opens_with_a_sum_that_is_five() -> None:
    first = next(snippets(ROOT / "README.md"))
    assert 'Queue("hello")' in first.code
    assert first.output == "5\n"


@pytest.mark.parametrize("options", [JobOptions, WorkerOptions])
def test_the_readme_names_every_option(options: type[JobOptions | WorkerOptions]) -> None:
    rows = re.findall(
        r"^\| (`.+?) \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    named = set(re.findall(r"`(\w+)`", " ".join(rows)))
    assert {field.name for field in dataclasses.fields(options)} - named == set()


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "printed '1\\n', the page says '2\\n'"),
        ("```python\nraise SystemExit('no')\n```\n", "no"),
        ("```python\nprint(1)\n```\n\n```text\n1\n```\n", ""),
        ("```python\nprint(1)\n```\n\nNot output:\n\n```text\n2\n```\n", ""),
    ],
    ids=["wrong-output", "error", "right-output", "no-output"],
)
def test_a_wrong_snippet_is_noticed(page: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(page, encoding="utf-8")
    (snippet,) = snippets(path)
    assert complaint(snippet, tmp_path).strip() == said


def test_a_reason_right_above_a_block_keeps_it_from_running(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(
        "<!-- not run: needs a server -->\n```python\n1\n```\n\nText.\n\n```python\n2\n```\n",
        encoding="utf-8",
    )
    assert [snippet.reason for snippet in snippets(path)] == ["needs a server", None]
