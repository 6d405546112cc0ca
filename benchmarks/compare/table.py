"""Tables of a run: for the terminal and for a page."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.compare.records import Results, Spread, ratios

MISSING = "–"


def number(value: float) -> str:
    """Three figures or so."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def with_range(spread: Spread | None, *, times: bool = False) -> str:
    """A median with its range, which a single value has not."""
    if spread is None:
        return MISSING
    show = "{:.2f}".format if times else number
    if spread.low == spread.high:
        return show(spread.median)
    return f"{show(spread.median)} ({show(spread.low)}–{show(spread.high)})"


def rows(
    results: Results, workload: str, server: str, metrics: Sequence[str], reference: str
) -> list[list[str]]:
    """One row per peer: the first figure with its range, the others, the ratio to the reference.

    The header comes first; without figures of the reference there is no ratio.
    """
    base = results.reference(workload, server, reference, metrics[0])
    found = [["", *metrics, *([f"{metrics[0]} / {reference}"] if base else [])]]
    for peer in results.peers(workload, server):
        values = [results.values(workload, server, peer, metric) for metric in metrics]
        spreads = [Spread.of(one.values()) for one in values]
        if not any(spreads):
            note = results.note(workload, server, peer) or MISSING
            note = note.partition(":")[0]  # what went wrong stands in the records
            found.append([peer, note, *[""] * (len(metrics) - 1), *([""] if base else [])])
            continue
        rest = [number(one.median) if one else MISSING for one in spreads[1:]]
        ratio = [with_range(Spread.of(ratios(values[0], base)), times=True)] if base else []
        found.append([peer, with_range(spreads[0]), *rest, *ratio])
    return found


def text(lines: Sequence[Sequence[str]]) -> str:
    """Columns for the terminal: the first to the left, the others to the right."""
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    # A note may be long; it must not push the columns apart.
    widths[1] = max(len(line[1]) for line in lines if line is lines[0] or any(line[2:]))
    return "\n".join(
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """The same for a page; the first line is the header."""
    head, *body = lines
    marks = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, marks, *body))
