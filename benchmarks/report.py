"""Collect figures, and print them as tables with the command that makes them."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import Cores
from toril import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured thing; one value per repetition, in the order of the repetitions."""

    section: str
    server: str
    what: str
    unit: str
    toril: list[float]
    peer: list[float] = field(default_factory=list)
    target: str = ""

    @property
    def ratios(self) -> list[float]:
        """Ours by theirs, within each repetition."""
        return [
            ours / theirs for ours, theirs in zip(self.toril, self.peer, strict=False) if theirs
        ]


@dataclass(slots=True)
class Report:
    """All figures of one run."""

    about: dict[str, Any]
    peer: str | None
    figures: list[Figure] = field(default_factory=list)
    commands: dict[str, str] = field(default_factory=dict)

    def add(self, figure: Figure) -> None:
        """Take a figure."""
        self.figures.append(figure)

    def show(self, section: str, title: str, columns: tuple[str, str] | None = None) -> None:
        """Print the figures of a section; the columns are ours and the peer's unless named."""
        ours, theirs = columns or ("toril", self.peer or "")
        ratio = "ratio (min–max)" if theirs else ""
        print(f"\n{title}\n$ {self.commands[section]}")
        print(f"  {'':<46}{ours:>12}{theirs:>24}{ratio:>20}  target")
        last = ""
        for figure in self.figures:
            if figure.section != section:
                continue
            if figure.server != last:
                print(f"  {figure.server}")
                last = figure.server
            print(_row(figure), flush=True)

    def save(self, path: Path) -> None:
        """Write everything as JSON."""
        document = {
            **self.about,
            "commands": self.commands,
            "figures": [
                {
                    **asdict(figure),
                    "median": statistics.median(figure.toril),
                    "ratios": figure.ratios,
                }
                for figure in self.figures
            ],
        }
        path.write_text(json.dumps(document, indent=1) + "\n")


def begin(cores: Cores, peer: str | None) -> Report:
    """Say what is measured, and where; start a report of it."""
    about = {
        "toril": __version__,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "placement": str(cores),
        "peer": peer,
    }
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    return Report(about=about, peer=peer)


def _row(figure: Figure) -> str:
    what = f"{figure.what}, {figure.unit}" if figure.unit else figure.what
    theirs = _number(figure.peer) if figure.peer else ""
    ratio = ""
    if figure.ratios:
        low, high = min(figure.ratios), max(figure.ratios)
        ratio = f"{statistics.median(figure.ratios):.2f} ({low:.2f}–{high:.2f})"
    return f"    {what:<44}{_number(figure.toril):>12}{theirs:>24}{ratio:>20}  {figure.target}"


def _number(values: Sequence[float]) -> str:
    value = statistics.median(values)
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
