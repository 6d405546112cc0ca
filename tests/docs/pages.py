"""Read the code blocks of the README and the docs, with what the page says of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

ON_SPARK: Final = "on Spark"
WITH_NODE: Final = "with Node"
BACKGROUND: Final = "in the background"
NOT_RUN: Final = "not run: "

_BLOCK: Final = re.compile(
    r"(?:^<!-- (?P<note>[^\n]+?) -->\n+)?"
    r"^```(?P<language>\w+)\n(?P<code>.*?)^```$"
    r"(?:\n+^```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
_FILE: Final = re.compile(r"(?:#|//) ([\w-]+\.(?:py|mjs))\n")


@dataclass(frozen=True, slots=True)
class Block:
    """One block of code, the note above it that no reader sees, and the text right below it."""

    where: str
    language: str
    code: str
    output: str | None = None
    note: str | None = None

    @property
    def reason(self) -> str | None:
        """Why nobody runs it."""
        told = self.note is not None and self.note.startswith(NOT_RUN)
        return self.note.removeprefix(NOT_RUN) if self.note and told else None

    @property
    def file(self) -> str | None:
        """The name of the file it is, if its first line says so."""
        found = _FILE.match(self.code)
        return found[1] if found else None


def name_of(page: Path) -> str:
    """A page's path inside the repository, or its name."""
    return str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else page.name


def blocks(page: Path) -> Iterator[Block]:
    """Give the blocks of a page in order."""
    text = page.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("code"))
        yield Block(
            f"{name_of(page)}:{line}",
            match["language"],
            match["code"],
            match["output"],
            match["note"],
        )


def snippets(page: Path) -> list[Block]:
    """Give the blocks of Python of a page."""
    return [block for block in blocks(page) if block.language == "python"]
