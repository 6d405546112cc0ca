"""Write the numbers a reader looks for first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from toril.spark.report.bins import Bin
from toril.spark.report.charts import Timeline
from toril.spark.report.model import Total
from toril.spark.report.words import count, duration, percent, plain_instant, safe

MOST_BIG: Final = 10
"""Characters of a number that fit into a tile at full size."""


@dataclass(frozen=True, slots=True)
class Tile:
    """One number a reader looks for first; `key` names it for those who read by program."""

    key: str
    name: str
    value: str
    aside: str = ""
    bad: bool = False


def tiles_of(totals: Sequence[Total], time: Timeline | None) -> str:
    """Write two rows of numbers: what happened to the jobs, and how long it took."""
    times = _times(totals[0]) if len(totals) == 1 else _longest_times(totals)
    times += [*_sla_tile(time), *_busiest(time)]
    broad = f'<dl class="tiles broad">{_cells(times)}</dl>' if times else ""
    return f'<dl class="tiles">{_cells(_counts(totals))}</dl>{broad}'


def _counts(totals: Sequence[Total]) -> list[Tile]:
    failed = sum(total.failed for total in totals)
    finished = failed + sum(total.completed for total in totals)
    stalled = sum(total.stalled for total in totals)
    share = f"{percent(failed / finished)} of finished" if finished else "jobs"
    return [
        Tile("added", "Added", count(sum(total.added for total in totals)), "jobs"),
        Tile("completed", "Completed", count(finished - failed), "jobs"),
        Tile("failed", "Failed", count(failed), share, failed > 0),
        Tile("retried", "Retried", count(sum(total.retried for total in totals)), _retries(totals)),
        Tile("stalled", "Stalled", count(stalled), "attempts", stalled > 0),
        Tile("cancelled", "Cancelled", count(sum(total.cancelled for total in totals)), "jobs"),
        Tile("unfinished", "Unfinished", count(sum(total.unfinished for total in totals)), "jobs"),
    ]


def _retries(totals: Sequence[Total]) -> str:
    known = len(totals) == 1 and totals[0].retry_rate is not None
    return f"{percent(totals[0].retry_rate)} of attempts" if known else "attempts"


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
