"""The report in a real browser, wide and narrow, light and dark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.spark.chromium import Chromium
from tests.spark.layout import CHECK, check_layout
from tests.spark.report_data import START_MS, busy_queue, of_minutes, together
from toril.spark.report.model import FailureGroup, Gap, Minute, ReportData
from toril.spark.report.page import render

WIDTHS: Final = (1280, 360)


def nasty() -> ReportData:
    """Names without a space, reasons without an end, numbers with many digits, no SLA."""
    name = "a-queue-whose-name-never-ends-" * 3
    minutes = [
        Minute(
            queue=name,
            minute_ms=START_MS + 86_000_000 * number,
            added=123_456_789_012 * number,
            completed=98_765_432_101 * number,
            failed=9_876_543_210 * number,
            retried=1,
            wait_p50_ms=0.04,
            wait_p95_ms=9e6,
            wait_p99_ms=9e9,
            run_p50_ms=86_399_999,
            run_p95_ms=86_400_001,
            run_p99_ms=99_999_999,
            backlog=10**15,
            busy_ms=10**12,
            workers=10**6,
            utilisation=0.99999,
        )
        for number in range(1, 25)
    ]
    data = of_minutes(name, minutes)
    group = FailureGroup(
        queue=name,
        reason_group="NoSpaceAtAll" * 60,
        count=10**12,
        jobs=10**12,
        sample_job_id="x" * 200,
        sample_reason="\u202eevil " * 300,
    )
    slow = [replace(job, job_id="y" * 150, job_name="z" * 150) for job in data.slowest]
    return replace(
        together(data, busy_queue("b", 3, 1)),
        failures=[group],
        slowest=slow,
        gaps=[Gap(queue=name, number=10**15, count=10**12)],
    )


SHAPES: Final = {
    "two queues": lambda: together(
        busy_queue("emails", 95, 1),
        busy_queue("thumbnails", 95, 2),
        gaps=(Gap(queue="emails", number=12_345, count=1300, time_ms=START_MS),),
    ),
    "one minute": lambda: busy_queue("tiny", 1, 3, sla=False),
    "a week": lambda: busy_queue("week", 10_000, 4),
    "fifty queues": lambda: together(*(busy_queue(f"queue-{n}", 30, n) for n in range(50))),
    "nasty names": nasty,
    "nothing": ReportData,
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_report_is_readable_in_a_browser(
    browser: Chromium, tmp_path: Path, shape: str, width: int
) -> None:
    page = tmp_path / "report.html"
    page.write_text(render(SHAPES[shape]()), encoding="utf-8")
    browser.look(width=width)
    seen = browser.open(page)
    assert seen.complaints == []
    assert seen.requests == [page.as_uri()]
    check_layout(browser, width)
    light = browser.run(CHECK)["back"]
    browser.look(width=width, dark=True)
    dark = browser.run(CHECK)
    assert dark["faint"] == []
    assert dark["back"] != light


def test_what_is_folded_is_readable_once_it_is_opened(browser: Chromium, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(render(SHAPES["two queues"]()), encoding="utf-8")
    for width in WIDTHS:
        browser.look(width=width)
        browser.open(page)
        before = browser.run(CHECK)["texts"]
        browser.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        check_layout(browser, width)
        assert browser.run(CHECK)["texts"] > before


def test_a_link_to_a_folded_queue_shows_it(browser: Chromium, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(render(SHAPES["fifty queues"]()), encoding="utf-8")
    browser.look(width=360)
    browser.open(page)
    browser.run("document.querySelector('a[href=\"#queue-50\"]').click()")
    shown = "document.getElementById('queue-50').getBoundingClientRect()"
    assert browser.run(f"{shown}.top >= 0 && {shown}.top < innerHeight") is True


def test_the_check_finds_what_it_looks_for(browser: Chromium, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text(
        '<meta name="viewport" content="width=device-width"><body style="background:#fff">'
        '<svg width="100" height="40"><text x="5" y="20">over</text><text x="9" y="22">each</text>'
        '</svg><p style="color:#ccc">faint</p><div style="width:900px;text-align:right">far</div>'
        "<img src='http://toril.invalid/x.png'><script>console.error('trouble')</script>",
        encoding="utf-8",
    )
    browser.look(width=360)
    seen = browser.open(page)
    found = browser.run(CHECK)
    assert "http://toril.invalid/x.png" in seen.requests
    assert any("trouble" in complaint for complaint in seen.complaints)
    assert found["covered"] == ["over / each"]
    assert found["outside"] == ["far"]
    assert [text.split()[0] for text in found["faint"]] == ["faint"]
    assert found["scroll"] > 360
