"""Draw what happened over time: one chart, one question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from toril.spark.report.bins import Bin, Bins
from toril.spark.report.figure import Figure, Key, chart, nothing
from toril.spark.report.scale import (
    Axis,
    count_axis,
    duration_axis,
    level_axis,
    share_axis,
    time_ticks,
)
from toril.spark.report.svg import Hit, area, bars, line, plot, steps
from toril.spark.report.words import count, day, duration, moment, percent, plain_instant

_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Timeline:
    """What one queue, or all of them, did over time; `talks` gives texts under the pointer."""

    bins: Bins
    rows: Sequence[Bin]
    talks: bool


@dataclass(frozen=True, slots=True)
class Part:
    """One of several counts that are stacked."""

    style: str
    name: str
    of: Callable[[Bin], int]


@dataclass(frozen=True, slots=True)
class Curve:
    """One of several durations in a chart."""

    style: str
    name: str
    of: Callable[[Bin], float | None]


_DONE: Final = Part("done", "completed", lambda row: row.completed)
_FAILED: Final = Part("failed", "failed", lambda row: row.failed)
_RETRIED: Final = Part("retried", "retried", lambda row: row.retried)
_STALLED: Final = Part("stalled", "stalled", lambda row: row.stalled)
_CANCELLED: Final = Part("cancelled", "cancelled", lambda row: row.cancelled)
_WITHIN: Final = Part("done", "within", lambda row: row.within)
_BREACHED: Final = Part("failed", "breached", lambda row: row.breached)

_WAITS: Final = (
    Curve("p50", "p50", lambda row: row.wait_p50_ms),
    Curve("p95", "p95", lambda row: row.wait_p95_ms),
    Curve("p99", "p99", lambda row: row.wait_p99_ms),
)
_RUNS: Final = (
    Curve("p50", "p50", lambda row: row.run_p50_ms),
    Curve("p95", "p95", lambda row: row.run_p95_ms),
    Curve("p99", "p99", lambda row: row.run_p99_ms),
)


def throughput(time: Timeline) -> Figure:
    """Jobs that ended, and jobs that arrived."""
    unit = f"jobs per {time.bins.per}"
    parts = (_DONE, _FAILED)
    arrivals = [row.added for row in time.rows]
    axis = count_axis(max(*_sums(time.rows, parts), *arrivals, 0))
    shapes = [
        *_stack(time, parts, axis),
        steps([axis.place(value) for value in arrivals], time.bins.pad, "stroke added"),
    ]
    label = (
        f"Throughput in {unit}: {_peak(time, lambda row: row.completed + row.failed)} finished"
        f" at most; in all {_all(time, _DONE)} completed, {_all(time, _FAILED)} failed,"
        f" {count(sum(arrivals))} added."
    )

    def talk(row: Bin) -> str:
        return f"completed {row.completed:,}, failed {row.failed:,}, added {row.added:,}"

    return Figure(
        title="Throughput",
        about=f"jobs that ended, stacked, and jobs that were added, per {time.bins.per}",
        table="per_minute",
        keys=(*_keys(parts), Key("line added", "added")),
        body=_draw(time, label, unit, axis, shapes, talk),
    )


def backlog(time: Timeline) -> Figure:
    """Jobs that were there and not finished."""
    levels = [row.backlog for row in time.rows]
    axis = count_axis(max(levels, default=0))
    shares = [axis.place(level) for level in levels]
    pad = time.bins.pad
    label = (
        f"Backlog in jobs at the end of every {time.bins.per}: at most"
        f" {_peak(time, lambda row: row.backlog)}, {count(levels[-1])} at the end."
    )
    return Figure(
        title="Backlog",
        about=f"unfinished jobs at the end of every {time.bins.per}, delayed ones included",
        table="per_minute",
        keys=(Key("line backlog", "unfinished"),),
        body=_draw(
            time,
            label,
            "jobs",
            axis,
            [area(shares, pad, "area backlog"), steps(shares, pad, "stroke backlog")],
            lambda row: f"backlog {row.backlog:,}",
        ),
    )


def waits(time: Timeline) -> Figure:
    """How long jobs waited for their first start."""
    return _latency(time, "Wait", "from due to first start", _WAITS)


def runs(time: Timeline) -> Figure:
    """How long the handlers ran."""
    return _latency(time, "Run time", "of an attempt", _RUNS)


def trouble(time: Timeline) -> Figure:
    """Attempts that did not end a job, or ended it early."""
    parts = (_RETRIED, _STALLED, _CANCELLED)
    about = "attempts that will be repeated, attempts lost by a worker, jobs given up"
    return _counted(time, "Retries, stalls and cancellations", about, "events", parts, "per_minute")


def limits(time: Timeline) -> Figure:
    """Jobs that kept to the limit, and jobs that did not."""
    kept, broken = _total(time, _WITHIN), _total(time, _BREACHED)
    about = "jobs that ended within the time agreed, and jobs that did not"
    figure = _counted(time, "SLA breaches", about, "jobs", (_WITHIN, _BREACHED), "sla")
    if not kept + broken:
        return figure
    share = percent(broken / (kept + broken))
    return Figure(
        title=figure.title,
        about=figure.about,
        table=figure.table,
        keys=figure.keys,
        body=figure.body,
        note=f"{count(broken)} of {count(kept + broken)} jobs ({share}) took longer than agreed.",
    )


def utilisation(time: Timeline) -> Figure:
    """How much of the workers' time was spent in handlers."""
    title = "Worker utilisation"
    about = "share of the time in which a worker of that minute had a job to do"
    known = [row.utilisation for row in time.rows if row.utilisation is not None]
    if not known:
        body = nothing("The events name no worker, so nobody can tell.")
        return Figure(title=title, about=about, table="per_minute", body=body)
    axis = share_axis(max(known))
    shares = [None if row.utilisation is None else axis.place(row.utilisation) for row in time.rows]
    zeroed = [share or 0.0 for share in shares]
    mean = sum(known) / len(known)
    label = f"Worker utilisation in per cent: {percent(max(known))} at most, {percent(mean)} mean."
    return Figure(
        title=title,
        about=about,
        table="per_minute",
        keys=(Key("line busy", "busy"),),
        note=_coarse(time, "mean"),
        body=_draw(
            time,
            label,
            "per cent",
            axis,
            [area(zeroed, time.bins.pad, "area busy"), line(shares, time.bins.pad, "stroke busy")],
            lambda row: f"{percent(row.utilisation)} busy, {row.workers:,} workers",
        ),
    )


