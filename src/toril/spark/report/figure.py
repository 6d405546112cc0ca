"""Frame what is shown: a title, what it shows, a legend, and the SQL behind it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from toril.spark.report.words import lines, safe


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend: the look of a shape and its meaning."""

    style: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A chart or a table with all that is needed to read it; `table` is the gold table behind."""

    title: str
    about: str
    table: str
    body: str
    keys: Sequence[Key] = ()
    note: str = ""
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, and what is in it, which decides its place and its breaks."""

    name: str
    kind: str = ""


NUMBER: Final = "number"
NAME: Final = "name"
WORD: Final = "word"


def show(figure: Figure, query: str | None) -> str:
    """Write a figure as HTML."""
    note = f'<p class="note">{safe(figure.note, 400)}</p>' if figure.note else ""
    return (
        f'<figure class="card{" wide" if figure.wide else ""}">'
        f"<figcaption><h3>{safe(figure.title)}</h3>"
        f'<p class="about">{safe(figure.about)}</p></figcaption>'
        f"{_legend(figure.keys)}{figure.body}{note}{show_sql(figure.table, query)}</figure>"
    )


def show_sql(name: str, query: str | None) -> str:
    """Write the SQL behind a gold table, folded."""
    if query is None:
        return ""
    return (
        f'<details class="sql"><summary>SQL of {safe(name)}</summary>'
        f"<pre><code>{lines(query)}</code></pre></details>"
    )


def chart(drawing: str) -> str:
    """Give a drawing the room its axes need."""
    return f'<div class="chart">{drawing}</div>'


def nothing(text: str) -> str:
    """Say that there is nothing to show, where a chart would be empty."""
    return f'<p class="nothing">{safe(text)}</p>'


def table(
    caption: str, columns: Sequence[Column], rows: Iterable[Sequence[str]], *, style: str = ""
) -> str:
    """Write a table whose cells are HTML; on a small screen each row becomes a card."""
    head = "".join(f'<th scope="col"{_side(one)}>{safe(one.name)}</th>' for one in columns)
    body = "".join(f"<tr>{_cells(columns, row)}</tr>" for row in rows)
    return (
        f'<table class="rows {style}"><caption>{safe(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def grid_table(caption: str, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> str:
    """Write a table of many columns, which scrolls in a frame of its own."""
    head = "".join(f'<th scope="col"{_side(one)}>{safe(one.name)}</th>' for one in columns)
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{_side(column)}>{cell}</td>" for column, cell in zip(columns, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{safe(caption)}"><table>'
        f"<caption>{safe(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _cells(columns: Sequence[Column], row: Sequence[str]) -> str:
    return "".join(
        f'<td data-label="{safe(column.name)}"{_side(column)}><span>{cell}</span></td>'
        for column, cell in zip(columns, row, strict=True)
    )


def _side(column: Column) -> str:
    return f' class="{column.kind}"' if column.kind else ""


def _legend(keys: Sequence[Key]) -> str:
    if not keys:
        return ""
    entries = "".join(f'<li><i class="key {key.style}"></i>{safe(key.name)}</li>' for key in keys)
    return f'<ul class="legend">{entries}</ul>'
