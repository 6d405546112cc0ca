"""Draw bars as SVG: a bar per peer, its value beside it, on a light ground in any viewer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 760
BAR: Final = 18
GAP: Final = 8
LEFT: Final = 230
RIGHT: Final = 110
TOP: Final = 58
BOTTOM: Final = 30
COLOURS: Final = {
    "toril": "#0b6e4f",
    "node": "#8a6d1d",
    "python": "#4a6fa5",
    "ceiling": "#9aa0a6",
    "bare": "#9aa0a6",
}
OTHER: Final = "#4a6fa5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: its name, its length, the text at its end, and what kind of peer it is."""

    name: str
    value: float
    label: str
    kind: str


def draw(title: str, subtitle: str, unit: str, bars: Sequence[Bar]) -> str:
    """A picture of bars from zero, all to one scale."""
    height = TOP + len(bars) * (BAR + GAP) + BOTTOM
    scale = (WIDTH - LEFT - RIGHT) / (max((bar.value for bar in bars), default=0) or 1)
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="sans-serif">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(16, 24, title, size=16, weight="bold"),
        _text(16, 43, subtitle, fill="#5f6368"),
    ]
    for at, bar in enumerate(bars):
        lines += _bar(bar, TOP + at * (BAR + GAP), scale)
    foot = height - 10
    lines += [_text(LEFT, foot, unit, fill="#5f6368"), "</svg>"]
    return "\n".join(lines) + "\n"


def _bar(bar: Bar, y: int, scale: float) -> list[str]:
    length = max(1.0, bar.value * scale)
    middle = y + BAR - 5
    weight = "bold" if bar.kind == "toril" else "normal"
    colour = COLOURS.get(bar.kind, OTHER)
    return [
        _text(LEFT - 10, middle, bar.name, anchor="end", weight=weight),
        f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2" fill="{colour}"/>',
        _text(LEFT + length + 8, middle, bar.label, weight=weight),
    ]


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 12,
    weight: str = "normal",
    fill: str = "#202124",
    anchor: str = "start",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" '
        f'fill="{fill}" text-anchor="{anchor}">{escape(text)}</text>'
    )
