"""Read a report as a program would: its sections, tiles, tables and drawings."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Final
from xml.etree import ElementTree

VOID: Final = frozenset({"meta", "br", "hr", "img", "link", "input"})
NAMESPACE: Final = "{http://www.w3.org/2000/svg}"


@dataclass
class Section:
    """One section of a report."""

    id: str
    tiles: dict[str, str] = field(default_factory=dict)
    titles: list[str] = field(default_factory=list)
    tables: dict[str, list[list[str]]] = field(default_factory=dict)
    heading: str = ""


@dataclass(frozen=True)
class Element:
    """An element that is open."""

    tag: str
    attributes: dict[str, str]


class Page(HTMLParser):
    """Everything a test wants to know about a report."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.html = html
        self.sections: dict[str, Section] = {}
        self.elements: list[Element] = []
        self.problems: list[str] = []
        self.ids: list[str] = []
        self._open: list[Element] = []
        self._section = Section("")
        self._text: list[str] = []
        self._row: list[str] = []
        self._rows: list[list[str]] = []
        self._caption = ""
        self.feed(html)
        self.close()
        self.problems += [f"<{one.tag}> is never closed" for one in self._open]

    @property
    def drawings(self) -> list[ElementTree.Element]:
        """The outer drawings; an error where one is not XML."""
        return [ElementTree.fromstring(text) for text in self.svg_texts]

    @property
    def svg_texts(self) -> list[str]:
        """The text of the outer drawings."""
        found: list[str] = []
        depth = start = 0
        for match in re.finditer(r"<svg\b|</svg>", self.html):
            if match[0] == "</svg>":
                depth -= 1
            else:
                start = start if depth else match.start()
                depth += 1
            if depth == 0:
                found.append(self.html[start : match.end()])
        return found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if "id" in element.attributes:
            self.ids.append(element.attributes["id"])
        if tag not in VOID:
            self._open.append(element)
        if tag == "section":
            self._section = self.sections[element.attributes["id"]] = Section(
                element.attributes["id"]
            )
        if tag in ("b", "h2", "h3", "td", "caption"):
            self._text = []
        if tag == "table":
            self._rows = []
        if tag == "tr":
            self._row = []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1].tag != tag:
            self.problems.append(f"</{tag}> closes {self._open[-1:] or 'nothing'}")
            return
        self._open.pop()
        text = "".join(self._text).replace("\u00a0", " ")
        if tag == "b":
            tile = next((one for one in self._open if "data-of" in one.attributes), None)
            if tile is not None:
                self._section.tiles[tile.attributes["data-of"]] = text
        elif tag == "h2":
            self._section.heading = text
        elif tag == "h3":
            self._section.titles.append(text)
        elif tag == "td":
            self._row.append(text)
        elif tag == "caption":
            self._caption = text
        elif tag == "tr" and self._row:
            self._rows.append(self._row)
        elif tag == "table":
            self._section.tables[self._caption] = self._rows
