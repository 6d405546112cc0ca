"""Write the tables and pictures of a run into the documentation, between markers."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.compare.field import NODE, entries
from benchmarks.compare.plot import Bar, draw
from benchmarks.compare.records import Results, Spread
from benchmarks.compare.table import markdown, number, rows
from benchmarks.compare.targets import check
from benchmarks.compare.workloads import WORKLOADS, Workload
from benchmarks.install import ROOT

PAGE: Final = ROOT / "docs" / "performance.md"
PICTURES: Final = ROOT / "docs" / "pictures"
BEGIN: Final = "<!-- begin: python -m benchmarks.compare --page -->"
END: Final = "<!-- end -->"
PLOTS: Final = {
    "W1": "jobs/s",
    "W2": "jobs/s",
    "W3": "jobs/s",
    "W4": "p50 ms, 100 at once",
    "W6": "of the ideal, 1,000 at once",
    "W8": "% of a core",
    "W10": "p99 ms late",
}


def publish(results: Results, page: Path = PAGE, pictures: Path = PICTURES) -> list[Path]:
    """Rewrite the part of the page between the markers; tell which files were written."""
    before = page.read_text(encoding="utf-8")
    head, found, rest = before.partition(BEGIN)
    _, ended, tail = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"{page.name}: no lines {BEGIN!r} and {END!r} to write between")
    written = paint(results, pictures)
    named = {path.name for path in written}
    page.write_text(f"{head}{BEGIN}\n\n{text(results, named)}\n{END}{tail}", encoding="utf-8")
    return [page, *written]


def text(results: Results, pictures: set[str]) -> str:
    """Everything between the markers."""
    parts = [conditions(results)]
    last = ""
    for key, server in sorted(results.pairs(), key=_order):
        workload = WORKLOADS[key]
        if key != last:
            parts.append(f"### {key}: {workload.title}\n\n`{command(results, key)}`")
            last = key
        parts.append(_part(results, workload, server))
        name = picture_name(key, server)
        if name in pictures:
            parts.append(f"![{key} on {server}](pictures/{name})")
    goals = check(results)
    if len(goals) > 1:
        parts.append("### Targets\n\n" + markdown(goals))
    return "\n\n".join(parts) + "\n"


def conditions(results: Results) -> str:
    """Where and how it was measured."""
    about = results.about
    return (
        f"toril {about.get('toril')}, Python {about.get('python')}, {about.get('cores')} cores, "
        f"{about.get('placement')}; begun {about.get('begun')}. "
        "Medians, with the smallest and the largest; a ratio is the median of the ratios within "
        "each repetition."
    )


def command(results: Results, key: str) -> str:
    """The command that makes the figures of a workload."""
    words = iter(results.command(key).split()[3:])
    options = []
    for word in words:
        if word == "--out":
            next(words, None)  # a place on somebody's machine
        elif word not in WORKLOADS and word != "--page":
            options.append(word)
    return " ".join(["python -m benchmarks.compare", key, *options])


def _order(pair: tuple[str, str]) -> tuple[int, str]:
    key, server = pair
    # Valkey, then Redis, then those that have no server.
    return list(WORKLOADS).index(key), {"V": "0", "R": "1"}.get(server[0], "2") + server


def _part(results: Results, workload: Workload, server: str) -> str:
    reference = entries()[NODE].name
    said = results.conditions(workload.key, server)
    lines = rows(results, workload.key, server, workload.metrics, reference)
    return f"{said[0].upper()}{said[1:]}:\n\n{markdown(lines)}"


def picture_name(key: str, server: str) -> str:
    """The file of a picture: by workload and kind of server, so that a later run replaces it."""
    return f"{key.lower()}-{server.split()[0].lower()}.svg"


def paint(results: Results, pictures: Path) -> list[Path]:
    """Draw one picture per workload and server that has bars to show."""
    written = []
    kinds = {entry.name: entry.kind for entry in reversed(entries().values())}
    for key, server in results.pairs():
        if key not in PLOTS or server == "no server":
            continue
        metric, bars = PLOTS[key], []
        for peer in results.peers(key, server):
            spread = Spread.of(results.values(key, server, peer, metric).values())
            if spread is not None:
                kind = kinds.get(peer, "python")
                label = number(spread.median)
                bars.append(Bar(name=peer, value=spread.median, label=label, kind=kind))
        if bars:
            pictures.mkdir(parents=True, exist_ok=True)
            path = pictures / picture_name(key, server)
            title = f"{key}: {WORKLOADS[key].title}"
            better = "less is better" if WORKLOADS[key].less else "more is better"
            subtitle = f"{server}, medians, {better}"
            path.write_text(draw(title, subtitle, metric, bars), encoding="utf-8")
            written.append(path)
    return written
