"""Write a report as one HTML file that needs nothing but itself."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from toril.errors import InvalidOption
from toril.spark.report.model import GoldTables, ReportData, arrange, collect
from toril.spark.report.sections import overview, queue_section, timelines_of
from toril.spark.report.style import CSS, CSS_HASH
from toril.spark.report.words import instant, plural
from toril.text import printable

_POLICY: Final = f"default-src 'none'; style-src '{CSS_HASH}'; base-uri 'none'; form-action 'none'"


def write_report(gold: GoldTables, path: str | Path, *, made_at: datetime | None = None) -> Path:
    """Write the report of these gold tables to a file, whole or not at all; give its path.

    Runs on the driver. The same tables give the same bytes, but for `made_at`, which is shown
    where it is given.
    """
    target = _target(path)
    _check_zone(made_at)
    page = render(collect(gold), made_at=made_at)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        draft.write_text(page, encoding="utf-8", newline="\n")
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return target


def render(data: ReportData, *, made_at: datetime | None = None) -> str:
    """Give the report as HTML."""
    _check_zone(made_at)
    data = arrange(data)
    timelines = timelines_of(data)
    anchors = {total.queue: f"queue-{number}" for number, total in enumerate(data.totals, 1)}
    sections = [overview(data, timelines, anchors)]
    sections += [
        queue_section(data, total, timelines.get(total.queue), anchors[total.queue])
        for total in data.totals
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>toril: queue report</title>\n<style>{CSS}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#overview">To the overview</a>\n'
        f"<header>\n<h1>Queue report</h1>\n{_made(data, made_at)}\n</header>\n<main>\n"
        + "\n".join(sections)
        + "\n</main>\n<footer><p>Made by toril from the events of its queues. All times are in"
        " UTC; a percentile is exact, not estimated. The wait of a job begins when it is due,"
        " so a delay does not count.</p></footer>\n</body>\n</html>\n"
    )


def _made(data: ReportData, made_at: datetime | None) -> str:
    parts = [plural(len(data.totals), "queue")]
    if made_at is not None:
        since_1970 = made_at - datetime(1970, 1, 1, tzinfo=UTC)
        parts.append(f"made at {instant(round(since_1970.total_seconds() * 1000), seconds=True)}")
    return f'<p class="made">{" · ".join(parts)}</p>'


def _target(path: str | Path) -> Path:
    target = Path(path)
    if target.is_dir() or not target.parent.is_dir():
        fact = "is a directory" if target.is_dir() else "is in a directory that does not exist"
        raise InvalidOption(
            f"report: path '{printable(target, 200)}' {fact}; name a file in an existing directory"
        )
    return target


def _check_zone(made_at: datetime | None) -> None:
    if made_at is not None and made_at.tzinfo is None:
        raise InvalidOption(f"report: made_at {made_at} has no zone; use datetime.now(UTC)")
