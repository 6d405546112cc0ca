"""Hold the generated parts of the docs to the code, and every command in the docs to the CLI."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any, Final

import click
import pytest

from scripts.feature_table import FACETS, FEATURES
from scripts.generate_docs import COMMAND, stale
from scripts.terminal_picture import draw, screen
from tests.docs.pages import PAGES, ROOT, blocks, name_of
from tests.docs.terminal import commands, words_of
from toril.cli.main import toril
from toril.storage.protocol import Feature

LEFT_OUT: Final = (click.MissingParameter, click.BadOptionUsage)
"""What may be said of a command inside a sentence: an argument is missing, or an option's value."""


def test_the_generated_parts_of_the_docs_are_up_to_date() -> None:
    pages = stale()
    assert not pages, f"{', '.join(pages)}: not what the code says. fix: {COMMAND}"


def test_the_table_has_a_row_for_every_feature() -> None:
    assert {*FEATURES} == {*Feature}
    assert len(FACETS) == 5


def test_the_layers_name_every_part_of_the_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    layers = page.partition("```\n")[2].partition("```")[0]
    package = ROOT / "src" / "toril"
    parts = {path.stem for path in package.iterdir() if path.suffix == ".py" or path.is_dir()}
    named = {*re.findall(r"[a-z_]+", layers)}
    unnamed = {part for part in parts if not part.startswith("_")} - named
    assert not unnamed, f"name {', '.join(sorted(unnamed))} in the layers of docs/architecture.md"


def test_every_page_the_code_names_is_there() -> None:
    texts = [source.read_text(encoding="utf-8") for source in (ROOT / "src").rglob("*.py")]
    named = {page for text in texts for page in re.findall(r"docs/[\w/-]+\.md", text)}
    assert {page for page in named if not (ROOT / page).is_file()} == set()


def calls_of(page: Path) -> list[list[str]]:
    """The calls of `toril` that a page shows: in shells, units and images."""
    lines: list[list[str]] = []
    for block in blocks(page):
        match block.language:
            case "console":
                for command, _ in commands(block):
                    lines += words_of(command)
            case "ini":
                for line in re.findall(r"^ExecStart=(.+)$", block.code, re.MULTILINE):
                    lines += words_of(line)
            case "dockerfile":
                lines += [json.loads(line) for line in re.findall(r"^CMD (.+)$", block.code, re.M)]
    return [line[1:] for line in lines if line and Path(line[0]).name == "toril"]


def asides_of(page: Path) -> list[list[str]]:
    """The calls of `toril` inside sentences and tables; they may leave something out."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    spans = re.findall(r"`toril ([^`]+)`", text)
    return [[word for word in words_of(span)[0] if word != "…"] for span in spans]


def with_calls() -> list[Path]:
    return [page for page in PAGES if calls_of(page) or asides_of(page)]


@pytest.mark.parametrize("page", with_calls(), ids=name_of)
def test_every_command_of_a_page_is_one_the_command_line_takes(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parsed(_self: click.Command, _context: click.Context) -> Any:
        return None

    monkeypatch.setattr(click.Command, "invoke", parsed)  # read the words, do nothing
    asides = asides_of(page)
    for call in (*calls_of(page), *asides):
        try:
            toril.main(list(call), prog_name="toril", standalone_mode=False)
        except click.exceptions.NoArgsIsHelpError:
            continue
        except click.ClickException as error:
            if not isinstance(error, LEFT_OUT) or call not in asides:
                pytest.fail(f"toril {shlex.join(call)}: {error.format_message()}")


def test_every_page_is_in_the_index() -> None:
    docs = ROOT / "docs"
    index = (docs / "README.md").read_text(encoding="utf-8")
    pages = {str(page.relative_to(docs)) for page in docs.rglob("*.md")} - {"README.md"}
    assert {page for page in pages if f"({page})" not in index} == set()


def test_a_command_that_is_not_there_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(click.UsageError, match="no command 'wrker'"):
        toril.main(["wrker"], prog_name="toril", standalone_mode=False)
    assert words_of("A=1 toril queue list | head -1") == [
        ["toril", "queue", "list"],
        ["head", "-1"],
    ]


def test_a_picture_shows_what_is_left_on_the_screen() -> None:
    lines = screen("\rworking  5%\rworking 50%\r          \rdone\r\n\x1b[31mbad\x1b[0m  <x>\r\n")
    assert lines == [[("done", None)], [("", None), ("bad", "#ff7b72"), ("  <x>", None)]]
    picture = draw("toril demo", lines)
    assert (
        '<tspan fill="#ff7b72">bad</tspan>\N{NO-BREAK SPACE}\N{NO-BREAK SPACE}&lt;x&gt;' in picture
    )


def test_the_pictures_are_there_and_small() -> None:
    for name in ("demo.svg", "report.png"):
        assert 0 < (ROOT / "docs" / "pictures" / name).stat().st_size < 150_000
