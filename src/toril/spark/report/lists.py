"""Write what is better read than seen: failure groups, slow jobs, lost events, all queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from toril.spark.report.charts import Timeline
from toril.spark.report.figure import (
    NAME,
    NUMBER,
    WORD,
    Column,
    Figure,
    Key,
    grid_table,
    nothing,
    table,
)
from toril.spark.report.model import FailureGroup, Gap, SlowJob, Total
from toril.spark.report.scale import Axis, duration_axis
from toril.spark.report.svg import meter, span, sparkline
from toril.spark.report.words import (
    NONE,
    count,
    duration,
    foreign,
    instant,
    percent,
    plain_instant,
    plural,
    safe,
)

_PERCENTILES: Final = ("p50", "p95", "p99")


def failure_groups(groups: Sequence[FailureGroup], *, most: int, named: bool) -> Figure:
    """Why attempts failed, the most frequent reason first; `named` tells the queues apart."""
    title, about = "Failure groups", "failed attempts, and the jobs they belong to"
    if not groups:
        body = nothing("Nothing failed.")
        return Figure(title=title, about=about, table="failures", body=body, wide=True)
    highest = max(group.count for group in groups)
    shown = groups[:most]
    columns = [
        Column("Reason"),
        *([Column("Queue", NAME)] if named else []),
        *(Column("Failures", NUMBER), Column("Jobs", NUMBER), Column("First"), Column("Last")),
        Column("For example"),
    ]
    rows = [
        [
            f"{foreign(group.reason_group, 160)}{meter(group.count / highest, 'failed')}",
            *([foreign(group.queue, 60)] if named else []),
            *(count(group.count), count(group.jobs)),
            *(instant(group.first_ms), instant(group.last_ms)),
            _sample(group),
        ]
        for group in shown
    ]
    left = groups[most:]
    return Figure(
        title=title,
        about=about,
        table="failures",
        body=table("Failure groups, the largest first", columns, rows),
        note=f"And {plural(len(left), 'smaller group')} with"
        f" {plural(sum(group.count for group in left), 'failure')}."
        if left
        else "",
        wide=True,
    )


def slowest_jobs(jobs: Sequence[SlowJob], *, most: int, named: bool) -> Figure:
    """The jobs that ran longest."""
    title, about = "Slowest jobs", "run time of the last attempt"
    if not jobs:
        body = nothing("No job has run.")
        return Figure(title=title, about=about, table="slowest", body=body, wide=True)
    shown = jobs[:most]
    longest = max(max(job.run_ms or 0 for job in shown), 1)
    columns = [
        Column("Job"),
        *([Column("Queue", NAME)] if named else []),
        *(
            Column("Name", NAME),
            Column("Run", NUMBER),
            Column("Wait", NUMBER),
            Column("Attempts", NUMBER),
        ),
        *(Column("State", WORD), Column("Finished")),
    ]
    rows = [
        [
            f"{foreign(job.job_id, 80)}{meter((job.run_ms or 0) / longest, 'done')}",
            *([foreign(job.queue, 60)] if named else []),
            NONE if job.job_name is None else foreign(job.job_name, 60),
            *(duration(job.run_ms), duration(job.wait_ms), count(job.attempts)),
            NONE if job.state is None else safe(job.state, 40),
            instant(job.finished_ms, seconds=True),
        ]
        for job in shown
    ]
    body = table("Slowest jobs, the longest first", columns, rows)
    return Figure(title=title, about=about, table="slowest", body=body, wide=True)


def lost_events(gaps: Sequence[Gap], totals: Sequence[Total], *, most: int, named: bool) -> Figure:
    """What the report cannot know."""
    title, about = "Data loss", "events trimmed before they were read"
    reconciled = sum(total.reconciled for total in totals)
    note = (
        f"{plural(reconciled, 'job')} of this report were rebuilt from the job records, because"
        " events were missing; earlier attempts and stalls of those jobs are not known."
        if reconciled
        else ""
    )
    if not gaps:
        unseen = sum(total.unseen for total in totals)
        body = nothing(
            f"The first events were gone before they could be read: the adding of"
            f" {plural(unseen, 'job')} or more is not known."
            if unseen
            else "No event was lost since the first one that was read."
        )
        return Figure(title=title, about=about, table="gaps", body=body, note=note, wide=True)
    shown = gaps[:most]
    columns = [
        *([Column("Queue", NAME)] if named else []),
        *(Column("Found at"), Column("Events lost", NUMBER), Column("Last one lost", NUMBER)),
    ]
    rows = [
        [
            *([foreign(gap.queue, 60)] if named else []),
            instant(gap.time_ms, seconds=True),
            "unknown" if gap.count is None else count(gap.count),
            f"number {gap.number:,}",
        ]
        for gap in shown
    ]
    left = len(gaps) - len(shown)
    more = f"And {plural(left, 'more gap')}. " if left else ""
    return Figure(
        title=title,
        about=about,
        table="gaps",
        body=table("Gaps in the events", columns, rows),
        note=more + note,
        wide=True,
    )


def all_queues(
    totals: Sequence[Total], timelines: Mapping[str, Timeline], anchors: Mapping[str, str]
) -> Figure:
    """One row a queue."""
    columns = [
        *(Column("Queue", NAME), Column("Finished over time"), Column("Added", NUMBER)),
        *(Column("Completed", NUMBER), Column("Failed", NUMBER), Column("Failure rate", NUMBER)),
        *(Column("Retried", NUMBER), Column("Stalled", NUMBER), Column("Unfinished", NUMBER)),
    ]
    rows = [
        [
            f'<a href="#{anchors[total.queue]}">{foreign(total.queue, 100)}</a>',
            _spark(timelines.get(total.queue)),
            *(count(total.added), count(total.completed), count(total.failed)),
            percent(total.failure_rate),
            *(count(total.retried), count(total.stalled), count(total.unfinished)),
        ]
        for total in totals
    ]
    return Figure(
        title="Queues",
        about="jobs; each small picture has a scale of its own",
        table="totals",
        body=table("All queues, the largest first", columns, rows, style="dense"),
        wide=True,
    )


def all_latencies(totals: Sequence[Total]) -> Figure:
    """Percentiles of all queues on two common scales."""
    waits = _axis([(t.wait_p50_ms, t.wait_p95_ms, t.wait_p99_ms) for t in totals])
    runs = _axis([(t.run_p50_ms, t.run_p95_ms, t.run_p99_ms) for t in totals])
    rows = [
        [
            foreign(total.queue, 100),
            _spread(waits, (total.wait_p50_ms, total.wait_p95_ms, total.wait_p99_ms)),
            _spread(runs, (total.run_p50_ms, total.run_p95_ms, total.run_p99_ms)),
        ]
        for total in totals
    ]
    columns = [Column("Queue", NAME), Column("Wait"), Column("Run time")]
    return Figure(
        title="Latency by queue",
        about="percentiles of all jobs; a column has one scale" + _log(waits, runs),
        table="totals",
        keys=[Key(f"dot {name}", name) for name in _PERCENTILES],
        body=table("Wait and run time by queue", columns, rows),
        wide=True,
    )


def minutes(time: Timeline) -> str:
    """The numbers behind the charts over time, as a table that can be copied."""
    columns = [
        Column(f"From (UTC), per {time.bins.per}"),
        *(Column(name, NUMBER) for name in ("Added", "Completed", "Failed", "Retried", "Stalled")),
        *(Column(name, NUMBER) for name in ("Cancelled", "Backlog")),
        *(Column(f"{what} {p}", NUMBER) for what in ("Wait", "Run") for p in _PERCENTILES),
    ]
    rows = [
        [
            plain_instant(row.start_ms),
            *(count(row.added), count(row.completed), count(row.failed), count(row.retried)),
            *(count(row.stalled), count(row.cancelled), count(row.backlog)),
            *(duration(row.wait_p50_ms), duration(row.wait_p95_ms), duration(row.wait_p99_ms)),
            *(duration(row.run_p50_ms), duration(row.run_p95_ms), duration(row.run_p99_ms)),
        ]
        for row in time.rows
    ]
    return (
        '<details class="numbers"><summary>The charts as a table</summary>'
        f"{grid_table('What happened over time', columns, rows)}</details>"
    )


def _spark(time: Timeline | None) -> str:
    if time is None:
        return NONE
    return sparkline([row.completed + row.failed for row in time.rows], time.bins.pad)


def _sample(group: FailureGroup) -> str:
    job = "" if group.sample_job_id is None else f"job {foreign(group.sample_job_id, 60)}"
    reason = "" if group.sample_reason is None else foreign(group.sample_reason, 300)
    return ": ".join(part for part in (job, reason) if part) or NONE


def _axis(spreads: Sequence[tuple[float | None, ...]]) -> Axis:
    return duration_axis([value for spread in spreads for value in spread if value is not None])


def _spread(axis: Axis, values: tuple[float | None, float | None, float | None]) -> str:
    low, middle, high = values
    if low is None or middle is None or high is None:
        return NONE
    text = " · ".join(duration(value) for value in values)
    return f"{span(axis, low, middle, high)}{text}"


def _log(waits: Axis, runs: Axis) -> str:
    logs = [name for name, axis in (("wait", waits), ("run time", runs)) if axis.log]
    return f" ({' and '.join(logs)}: log scale)" if logs else ""
