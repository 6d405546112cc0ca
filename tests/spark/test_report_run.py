"""Jobs, events, tables, report: what is read at the end is what the store counts."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers import Server
from tests.spark.chromium import Chromium
from tests.spark.layout import check_layout
from tests.spark.mixed_run import Story, run_mixed
from tests.spark.report_reader import NAMESPACE, Page, Section
from toril.spark.analytics import analyze
from toril.spark.report import write_report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHORT = pytest.param(2000, marks=pytest.mark.timeout(900))
LONG = pytest.param(
    100_000,
    marks=[
        pytest.mark.slow,
        pytest.mark.timeout(3600),
        pytest.mark.skipif(not os.environ.get("TORIL_SLOW"), reason="long form; TORIL_SLOW=1"),
    ],
)


@pytest.mark.parametrize("number", [SHORT, LONG])
def test_the_report_of_a_mixed_run_agrees_with_the_store(
    spark: SparkSession,
    server: Server,
    browser: Chromium,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    number: int,
) -> None:
    caplog.set_level(logging.CRITICAL, "toril")  # the trouble is on purpose
    names = [f"emails-{number}", f"orders-{number}"]
    stories = asyncio.run(run_mixed(server.url, names, number))
    analysis = analyze(spark, str(tmp_path / "lake"), queues=names, url=server.url, sla_ms=30_000)
    path = write_report(analysis.gold, tmp_path / "report.html")
    page = Page(path.read_text(encoding="utf-8"))
    assert page.problems == []
    sections = {one.heading.removeprefix("Queue "): one for one in page.sections.values()}
    assert {*names, "Overview"} == set(sections)
    for name in names:
        _check_queue(sections[name], stories[name])
    _check_overview(sections["Overview"], list(stories.values()))
    _check_drawings(page, list(stories.values()))
    for width in (1280, 360):
        browser.look(width=width)
        seen = browser.open(path)
        assert (seen.requests, seen.complaints) == ([path.as_uri()], [])
        check_layout(browser, width)
        kept = os.environ.get("TORIL_PICTURES")
        if kept:
            browser.picture(Path(kept, f"report-{number}-{width}.png"))


def _check_queue(section: Section, story: Story) -> None:
    counts = story.counts
    assert counts is not None
    assert {name: _number(section.tiles[name]) for name in _of(story)} == _of(story)
    groups = section.tables["Failure groups, the largest first"]
    assert sorted(_number(row[1]) for row in groups) == sorted(story.raised.values())
    assert len(section.tables["Slowest jobs, the longest first"]) == 10
    rows = section.tables["What happened over time"]
    sums = [sum(_number(row[at]) for row in rows) for at in range(1, 7)]
    assert sums == [
        *(story.added, counts.completed, counts.failed),
        *(story.retried, 0, story.cancelled),
    ]
    assert _number(rows[-1][7]) == counts.delayed
    assert 0 <= _number(section.tiles["breached"]) <= counts.completed + counts.failed


def _check_overview(section: Section, stories: list[Story]) -> None:
    for name in _of(stories[0]):
        assert _number(section.tiles[name]) == sum(_of(story)[name] for story in stories)
    (queues,) = [rows for caption, rows in section.tables.items() if caption.startswith("All")]
    assert sorted(_number(row[3]) for row in queues) == sorted(
        _of(story)["completed"] for story in stories
    )
    assert "Gaps in the events" not in section.tables


def _check_drawings(page: Page, stories: list[Story]) -> None:
    """The first chart of each kind is the one of all queues."""
    ended = sum(_of(story)["completed"] + _of(story)["failed"] for story in stories)
    failed = sum(_of(story)["failed"] for story in stories)
    assert sum(_told(page, "Throughput", "completed")) == ended - failed
    assert sum(_told(page, "Throughput", "failed")) == failed
    assert sum(_told(page, "Throughput", "added")) == sum(story.added for story in stories)
    assert _told(page, "Backlog", "backlog")[-1] == sum(_of(one)["unfinished"] for one in stories)
    assert sum(_told(page, "Finished jobs by hour", ":")) == ended
    assert sum(_told(page, "Failed jobs by hour", ":")) == failed
    within, breached = _told(page, "SLA", "within"), _told(page, "SLA", "breached")
    assert sum(within) + sum(breached) == ended


def _of(story: Story) -> dict[str, int]:
    counts = story.counts
    assert counts is not None
    return {
        "added": story.added,
        "completed": counts.completed,
        "failed": counts.failed,
        "retried": story.retried,
        "stalled": 0,
        "cancelled": story.cancelled,
        "unfinished": counts.waiting + counts.prioritized + counts.active + counts.delayed,
    }


def _told(page: Page, chart: str, name: str) -> list[int]:
    drawing = next(one for one in page.drawings if one.get("aria-label", "").startswith(chart))
    texts = ["".join(one.itertext()) for one in drawing.iter(f"{NAMESPACE}title")]
    found = [re.search(rf"{name} ([\d,]+)", text) for text in texts]
    return [_number(one[1]) for one in found if one is not None]


def _number(text: str) -> int:
    return int(text.replace(",", ""))
