"""Say in words what happened, and first what needs a look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from toril.spark.report.charts import Timeline
from toril.spark.report.model import Gap, ReportData, Total
from toril.spark.report.words import duration, foreign, instant, percent, plural

BAD_RATE: Final = 0.05
"""A share of failed jobs that is worth a word."""


def notes_on(data: ReportData, timelines: Mapping[str, Timeline]) -> str:
    """Write a sentence on everything, and one on each kind of trouble."""
    if not data.totals:
        return '<p class="lead">There are no events to report on.</p>'
    warnings = "".join(f"<li>{text}</li>" for text in _warnings(data, timelines))
    alarm = f'<ul class="warnings" aria-label="Worth a look">{warnings}</ul>' if warnings else ""
    return f'<p class="lead">{_lead(data.totals)}</p>{alarm}'


def _lead(totals: Sequence[Total]) -> str:
    added = sum(total.added for total in totals)
    finished = sum(total.completed + total.failed for total in totals)
    starts = [total.first_event_ms for total in totals if total.first_event_ms is not None]
    ends = [total.last_event_ms for total in totals if total.last_event_ms is not None]
    where = plural(len(totals), "queue") if len(totals) > 1 else f"queue {foreign(totals[0].queue)}"
    text = f"{plural(added, 'job')} added and {plural(finished, 'job')} finished in {where}"
    if not starts or not ends:
        return f"{text}."
    first, last = min(starts), max(ends)
    when = f"from {instant(first, seconds=True)} to {instant(last, seconds=True)}"
    return f"{text}, {when} ({duration(last - first)})."


def _warnings(data: ReportData, timelines: Mapping[str, Timeline]) -> list[str]:
    """One sentence for each kind of trouble, about the queue that has most of it."""
    gaps: dict[str, list[Gap]] = {}
    for gap in data.gaps:
        gaps.setdefault(gap.queue, []).append(gap)
    worst = max(gaps, key=lambda queue: _lost(gaps[queue]), default="")
    unseen = [one for one in data.totals if one.unseen]
    failing = [one for one in data.totals if (one.failure_rate or 0) >= BAD_RATE]
    stalled = [one for one in data.totals if one.stalled]
    growing = [one for one in data.totals if _grows(timelines.get(one.queue))]
    found: list[str] = []
    if gaps:
        fact = f"lost {_lost_words(gaps[worst])}, so its counts are too low"
        found.append(_sentence(worst, fact, len(gaps)))
    if unseen:
        one = max(unseen, key=lambda one: one.unseen)
        fact = f"had {plural(one.unseen, 'job')} or more that were added before its first event"
        found.append(_sentence(one.queue, fact, len(unseen)))
    if failing:
        one = max(failing, key=lambda one: one.failure_rate or 0)
        fact = f"saw {percent(one.failure_rate)} of its jobs fail"
        found.append(_sentence(one.queue, fact, len(failing)))
    if stalled:
        one = max(stalled, key=lambda one: one.stalled)
        fact = f"had {plural(one.stalled, 'stalled attempt')}"
        found.append(_sentence(one.queue, fact, len(stalled)))
    if growing:
        one = max(growing, key=lambda one: one.unfinished)
        fact = "ends with the highest backlog it ever had"
        found.append(_sentence(one.queue, fact, len(growing)))
    return found


def _sentence(queue: str, fact: str, queues: int) -> str:
    more = f"; {plural(queues - 1, 'other queue')} likewise" if queues > 1 else ""
    return f"<b>{foreign(queue, 60)}</b> {fact}{more}."


def _lost(gaps: Sequence[Gap]) -> int:
    return sum(gap.count or 0 for gap in gaps)


def _lost_words(gaps: Sequence[Gap]) -> str:
    known = plural(_lost(gaps), "event")
    if all(gap.count is not None for gap in gaps):
        return known
    return f"{known} and an unknown number more" if _lost(gaps) else "an unknown number of events"


def _grows(time: Timeline | None) -> bool:
    if time is None or len(time.rows) < 3:
        return False
    levels = [row.backlog for row in time.rows]
    return levels[-1] > 10 and levels[-1] == max(levels) and levels[-1] > levels[0]