def running(time: Timeline) -> Figure:
    """How many jobs ran at the same time."""
    levels = [row.busy_ms / time.bins.step_ms for row in time.rows]
    title = "Running at once"
    about = f"attempts in progress, the mean over every {time.bins.per}"
    if not any(levels):
        body = nothing("No job has run.")
        return Figure(title=title, about=about, table="per_minute", body=body)
    axis = level_axis(max(levels))
    shares = [axis.place(level) for level in levels]
    pad = time.bins.pad
    label = (
        f"Attempts in progress, the mean over every {time.bins.per}: {max(levels):,.1f} at most."
    )
    return Figure(
        title=title,
        about=about,
        table="per_minute",
        keys=(Key("line busy", "running"),),
        body=_draw(
            time,
            label,
            "attempts",
            axis,
            [area(shares, pad, "area busy"), steps(shares, pad, "stroke busy")],
            lambda row: f"{row.busy_ms / time.bins.step_ms:,.1f} running",
        ),
    )


def _latency(time: Timeline, name: str, what: str, curves: Sequence[Curve]) -> Figure:
    values = [
        value for curve in curves for row in time.rows if (value := curve.of(row)) is not None
    ]
    about = f"time {what}, percentiles of each minute"
    if not values:
        body = nothing("No job got that far.")
        return Figure(title=name, about=about, table="per_minute", body=body)
    axis = duration_axis(values)
    shapes = [
        line(
            [_share(axis, curve.of(row)) for row in time.rows],
            time.bins.pad,
            f"stroke {curve.style}",
        )
        for curve in curves
    ]
    worst = ", ".join(f"{curve.name} {duration(_highest(time, curve))}" for curve in curves)

    def talk(row: Bin) -> str:
        return ", ".join(f"{curve.name} {duration(curve.of(row))}" for curve in curves)

    return Figure(
        title=name,
        about=about,
        table="per_minute",
        keys=[Key(f"line {curve.style}", curve.name) for curve in curves],
        note=_coarse(time, "highest"),
        body=_draw(
            time,
            f"{name}, {what}: highest percentiles of a minute are {worst}.",
            "duration, log scale" if axis.log else "duration",
            axis,
            shapes,
            talk,
        ),
    )


