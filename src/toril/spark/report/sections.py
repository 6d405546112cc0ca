"""Put the figures of one queue, and of all of them, together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from toril.spark.report import charts, heat, lists
from toril.spark.report.bins import add_up, choose_bins, fill
from toril.spark.report.charts import Timeline
from toril.spark.report.figure import Figure, show, show_sql
from toril.spark.report.model import Minute, ReportData, SlaMinute, Total
from toril.spark.report.notes import notes_on
from toril.spark.report.tiles import tiles_of
from toril.spark.report.words import foreign, percent, plural

MOST_ROWS: Final = 10
FEW_ROWS: Final = 5

MOST_OPEN: Final = 6
"""With more queues than this their sections are folded, and say only what differs."""


def overview(
    data: ReportData, timelines: Mapping[str, Timeline], anchors: Mapping[str, str]
) -> str:
    """Write what holds for all queues; with one queue only what its section does not say."""
    figures: list[Figure] = []
    tiles = ""
    if len(data.totals) != 1:
        joined = _joined(timelines)
        tiles = _tiles(data.totals, joined, data.queries)
        if data.totals:
            figures += [lists.all_queues(data.totals, timelines, anchors)]
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
        f'<h2 id="overview-title">Overview</h2>{notes_on(data, timelines)}'
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
    content = f"{_tiles([total], time, queries)}{_figures(figures, queries)}{table}"
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


def _tiles(totals: Sequence[Total], time: Timeline | None, queries: Mapping[str, str]) -> str:
    return tiles_of(totals, time) + show_sql("totals", queries.get("totals"))


def _figures(figures: Sequence[Figure], queries: Mapping[str, str]) -> str:
    shown = "".join(show(figure, queries.get(figure.table)) for figure in figures)
    return f'<div class="figures">{shown}</div>' if shown else ""
