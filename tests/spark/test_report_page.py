"""The report as HTML: it is well made, it says what the data says, and nothing gets through."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spark.report_data import (
    START_MS,
    TABLES,
    busy_queue,
    of_minutes,
    together,
)
from tests.spark.report_reader import NAMESPACE, Page
from toril.errors import InvalidOption
from toril.spark.report.model import FailureGroup, Gap, Hour, Minute, ReportData, SlowJob, Total
from toril.spark.report.page import render

ONE_JOB = of_minutes(
    "one", [Minute(queue="one", minute_ms=START_MS, added=1, completed=1, run_p50_ms=5)]
)
SHAPES = {
    "nothing": ReportData(),
    "one job": ONE_JOB,
    "one minute": busy_queue("tiny", 1, 3),
    "ten thousand minutes": busy_queue("week", 10_000, 4),
    "fifty queues": together(*(busy_queue(f"queue-{n}", 30, n) for n in range(50))),
    "two queues": together(
        busy_queue("emails", 95, 1),
        busy_queue("thumbnails", 95, 2),
        gaps=(
            Gap(queue="emails", number=12_345, count=1300, time_ms=START_MS),
            Gap(queue="emails", number=22_345),
        ),
    ),
    "a queue of which only the totals are known": ReportData(totals=[Total(queue="dark")]),
    "two jobs years apart": of_minutes(
        "rare",
        [
            Minute(queue="rare", minute_ms=START_MS, added=1, completed=1),
            Minute(queue="rare", minute_ms=START_MS + 4 * 365 * 86_400_000, added=1, completed=1),
        ],
    ),
}


@pytest.fixture(scope="module", params=SHAPES)
def shape(request: pytest.FixtureRequest) -> tuple[ReportData, Page]:
    """A report of every shape, read."""
    data = SHAPES[request.param]
    return data, Page(render(data))


def test_every_element_is_closed_and_every_name_is_used_once(
    shape: tuple[ReportData, Page],
) -> None:
    page = shape[1]
    assert page.problems == []
    assert sorted(set(page.ids)) == sorted(page.ids)


def test_every_link_leads_to_a_place_in_the_page(shape: tuple[ReportData, Page]) -> None:
    page = shape[1]
    links = [one.attributes["href"] for one in page.elements if "href" in one.attributes]
    assert links
    assert [link for link in links if link[0] != "#" or link[1:] not in page.ids] == []


def test_the_page_asks_for_nothing_but_itself(shape: tuple[ReportData, Page]) -> None:
    page = shape[1]
    assert not {one.tag for one in page.elements} & {"script", "img", "link", "iframe", "object"}
    assert [one for one in page.elements if {"src", "style", "srcset"} & set(one.attributes)] == []
    assert "url(" not in page.html
    assert "@import" not in page.html
    policy = next(one for one in page.elements if one.attributes.get("http-equiv"))
    assert policy.attributes["content"].startswith("default-src 'none'; style-src 'sha256-")
    addresses = set(re.findall(r"[a-z]+://[^\"'\s<]+", page.html))
    assert addresses <= {"http://www.w3.org/2000/svg"}


def test_every_drawing_is_xml_with_a_description_or_an_ornament(
    shape: tuple[ReportData, Page],
) -> None:
    for drawing in shape[1].drawings:
        if drawing.get("aria-hidden") == "true":
            continue
        assert drawing.get("role") == "img"
        assert len(drawing.get("aria-label", "")) > 20
        texts = ["".join(one.itertext()) for one in drawing.iter(f"{NAMESPACE}text")]
        assert all(texts)
        assert len([one for one in drawing if "axis" in one.get("class", "")]) == 2


def test_every_figure_has_a_title_and_says_what_it_shows(shape: tuple[ReportData, Page]) -> None:
    page = shape[1]
    figures = page.html.split("<figure")[1:]
    for figure in figures:
        assert re.search(r"<h3>[^<]+</h3><p class=\"about\">[^<]+</p></figcaption>", figure)


def test_no_chart_has_more_than_two_hundred_bins(shape: tuple[ReportData, Page]) -> None:
    for drawing in shape[1].drawings:
        assert len([one for one in drawing.iter() if one.get("class") == "hit"]) <= 200


def test_the_same_data_gives_the_same_bytes_in_any_order(shape: tuple[ReportData, Page]) -> None:
    data, page = shape
    turned = ReportData(
        **{table: tuple(reversed(getattr(data, table))) for table in TABLES},
        queries={name: data.queries[name] for name in sorted(data.queries, reverse=True)},
    )
    assert render(turned) == page.html


def test_the_tiles_of_a_queue_say_what_its_totals_say(shape: tuple[ReportData, Page]) -> None:
    data, page = shape
    for number, total in enumerate(sorted(data.totals, key=lambda one: (-one.added, one.queue)), 1):
        section = page.sections[f"queue-{number}"]
        assert section.heading == f"Queue {total.queue}"
        for name in ("added", "completed", "failed", "cancelled", "retried", "stalled"):
            assert section.tiles[name] == f"{getattr(total, name):,}"
        assert section.tiles["unfinished"] == f"{total.unfinished:,}"


def test_the_overview_adds_up_all_queues(shape: tuple[ReportData, Page]) -> None:
    data, page = shape
    tiles = page.sections["overview"].tiles
    if len(data.totals) == 1:
        assert tiles == {}
        return
    for name in ("added", "completed", "failed", "retried", "stalled", "unfinished"):
        assert tiles[name] == f"{sum(getattr(total, name) for total in data.totals):,}"
    rows = page.sections["overview"].tables.get("All queues, the largest first", [])
    assert sorted((row[0], row[2], row[3], row[4]) for row in rows) == sorted(
        (one.queue, f"{one.added:,}", f"{one.completed:,}", f"{one.failed:,}")
        for one in data.totals
    )


def test_the_table_behind_the_charts_adds_up_to_the_totals() -> None:
    page = Page(render(SHAPES["two queues"]))
    for number, total in enumerate(SHAPES["two queues"].totals, 1):
        rows = page.sections[f"queue-{number}"].tables["What happened over time"]
        sums = [sum(int(row[at].replace(",", "")) for row in rows) for at in range(1, 7)]
        assert sums == [
            *(total.added, total.completed, total.failed),
            *(total.retried, total.stalled, total.cancelled),
        ]
        assert rows[-1][7] == f"{total.unfinished:,}"


def test_what_the_pointer_tells_adds_up_to_the_totals() -> None:
    data = SHAPES["ten thousand minutes"]
    page = Page(render(data))
    chart = next(one for one in page.drawings if one.get("aria-label", "").startswith("Throughput"))
    told = ["".join(one.itertext()) for one in chart.iter(f"{NAMESPACE}title")]
    sums = {
        name: sum(_number(name, text) for text in told) for name in ("completed", "failed", "added")
    }
    total = data.totals[0]
    assert sums == {
        "completed": total.completed,
        "failed": total.failed,
        "added": total.added,
    }


def test_the_heat_map_tells_every_hour() -> None:
    data = SHAPES["ten thousand minutes"]
    page = Page(render(data))
    chart = next(
        one for one in page.drawings if one.get("aria-label", "").startswith("Finished jobs by")
    )
    told = ["".join(one.itertext()) for one in chart.iter(f"{NAMESPACE}title")]
    numbers = [_number(":", text) for text in told]
    assert len(numbers) == 24 * 8
    assert sum(numbers) == sum(hour.completed + hour.failed for hour in data.by_hour)


def test_beyond_a_month_the_days_of_the_week_are_added_up() -> None:
    hours = [
        Hour(
            queue="q",
            day=datetime(2026, month, 2, tzinfo=UTC).date(),
            hour=5,
            completed=3,
            failed=1,
        )
        for month in (1, 2, 3)
    ]
    page = Page(render(ReportData(totals=[Total(queue="q")], by_hour=hours)))
    chart = next(one for one in page.drawings if "Finished jobs by" in one.get("aria-label", ""))
    told = ["".join(one.itertext()) for one in chart.iter(f"{NAMESPACE}title")]
    assert len(told) == 7 * 24
    assert "Mon 05:00 UTC: 8 finished" in told  # 2 February and 2 March; 2 January is a Friday
    assert "Fri 05:00 UTC: 4 finished" in told


def test_failure_groups_and_slow_jobs_stand_in_order() -> None:
    data = SHAPES["two queues"]
    page = Page(render(data))
    rows = page.sections["overview"].tables["Failure groups, the largest first"]
    assert [row[2] for row in rows] == [f"{group.count:,}" for group in data.failures[:5]]
    slow = page.sections["queue-1"].tables["Slowest jobs, the longest first"]
    assert [row[0] for row in slow] == [
        job.job_id for job in data.slowest if job.queue == data.totals[0].queue
    ]


def test_gaps_are_named_and_unknown_counts_are_not_zero() -> None:
    page = Page(render(SHAPES["two queues"]))
    rows = page.sections["overview"].tables["Gaps in the events"]
    assert [row[2] for row in rows] == ["1,300", "unknown"]
    assert "lost 1,300\u00a0events and an unknown number more" in page.html


def test_rebuilt_jobs_are_named() -> None:
    total = replace(ONE_JOB.totals[0], reconciled=7, lost=20)
    html = render(replace(ONE_JOB, totals=[total]))
    assert "7\u00a0jobs of this report were rebuilt from the job records" in html


def test_every_figure_shows_the_sql_behind_it() -> None:
    data = SHAPES["two queues"]
    html = render(data)
    for table in TABLES:
        assert f"<summary>SQL of {table}</summary>" in html
        assert f"FROM {table}_of\nWHERE 1 &lt; 2</code>" in html


def test_where_queues_are_many_they_are_folded_and_the_sql_is_told_once() -> None:
    html = render(SHAPES["fifty queues"])
    assert html.count('<details class="queue">') == 50
    assert html.count("SQL of slowest") == 1
    assert len(html) < 3_000_000


def test_the_time_of_making_is_shown_only_where_it_is_given() -> None:
    made_at = datetime(2026, 11, 16, 4, 0, 5, tzinfo=UTC)
    assert "made at" not in render(ONE_JOB)
    assert ">2026-11-16 04:00:05 UTC</time>" in render(ONE_JOB, made_at=made_at)


def test_a_time_of_making_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"has no zone; use datetime\.now\(UTC\)"):
        render(ONE_JOB, made_at=datetime(2026, 11, 16))  # noqa: DTZ001


def _written(queue: str, reason: str, name: str, query: str) -> ReportData:
    minute = Minute(queue=queue, minute_ms=START_MS, added=2, completed=1, failed=1, backlog=9)
    other = Minute(queue="other" + queue, minute_ms=START_MS, added=1, completed=1)
    return ReportData(
        per_minute=[minute, other],
        totals=[Total(queue=queue, added=2, stalled=3), Total(queue="other" + queue, added=1)],
        failures=[
            FailureGroup(
                queue=queue,
                reason_group=reason,
                count=2,
                jobs=1,
                sample_job_id=name,
                sample_reason=reason,
            )
        ],
        slowest=[SlowJob(queue=queue, job_id=name, job_name=name, state=reason, run_ms=5)],
        gaps=[Gap(queue=queue, number=3, count=1)],
        queries={"totals": query, "failures": query},
    )


PLAIN = Page(render(_written("q", "r", "n", "s")))
EVIL = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from("<>&\"'`=/\\\x00\x1b\r\n\t\u202e\u2066\u200b\ufeff\ufffe\uffff\ud800"),
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=50, deadline=None)
@given(queue=EVIL, reason=EVIL, name=EVIL, query=EVIL)
def test_nothing_that_users_wrote_becomes_markup(
    queue: str, reason: str, name: str, query: str
) -> None:
    data = _written(queue, reason, name, query)
    page, plain = Page(render(data)), PLAIN
    assert page.problems == []
    assert [one.tag for one in page.elements] == [one.tag for one in plain.elements]
    assert [set(one.attributes) for one in page.elements] == [
        set(one.attributes) for one in plain.elements
    ]
    for drawing in page.drawings:
        assert drawing.tag == f"{NAMESPACE}svg"
    shown = unescape(page.html)
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", shown
    )
    assert page.html.encode()


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (
            "</title><script>alert(1)</script>",
            "&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;",
        ),
        ('" onmouseover="x', "&quot; onmouseover=&quot;x"),
        ("moc.\u202egpj.exe", "moc.\\u202egpj.exe"),
        ("a\u200bb\ufeff", "a\\u200bb\\ufeff"),
        ("line\nbreak\x1b[31m", "line\\x0abreak\\x1b[31m"),
        ("\U000e0041tag", "\\U000e0041tag"),
        ("שלום", "שלום"),
        ("👩‍🚀 ok", "👩‍🚀 ok"),
    ],
)
def test_what_users_wrote_is_shown_as_it_is_and_as_nothing_else(written: str, shown: str) -> None:
    html = render(_written(written, written, written, "SELECT 1"))
    assert f"<bdi>{shown}</bdi>" in html
    assert written == shown or written not in html


def _number(after: str, text: str) -> int:
    found = re.search(rf"{after} ([\d,]+)", text)
    assert found is not None, text
    return int(found[1].replace(",", ""))


def test_a_report_of_plain_rows_needs_no_spark() -> None:
    code = (
        "import sys, toril.spark.report as report; report.render(report.ReportData());"
        " sys.exit('pyspark' in sys.modules or 'pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