def _counted(
    time: Timeline, title: str, about: str, of: str, parts: Sequence[Part], table: str
) -> Figure:
    unit = f"{of} per {time.bins.per}"
    highest = max(_sums(time.rows, parts), default=0)
    names = ", ".join(f"{_all(time, part)} {part.name}" for part in parts)
    if not highest:
        return Figure(title=title, about=about, table=table, body=nothing("There were none."))
    axis = count_axis(highest)

    def talk(row: Bin) -> str:
        return ", ".join(f"{part.name} {part.of(row):,}" for part in parts)

    return Figure(
        title=title,
        about=about,
        table=table,
        keys=_keys(parts),
        body=_draw(
            time, f"{title} in {unit}: in all {names}.", unit, axis, _stack(time, parts, axis), talk
        ),
    )


def _draw(
    time: Timeline,
    label: str,
    y_title: str,
    axis: Axis,
    shapes: Sequence[str],
    talk: Callable[[Bin], str],
) -> str:
    bins = time.bins
    hits = [
        Hit(slot + bins.pad, f"{plain_instant(row.start_ms)}: {talk(row)}")
        for slot, row in enumerate(time.rows)
    ]
    return chart(
        plot(
            label,
            y_title=y_title,
            y_axis=axis,
            x_title=_x_title(bins),
            x_ticks=time_ticks(bins.drawn_from_ms, bins.drawn_to_ms),
            slots=bins.slots,
            shapes=shapes,
            hits=hits if time.talks else (),
        )
    )


def _x_title(bins: Bins) -> str:
    """Name the zone and the days, which the ticks leave out."""
    first, last = bins.drawn_from_ms, bins.drawn_to_ms - 1
    if first // _DAY_MS == last // _DAY_MS:
        return f"time (UTC), {day(first, year=True)}"
    if moment(first).year == moment(last).year:
        return f"time (UTC), {day(first)} – {day(last, year=True)}"
    return f"time (UTC), {day(first, year=True)} – {day(last, year=True)}"


def _stack(time: Timeline, parts: Sequence[Part], axis: Axis) -> list[str]:
    floors = [0] * len(time.rows)
    shapes: list[str] = []
    for part in parts:
        tops = [floor + part.of(row) for floor, row in zip(floors, time.rows, strict=True)]
        shapes.append(
            bars(
                [axis.place(top) for top in tops],
                [axis.place(floor) for floor in floors],
                time.bins.pad,
                part.style,
            )
        )
        floors = tops
    return shapes


def _highest(time: Timeline, curve: Curve) -> float | None:
    known = [value for row in time.rows if (value := curve.of(row)) is not None]
    return max(known, default=None)


def _sums(rows: Sequence[Bin], parts: Sequence[Part]) -> list[int]:
    return [sum(part.of(row) for part in parts) for row in rows]


def _keys(parts: Sequence[Part]) -> list[Key]:
    return [Key(part.style, part.name) for part in parts]


def _total(time: Timeline, part: Part) -> int:
    return sum(part.of(row) for row in time.rows)


def _all(time: Timeline, part: Part) -> str:
    return count(_total(time, part))


def _peak(time: Timeline, of: Callable[[Bin], int]) -> str:
    return count(max((of(row) for row in time.rows), default=0))


def _share(axis: Axis, value: float | None) -> float | None:
    return None if value is None else axis.place(value)


def _coarse(time: Timeline, which: str) -> str:
    """Say what a point stands for where it covers more than one minute."""
    if time.bins.per == "minute":
        return ""
    return f"One point per {time.bins.per}: the {which} of its minutes."
