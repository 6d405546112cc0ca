"""What a report says in words, before any figure."""

from __future__ import annotations

import re

from tests.spark.report_data import START_MS, of_minutes, together
from toril.spark.report.model import Gap, Minute, ReportData, Total
from toril.spark.report.notes import notes_on
from toril.spark.report.page import render
from toril.spark.report.sections import timelines_of


def said(data: ReportData) -> tuple[str, list[str]]:
    """The first sentence, and the warnings, without markup."""
    html = notes_on(data, timelines_of(data)).replace("\u00a0", " ")
    lead, *rest = re.split(r"</p>|</li>", html)
    texts = [re.sub(r"<[^>]+>", "", part) for part in (lead, *rest)]
    return texts[0], [text for text in texts[1:] if text]


def test_nothing_is_said_about_nothing() -> None:
    assert said(ReportData()) == ("There are no events to report on.", [])


def test_the_first_sentence_counts_jobs_and_names_the_time() -> None:
    total = Total(
        queue="mail", added=3, completed=1, first_event_ms=START_MS, last_event_ms=START_MS + 90_000
    )
    assert said(ReportData(totals=[total])) == (
        (
            "3 jobs added and 1 job finished in queue mail,"
            " from 2026-11-18 11:06:00 UTC to 2026-11-18 11:07:30 UTC (1 min 30 s)."
        ),
        [],
    )


def test_each_kind_of_trouble_is_told_once_about_the_worst_queue() -> None:
    data = ReportData(
        totals=[
            Total(queue="a", failure_rate=0.06, stalled=1),
            Total(queue="b", failure_rate=0.5, stalled=7),
            Total(queue="c", failure_rate=0.049),
        ],
        gaps=[
            Gap(queue="a", number=5, count=4),
            Gap(queue="c", number=5, count=10),
            Gap(queue="c", number=9),
        ],
    )
    assert said(data)[1] == [
        (
            "c lost 10 events and an unknown number more, so its counts are too low;"
            " 1 other queue likewise."
        ),
        "b saw 50 % of its jobs fail; 1 other queue likewise.",
        "b had 7 stalled attempts; 1 other queue likewise.",
    ]


def test_an_unknown_loss_is_not_a_loss_of_nothing() -> None:
    data = ReportData(totals=[Total(queue="a")], gaps=[Gap(queue="a", number=5)])
    assert said(data)[1] == ["a lost an unknown number of events, so its counts are too low."]


def test_a_backlog_that_only_grows_is_worth_a_word() -> None:
    def queue(name: str, *levels: int) -> ReportData:
        return of_minutes(
            name,
            [
                Minute(queue=name, minute_ms=START_MS + at * 60_000, added=level, backlog=level)
                for at, level in enumerate(levels)
            ],
        )

    both = together(queue("up", 3, 40, 90), queue("down", 90, 40, 30), queue("still", 50, 50, 50))
    assert said(both)[1] == ["up ends with the highest backlog it ever had."]


def test_jobs_that_were_there_before_the_first_event_are_told_of() -> None:
    data = ReportData(totals=[Total(queue="a", added=2, completed=5, failed=1, unfinished=1)])
    assert said(data)[1] == ["a had 5 jobs or more that were added before its first event."]
    assert "No event was lost" not in render(data)
    assert "the adding of 5\u00a0jobs or more is not known" in render(data)
