"""Draw in SVG that stretches with the page while its text keeps its size.

The outer drawing has no `viewBox`: text sits at percentages and keeps its size on any screen.
Shapes lie in an inner drawing that is stretched to fit, with lines of constant width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from toril.spark.report.scale import Axis, Tick
from toril.spark.report.words import safe

HEIGHT: Final = 170
UNIT: Final = 10
"""The width of one bin in the inner drawing."""

_GUTTER: Final = 46
_SPACE: Final = "http://www.w3.org/2000/svg"


@dataclass(frozen=True, slots=True)
class Hit:
    """What to tell where the pointer rests: a bin's place and its text."""

    slot: int
    text: str


def number(value: float) -> str:
    """A coordinate, short."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def image(label: str, height: int, content: Iterable[str], *, style: str) -> str:
    """A drawing that takes part in the page as one picture with a description."""
    return (
        f'<svg xmlns="{_SPACE}" class="{style}" role="img" aria-label="{safe(label, 600)}"'
        f' width="100%" height="{height}">{"".join(content)}</svg>'
    )


def ornament(height: int, content: Iterable[str], *, style: str) -> str:
    """A drawing that only repeats what the text beside it says."""
    return (
        f'<svg xmlns="{_SPACE}" class="{style}" aria-hidden="true"'
        f' width="100%" height="{height}">{"".join(content)}</svg>'
    )


def stretched(width: float, height: float, content: Iterable[str]) -> str:
    """An inner drawing that fills the outer one, whatever its shape."""
    return (
        f'<svg viewBox="0 0 {number(width)} {number(height)}" preserveAspectRatio="none"'
        f' width="100%" height="100%">{"".join(content)}</svg>'
    )


def plot(
    label: str,
    *,
    y_title: str,
    y_axis: Axis,
    x_title: str,
    x_ticks: Sequence[Tick],
    slots: int,
    shapes: Iterable[str],
    hits: Iterable[Hit] = (),
) -> str:
    """A chart over time: grid, axes with their names, shapes, and texts under the pointer."""
    return image(
        label,
        HEIGHT,
        [
            *_grid(y_axis),
            stretched(slots * UNIT, HEIGHT, [*shapes, *_hits(hits)]),
            *_feet(x_ticks),
            f'<text class="axis" x="{-_GUTTER}" y="-14">{safe(y_title)}</text>',
            f'<text class="axis end" x="100%" y="{HEIGHT + 34}">{safe(x_title)}</text>',
        ],
        style="plot",
    )


def bars(tops: Sequence[float], floors: Sequence[float], pad: int, style: str) -> str:
    """One bar a bin from its floor to its top, both as shares of the height, in one path."""
    slim = len(tops) + 2 * pad <= 60
    left, width = (1, UNIT - 2) if slim else (0, UNIT)
    path = "".join(
        f"M{(slot + pad) * UNIT + left} {_y(floor)}V{_y(top)}h{width}V{_y(floor)}z"
        for slot, (top, floor) in enumerate(zip(tops, floors, strict=True))
        if top > floor
    )
    return f'<path class="{style}" d="{path}"/>' if path else ""


def steps(shares: Sequence[float], pad: int, style: str) -> str:
    """A line that holds each bin's value over its whole width."""
    path = "".join(
        f"{'V' if slot else f'M{pad * UNIT} '}{_y(share)}h{UNIT}"
        for slot, share in enumerate(shares)
    )
    return f'<path class="{style}" d="{path}"/>' if path else ""


def area(shares: Sequence[float], pad: int, style: str) -> str:
    """What lies under `steps`."""
    path = "".join(f"V{_y(share)}h{UNIT}" for share in shares)
    return f'<path class="{style}" d="M{pad * UNIT} {HEIGHT}{path}V{HEIGHT}z"/>' if path else ""


def line(shares: Sequence[float | None], pad: int, style: str) -> str:
    """A line through the middle of the bins; broken where there is no value."""
    path: list[str] = []
    dots: list[str] = []
    for run in _runs(shares):
        points = [f"{(slot + pad + 0.5) * UNIT:g} {_y(share)}" for slot, share in run]
        if len(points) > 1:
            path.append("M" + "L".join(points))
        else:  # a line of no length has round ends, so it is a dot
            dots.append(f"M{points[0]}h0")
    return "".join(
        f'<path class="{look}" d="{"".join(parts)}"/>'
        for look, parts in ((style, path), (f"{style} lone", dots))
        if parts
    )


def sparkline(values: Sequence[int], pad: int) -> str:
    """A little picture of counts over time."""
    highest = max(values, default=0)
    shares = [value / highest if highest else 0.0 for value in values]
    return ornament(
        24,
        [stretched((len(values) + 2 * pad) * UNIT, HEIGHT, [area(shares, pad, "area done")])],
        style="spark",
    )


def meter(share: float, style: str) -> str:
    """A bar for a share of the largest row of a table."""
    width = number(max(share, 0.004) * 100)
    return ornament(8, [f'<rect class="{style}" width="{width}%" height="8" rx="2"/>'], style="bar")


def span(axis: Axis, low: float, middle: float, high: float) -> str:
    """A line from p50 to p99 with marks at p50, p95 and p99."""
    at = [number(1 + 98 * axis.place(value)) for value in (low, middle, high)]
    return ornament(
        14,
        [
            f'<line class="reach" x1="{at[0]}%" x2="{at[2]}%" y1="7" y2="7"/>',
            *(
                f'<circle class="{style} dot" cx="{place}%" cy="7" r="4"/>'
                for place, style in zip(at, ("p50", "p95", "p99"), strict=True)
            ),
        ],
        style="bar",
    )


def _y(share: float) -> str:
    return number((1 - share) * HEIGHT)


def _grid(axis: Axis) -> Iterator[str]:
    for tick in axis.ticks:
        y = _y(tick.at)
        style = "grid base" if tick.at == 0 else "grid"
        yield f'<line class="{style}" x1="0" x2="100%" y1="{y}" y2="{y}"/>'
        yield f'<text class="tick y" x="-8" y="{y}" dy=".35em">{tick.label}</text>'


def _feet(ticks: Sequence[Tick]) -> Iterator[str]:
    for tick in ticks:
        x = number(tick.at * 100)
        style = "minor" if tick.minor else "major"
        yield (
            f'<line class="foot {style}" x1="{x}%" x2="{x}%" y1="{HEIGHT}" y2="{HEIGHT + 5}"/>'
            f'<text class="tick x {style}" x="{x}%" y="{HEIGHT + 18}">{tick.label}</text>'
        )


def _hits(hits: Iterable[Hit]) -> Iterator[str]:
    for hit in hits:
        yield (
            f'<rect class="hit" x="{hit.slot * UNIT}" width="{UNIT}" height="{HEIGHT}">'
            f"<title>{safe(hit.text, 400)}</title></rect>"
        )


def _runs(shares: Sequence[float | None]) -> Iterator[list[tuple[int, float]]]:
    run: list[tuple[int, float]] = []
    for slot, share in enumerate(shares):
        if share is not None:
            run.append((slot, share))
        elif run:
            yield run
            run = []
    if run:
        yield run
