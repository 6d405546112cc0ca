"""Gold in plain Python, from rows of silver: counted one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from math import ceil, floor
from typing import Any

from tests.spark.histories import Told
from tests.spark.reference import ms
from toril.spark.analytics.reasons import reason_group
from toril.spark.analytics.silver import SILVER_ATTEMPTS, SILVER_JOBS
from toril.spark.schema import GAP

MINUTE = 60_000
OVER = {"completed", "failed", "cancelled", "removed", "gone"}
RAN = {"completed", "failed", "retried"}

Row = dict[str, Any]
Rows = list[tuple[Any, ...]]


class Book:
    """Events and silver, and the figures that follow."""

    def __init__(self, events: Sequence[Told], jobs: Rows, attempts: Rows) -> None:
        self.events = events
        self.jobs: list[Row] = [dict(zip(SILVER_JOBS, row, strict=True)) for row in jobs]
        self.attempts: list[Row] = [
            dict(zip(SILVER_ATTEMPTS, row, strict=True)) for row in attempts
        ]
        self.first: dict[str, int] = {}
        self.last: dict[str, int] = {}
        for event in events:
            queue = str(event["queue"])
            self.first[queue] = min(self.first.get(queue, ms(event)), ms(event))
            self.last[queue] = max(self.last.get(queue, 0), ms(event))

    def per_minute(self) -> Rows:
        """Go through all minutes of all queues."""
        rows: Rows = []
        for queue in self.first:
            jobs = [job for job in self.jobs if job["queue"] == queue]
            attempts = [one for one in self.attempts if one["queue"] == queue]
            held = list(self._held(queue, attempts))
            for minute in self._minutes(queue, jobs, attempts, held):
                rows.append((queue, minute, *_minute_row(minute, jobs, attempts, held)))
        return sorted(rows, key=repr)

    def _held(self, queue: str, attempts: list[Row]) -> Iterator[tuple[str | None, int, int]]:
        for one in attempts:
            if one["started"] is not None and one["outcome"] not in ("stalled", "unknown"):
                ended = self.last[queue] if one["outcome"] == "running" else one["ended"]
                yield one["worker_id"], one["started"], max(one["started"], ended)

    def _minutes(
        self,
        queue: str,
        jobs: list[Row],
        attempts: list[Row],
        held: list[tuple[str | None, int, int]],
    ) -> list[int]:
        found = set(range(of(self.first[queue]), of(self.last[queue]) + MINUTE, MINUTE))
        found |= {of(enters(job)) for job in jobs}
        found |= {of(leaves(job)) for job in jobs if job["state"] in OVER}
        found |= {of(job["first_active"]) for job in jobs if job["wait_ms"] is not None}
        found |= {of(one["ended"]) for one in attempts if one["ended"] is not None}
        for _, start, stop in held:
            found |= set(range(of(start), max(stop, start + 1), MINUTE))
        return sorted(found)

    def failures(self) -> Rows:
        """Group what failed."""
        groups: dict[tuple[str, str], list[tuple[int, str, str | None]]] = defaultdict(list)
        for one in self.attempts:
            doomed = one["outcome"] == "stalled" and one["reason"] is not None
            if one["outcome"] in ("failed", "retried") or doomed:
                key = (one["queue"], reason_group(one["reason"]))
                groups[key].append((one["ended"], one["job_id"], one["reason"]))
        rows: Rows = []
        for key, found in groups.items():
            times = [time for time, _, _ in found]
            sample = max(found, key=lambda one: (one[0], one[1], one[2] or ""))
            jobs = len({job_id for _, job_id, _ in found})
            rows.append((*key, len(found), jobs, min(times), max(times), *sample[1:]))
        return sorted(rows, key=repr)

    def slowest(self, count: int) -> Rows:
        """Order by time."""
        names = ("queue", "job_id", "job_name", "run_ms", "wait_ms", "attempts", "state")
        rows: Rows = []
        for queue in self.first:
            ran = [j for j in self.jobs if j["queue"] == queue and j["run_ms"] is not None]
            ran.sort(key=lambda job: (-job["run_ms"], job["job_id"], job["life"]))
            for job in ran[:count]:
                rows.append((*(job[name] for name in names), job["finished"]))
        return sorted(rows, key=repr)

    def sla(self, sla_ms: int) -> Rows:
        """Judge each job when it is decided."""
        counts: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
        for job in self.jobs:
            if job["ready"] is None:
                continue
            deadline = job["ready"] + sla_ms
            if job["state"] in ("completed", "failed"):
                if job["finished"] is None:
                    continue
                late = job["finished"] > deadline
            elif job["state"] not in OVER and self.last[job["queue"]] > deadline:
                late = True
            else:
                continue
            minute = of(deadline if late else job["finished"])
            counts[job["queue"], minute][late] += 1
        return sorted(((*key, *found) for key, found in counts.items()), key=repr)

    def totals(self) -> Rows:
        """Add up each queue."""
        rows: Rows = []
        for queue in self.first:
            jobs = [job for job in self.jobs if job["queue"] == queue]
            attempts = [one for one in self.attempts if one["queue"] == queue]
            told = [event for event in self.events if event["queue"] == queue]
            real = [ms(event) for event in told if event["kind"] != GAP]
            done = count(jobs, state="completed")
            failed = count(jobs, state="failed")
            retried = count(attempts, outcome="retried")
            ran = [one for one in attempts if one["outcome"] in RAN]
            lost = sum(int(str(event["count"])) for event in told if event["kind"] == GAP)
            rows.append(
                (
                    queue,
                    sum(job["added"] is not None for job in jobs),
                    done,
                    failed,
                    count(jobs, state="cancelled"),
                    retried,
                    count(attempts, outcome="stalled"),
                    sum(job["state"] not in OVER for job in jobs),
                    lost,
                    0,
                    failed / (done + failed) if done + failed else None,
                    retried / len(ran) if ran else None,
                    *percentiles(job["wait_ms"] for job in jobs),
                    *percentiles(one["run_ms"] for one in ran),
                    min(real),
                    max(real),
                )
            )
        return sorted(rows, key=repr)

    def by_hour(self) -> Rows:
        """Sort endings by day and hour."""
        counts: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0])
        for job in self.jobs:
            if job["state"] in ("completed", "failed") and job["finished"] is not None:
                time = datetime.fromtimestamp(job["finished"] / 1000, UTC)
                counts[job["queue"], time.date(), time.hour][job["state"] == "failed"] += 1
        return sorted(((*key, *found) for key, found in counts.items()), key=repr)

    def gaps(self) -> Rows:
        """List what was lost."""
        return sorted(
            ((e["queue"], e["number"], e["count"], ms(e)) for e in self.events if e["kind"] == GAP),
            key=repr,
        )


def _minute_row(
    minute: int,
    jobs: list[Row],
    attempts: list[Row],
    held: list[tuple[str | None, int, int]],
) -> tuple[Any, ...]:
    stop = minute + MINUTE
    ended = [job for job in jobs if job["finished"] is not None and of(job["finished"]) == minute]
    tried = [one for one in attempts if one["ended"] is not None and of(one["ended"]) == minute]
    begun = [j for j in jobs if j["wait_ms"] is not None and of(j["first_active"]) == minute]
    inside = [one for one in held if one[1] < stop and max(one[2], one[1] + 1) > minute]
    workers = {worker for worker, _, _ in inside if worker is not None}
    covered = sum(
        cover((max(a, minute), min(b, stop)) for who, a, b in inside if who == worker)
        for worker in workers
    )
    return (
        sum(job["added"] is not None and of(job["added"]) == minute for job in jobs),
        count(ended, state="completed"),
        count(ended, state="failed"),
        count(tried, outcome="retried"),
        count(tried, outcome="stalled"),
        count(ended, state="cancelled"),
        *percentiles(job["wait_ms"] for job in begun),
        *percentiles(one["run_ms"] for one in tried if one["outcome"] in RAN),
        sum(enters(job) < stop for job in jobs)
        - sum(job["state"] in OVER and leaves(job) < stop for job in jobs),
        sum(min(b, stop) - max(a, minute) for _, a, b in inside),
        len(workers),
        covered / (60000.0 * len(workers)) if workers else None,
    )


def cover(spans: Iterable[tuple[int, int]]) -> int:
    """How much time is covered by at least one span."""
    total = reach = 0
    for start, stop in sorted(spans):
        total += max(0, stop - max(start, reach))
        reach = max(reach, stop)
    return total


def percentiles(values: Iterable[int | None]) -> tuple[float | None, ...]:
    """The middle, and the 95th and 99th of a hundred, between neighbours by distance."""
    known = sorted(value for value in values if value is not None)
    return tuple(_percentile(known, share) for share in (0.5, 0.95, 0.99))


def _percentile(known: list[int], share: float) -> float | None:
    if not known:
        return None
    place = (len(known) - 1) * share
    low, high = known[floor(place)], known[ceil(place)]
    if low == high:
        return float(low)
    return (ceil(place) - place) * low + (place - floor(place)) * high


def count(rows: Iterable[Row], **wanted: str) -> int:
    """How many rows have these values."""
    return sum(all(row[name] == value for name, value in wanted.items()) for row in rows)


def enters(job: Row) -> int:
    """When a job joins the backlog."""
    return int(job["first_seen"] if job["added"] is None else job["added"])


def leaves(job: Row) -> int:
    """When a job that is over leaves the backlog."""
    return int(job["last_seen"] if job["finished"] is None else job["finished"])


def of(time_ms: int) -> int:
    """The minute of a time."""
    return time_ms - time_ms % MINUTE
