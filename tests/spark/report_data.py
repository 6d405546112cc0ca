"""Make report data without Spark: a lively queue, and the shapes that break layouts."""

from __future__ import annotations

import math
import random
from datetime import date, timedelta
from typing import Final

from toril.spark.report.model import (
    FailureGroup,
    Gap,
    Hour,
    Minute,
    ReportData,
    SlaMinute,
    SlowJob,
    Total,
    arrange,
)

START_MS: Final = 1_795_000_000_000 // 60_000 * 60_000
TABLES: Final = ("per_minute", "failures", "slowest", "sla", "totals", "by_hour", "gaps")
REASONS: Final = (
    ("ConnectionError: the peer at <ip> hung up", "ConnectionError: the peer at 10.0.0.7 hung up"),
    ("ValueError: order <n> has no weight", "ValueError: order 4711 has no weight"),
    ("TimeoutError: no answer within <n> s", "TimeoutError: no answer within 30 s"),
    ("job stalled more than allowable limit", "job stalled more than allowable limit"),
)


def busy_queue(name: str, minutes: int, seed: int, *, sla: bool = True) -> ReportData:
    """Some hours of a queue with a daily rhythm, a bad quarter of an hour and a slow recovery."""
    dice = random.Random(seed)
    rows: list[Minute] = []
    backlog = 0
    for number in range(minutes):
        wave = 1 + 0.8 * math.sin(number / max(minutes, 40) * 9)
        added = round(dice.uniform(60, 110) * wave)
        bad = minutes // 3 <= number < minutes // 3 + max(minutes // 8, 1)
        room = 50 if bad else 130
        ended = min(backlog + added, round(room * dice.uniform(0.85, 1.1)))
        failed = round(ended * (0.2 if bad else 0.01))
        cancelled = min(backlog + added - ended, dice.choice((0, 0, 0, 2)))
        backlog += added - ended - cancelled
        wait = 4 + backlog * 9.5
        run = dice.uniform(35, 60) * (4 if bad else 1)
        rows.append(
            Minute(
                queue=name,
                minute_ms=START_MS + number * 60_000,
                added=added,
                completed=ended - failed,
                failed=failed,
                retried=failed * 2 + dice.choice((0, 1)),
                stalled=3 if bad and number % 4 == 0 else 0,
                cancelled=cancelled,
                wait_p50_ms=wait,
                wait_p95_ms=wait * 3.5,
                wait_p99_ms=wait * 7,
                run_p50_ms=run,
                run_p95_ms=run * 4,
                run_p99_ms=run * 22,
                backlog=backlog,
                busy_ms=round(ended * run * 2),
                workers=4,
                utilisation=min(ended * run * 2 / 60_000 / 4 * 8, 1.0),
            )
        )
    return of_minutes(name, rows, sla=sla)


def of_minutes(name: str, rows: list[Minute], *, sla: bool = False) -> ReportData:
    """The other tables that go with these minutes of one queue."""
    completed, failed = sum(row.completed for row in rows), sum(row.failed for row in rows)
    retried = sum(row.retried for row in rows)
    last = rows[-1]
    total = Total(
        queue=name,
        added=sum(row.added for row in rows),
        completed=completed,
        failed=failed,
        cancelled=sum(row.cancelled for row in rows),
        retried=retried,
        stalled=sum(row.stalled for row in rows),
        unfinished=last.backlog,
        failure_rate=failed / (completed + failed) if completed + failed else None,
        retry_rate=retried / (completed + failed + retried) if completed + failed else None,
        wait_p50_ms=last.wait_p50_ms,
        wait_p95_ms=last.wait_p95_ms,
        wait_p99_ms=last.wait_p99_ms,
        run_p50_ms=last.run_p50_ms,
        run_p95_ms=last.run_p95_ms,
        run_p99_ms=last.run_p99_ms,
        first_event_ms=rows[0].minute_ms + 1234,
        last_event_ms=last.minute_ms + 45_678,
    )
    return arrange(
        ReportData(
            per_minute=rows,
            totals=[total],
            failures=_failures(name, rows, failed + retried),
            slowest=_slowest(name, rows),
            sla=[_kept(row) for row in rows] if sla else (),
            by_hour=_hours(name, rows),
            queries={table: f"SELECT *\nFROM {table}_of\nWHERE 1 < 2" for table in TABLES},
        )
    )


def together(*parts: ReportData, gaps: tuple[Gap, ...] = ()) -> ReportData:
    """The data of several queues as one."""
    return arrange(
        ReportData(
            per_minute=[row for part in parts for row in part.per_minute],
            failures=[row for part in parts for row in part.failures],
            slowest=[row for part in parts for row in part.slowest],
            sla=[row for part in parts for row in part.sla],
            totals=[row for part in parts for row in part.totals],
            by_hour=[row for part in parts for row in part.by_hour],
            gaps=[*(row for part in parts for row in part.gaps), *gaps],
            queries=parts[0].queries,
        )
    )


def _failures(name: str, rows: list[Minute], number: int) -> list[FailureGroup]:
    groups: list[FailureGroup] = []
    for group, sample in REASONS:
        share = number * 2 // 3 if len(groups) < len(REASONS) - 1 else number
        number -= share
        if share:
            groups.append(
                FailureGroup(
                    queue=name,
                    reason_group=group,
                    count=share,
                    jobs=max(share // 2, 1),
                    first_ms=rows[0].minute_ms,
                    last_ms=rows[-1].minute_ms,
                    sample_job_id=f"01kag3f5w{share:017}",
                    sample_reason=sample,
                )
            )
    return groups


def _slowest(name: str, rows: list[Minute]) -> list[SlowJob]:
    return [
        SlowJob(
            queue=name,
            job_id=f"01kag3f5w{number:017}",
            job_name="thumbnail" if number % 2 else "email",
            run_ms=90_000 // (number + 1),
            wait_ms=350 * number,
            attempts=1 + number % 3,
            state="failed" if number % 3 == 2 else "completed",
            finished_ms=rows[-1].minute_ms + number * 997,
        )
        for number in range(min(10, sum(row.completed for row in rows)))
    ]


def _kept(row: Minute) -> SlaMinute:
    ended = row.completed + row.failed
    late = ended // 4 if (row.wait_p95_ms or 0) > 5000 else 0
    return SlaMinute(queue=row.queue, minute_ms=row.minute_ms, within=ended - late, breached=late)


def _hours(name: str, rows: list[Minute]) -> list[Hour]:
    ended: dict[int, list[int]] = {}
    for row in rows:
        field = ended.setdefault(row.minute_ms // 3_600_000, [0, 0])
        field[0] += row.completed
        field[1] += row.failed
    return [
        Hour(
            queue=name,
            day=date(1970, 1, 1) + timedelta(days=hour // 24),
            hour=hour % 24,
            completed=completed,
            failed=failed,
        )
        for hour, (completed, failed) in ended.items()
    ]
