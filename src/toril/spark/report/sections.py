"""Put the figures of one queue, and of all of them, together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from toril.spark.report import charts, heat, lists
from toril.spark.report.bins import Bin, add_up, choose_bins, fill
from toril.spark.report.charts import Timeline
from toril.spark.report.figure import Figure, show, show_sql
from toril.spark.report.model import Gap, Minute, ReportData, SlaMinute, Total
from toril.spark.report.words import (
    count,
    duration,
    foreign,
    instant,
    percent,
    plain_instant,
    plural,
    safe,
)

BAD_RATE: Final = 0.05
"""A share of failed jobs that is worth a word."""

MOST_ROWS: Final = 10
FEW_ROWS: Final = 5
MOST_BIG: Final = 10
"""Characters of a number that fit into a tile at full size."""

MOST_OPEN: Final = 6
"""With more queues than this their sections are folded, and say only what differs."""


@dataclass(frozen=True, slots=True)
class Tile:
    """One number a reader looks for first; `key` names it for those who read by program."""

    key: str
    name: str
    value: str
    aside: str = ""
    bad: bool = False


def overview(
    data: ReportData, timelines: Mapping[str, Timeline], anchors: Mapping[str, str]
) -> str:
    """Write what holds for all queues; with one queue only what its section does not say."""
    figures: list[Figure] = []
    tiles = ""
    if len(data.totals) != 1:
        rows = {queue: time.rows for queue, time in timelines.items()}
        joined = _joined(timelines)
        longest = [*_longest_times(data.totals), *_sla_tile(joined), *_busiest(joined)]
        tiles = _tiles(_counts(data.totals), longest, data.queries)
        if data.totals:
            figures += [lists.all_queues(data.totals, rows, anchors)]
        if joined is not None:
            figures += [charts.throughput(joined), charts.backlog(joined), charts.trouble(joined)]
            figures += [charts.limits(joined) if data.sla else charts.running(joined)]
        if data.totals:
            figures += [lists.all_latencies(data.totals)]
            figures += [heat.finished_by_hour(data.by_hour), heat.failed_by_hour(data.by_hour)]
            figures += [lists.failure_groups(data.failures, most=FEW_ROWS, named=True)]
            figures += [lists.slowest_jobs(data.slowest, most=FEW_ROWS, named=True)]
            figures += [lists.lost_events(data.gaps, data.totals, most=MOST_ROWS, named=True)]
    return (
        '<section id="overview" aria-labelledby="overview-title">'
        f'<h2 id="overview-title">Overview</h2>{_notes(data, timelines)}'
        f"{tiles}{_figures(figures, data.queries)}</section>"
    )


def queue_section(data: ReportData, total: Total, time: Timeline | None, anchor: str) -> str:
    """Write what one queue did."""
    queue = total.queue
    hours = [row for row in data.by_hour if row.queue == queue]
    figures: list[Figure] = []
    if time is not None:
        figures += [charts.throughput(time), charts.backlog(time), charts.waits(time)]
        figures += [charts.runs(time), charts.trouble(time), charts.running(time)]
        figures += [charts.utilisation(time)]
        figures += [charts.limits(time)] if any(row.queue == queue for row in data.sla) else []
    figures += [
        heat.finished_by_hour(hours),
        heat.failed_by_hour(hours),
        lists.failure_groups(
            [row for row in data.failures if row.queue == queue], most=MOST_ROWS, named=False
        ),
        lists.slowest_jobs(
            [row for row in data.slowest if row.queue == queue], most=MOST_ROWS, named=False
        ),
        lists.lost_events(
            [row for row in data.gaps if row.queue == queue], [total], most=MOST_ROWS, named=False
        ),
    ]
    table = lists.minutes(time) if time is not None and time.talks else ""
    folded = len(data.totals) > MOST_OPEN
    # The SQL is the same for all queues; where they are many it stands in the overview only.
    queries = {} if folded else data.queries
    times = [*_times(total), *_sla_tile(time), *_busiest(time)]
    content = f"{_tiles(_counts([total]), times, queries)}{_figures(figures, queries)}{table}"
    title = f'<h2 id="{anchor}-title">Queue {foreign(queue, 100)}</h2>'
    if not folded:
        return f'<section id="{anchor}" aria-labelledby="{anchor}-title">{title}{content}</section>'
    gist = f"{plural(total.added, 'job')}, {percent(total.failure_rate)} failed"
    return (
        f'<section id="{anchor}" aria-labelledby="{anchor}-title"><details class="queue">'
        f'<summary>{title}<span class="gist">{gist}</span></summary>{content}</details></section>'
    )


def timelines_of(data: ReportData) -> dict[str, Timeline]:
    """Lay all queues over the same time, so that their charts can be compared."""
    minutes: dict[str, list[Minute]] = {total.queue: [] for total in data.totals}
    limits: dict[str, list[SlaMinute]] = {total.queue: [] for total in data.totals}
    for minute in data.per_minute:
        minutes.setdefault(minute.queue, []).append(minute)
    for limit in data.sla:
        limits.setdefault(limit.queue, []).append(limit)
    times = [row.minute_ms for row in data.per_minute] + [row.minute_ms for row in data.sla]
    bins = choose_bins(times)
    if bins is None:
        return {}
    talks = len(data.totals) <= MOST_OPEN
    return {
        queue: Timeline(bins, fill(bins, rows, limits.get(queue, ())), talks)
        for queue, rows in minutes.items()
    }


def _joined(timelines: Mapping[str, Timeline]) -> Timeline | None:
    if not timelines:
        return None
    bins = next(iter(timelines.values())).bins
    return Timeline(bins, add_up(bins, [time.rows for time in timelines.values()]), talks=True)


def _counts(totals: Sequence[Total]) -> list[Tile]:
    failed = sum(total.failed for total in totals)
    finished = failed + sum(total.completed for total in totals)
    stalled = sum(total.stalled for total in totals)
    share = f"{percent(failed / finished)} of finished" if finished else "jobs"
    return [
        Tile("added", "Added", count(sum(total.added for total in totals)), "jobs"),
        Tile("completed", "Completed", count(finished - failed), "jobs"),
        Tile("failed", "Failed", count(failed), share, failed > 0),
        Tile("retried", "Retried", count(sum(total.retried for total in totals)), "attempts"),
        Tile("stalled", "Stalled", count(stalled), "attempts", stalled > 0),
        Tile("cancelled", "Cancelled", count(sum(total.cancelled for total in totals)), "jobs"),
        Tile("unfinished", "Unfinished", count(sum(total.unfinished for total in totals)), "jobs"),
    ]


def _times(total: Total) -> list[Tile]:
    waits = f"p50 {duration(total.wait_p50_ms)}, p99 {duration(total.wait_p99_ms)}"
    runs = f"p50 {duration(total.run_p50_ms)}, p99 {duration(total.run_p99_ms)}"
    return [
        Tile("wait_p95", "Wait, p95", duration(total.wait_p95_ms), waits),
        Tile("run_p95", "Run time, p95", duration(total.run_p95_ms), runs),
    ]


def _longest_times(totals: Sequence[Total]) -> list[Tile]:
    """Percentiles of several queues do not add up; name the queue that is worst off."""
    found: list[Tile] = []
    waits = [(total.wait_p95_ms, total.queue) for total in totals if total.wait_p95_ms is not None]
    if waits:
        value, queue = max(waits)
        found.append(Tile("wait_p95", "Longest wait, p95", duration(value), f"queue {queue}"))
    runs = [(total.run_p95_ms, total.queue) for total in totals if total.run_p95_ms is not None]
    if runs:
        value, queue = max(runs)
        found.append(Tile("run_p95", "Longest run time, p95", duration(value), f"queue {queue}"))
    return found


def _sla_tile(time: Timeline | None) -> list[Tile]:
    if time is None:
        return []
    late = sum(row.breached for row in time.rows)
    known = late + sum(row.within for row in time.rows)
    if not known:
        return []
    return [
        Tile("breached", "SLA breached", count(late), f"{percent(late / known)} of jobs", late > 0)
    ]


def _busiest(time: Timeline | None) -> list[Tile]:
    if time is None:
        return []
    row = max(time.rows, key=lambda one: (_finished(one), -one.start_ms))
    name = f"Busiest {time.bins.per}"
    return [
        Tile("busiest", name, count(_finished(row)), f"finished, {plain_instant(row.start_ms)}")
    ]


def _finished(row: Bin) -> int:
    return row.completed + row.failed


def _notes(data: ReportData, timelines: Mapping[str, Timeline]) -> str:
    """Say in words what happened, and first what needs a look."""
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
    failing = [one for one in data.totals if (one.failure_rate or 0) >= BAD_RATE]
    stalled = [one for one in data.totals if one.stalled]
    growing = [one for one in data.totals if _grows(timelines.get(one.queue))]
    found: list[str] = []
    if gaps:
        fact = f"lost {_lost_words(gaps[worst])}, so its counts are too low"
        found.append(_sentence(worst, fact, len(gaps)))
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


def _tiles(counts: Sequence[Tile], times: Sequence[Tile], queries: Mapping[str, str]) -> str:
    return (
        f'<dl class="tiles">{_cells(counts)}</dl>'
        + (f'<dl class="tiles broad">{_cells(times)}</dl>' if times else "")
        + show_sql("totals", queries.get("totals"))
    )


def _cells(tiles: Sequence[Tile]) -> str:
    return "".join(
        f'<div class="tile{" bad" if tile.bad else ""}" data-of="{tile.key}">'
        f"<dt>{safe(tile.name)}</dt>"
        f"<dd>{_big(tile.value)}<small>{safe(tile.aside)}</small></dd></div>"
        for tile in tiles
    )


def _big(value: str) -> str:
    return (
        f'<b class="long">{safe(value)}</b>' if len(value) > MOST_BIG else f"<b>{safe(value)}</b>"
    )


def _figures(figures: Sequence[Figure], queries: Mapping[str, str]) -> str:
    shown = "".join(show(figure, queries.get(figure.table)) for figure in figures)
    return f'<div class="figures">{shown}</div>' if shown else ""
