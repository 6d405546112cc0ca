"""Look at everything a queue in a file storage holds, at one moment, past every API."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.faults.dump import Dump, JobView, Step
from toril.storage.file.address import parse_file_url
from toril.storage.file.codec import STATES, read_events
from toril.storage.file.row import COLUMNS, Row


class FileLooker:
    """Takes dumps of one queue."""

    def __init__(self, url: str, queue: str) -> None:
        self._path = parse_file_url(url).directory / "toril.db"
        self._queue = queue

    @contextmanager
    def _snapshot(self) -> Iterator[tuple[sqlite3.Connection, tuple[Any, ...]]]:
        db = sqlite3.connect(self._path, isolation_level=None, timeout=10)
        try:
            db.execute("BEGIN")
            found = db.execute(
                "SELECT key, last, dropped, waiting, prioritized, delayed, active, completed, "
                "failed FROM queues WHERE name = ?",
                (self._queue,),
            ).fetchone()
            yield db, found or (0,) * 9
        finally:
            db.close()

    def counts(self) -> dict[str, int]:
        """Count records by state."""
        with self._snapshot() as (db, queue):
            found = db.execute(
                "SELECT state, count(*) FROM jobs WHERE queue = ? GROUP BY state", (queue[0],)
            )
            return {STATES[state].value: count for state, count in found}

    def close(self) -> None:
        """Hold nothing."""

    def dump(self) -> Dump:
        """Read all of it; counters that disagree with the rows are orphans too."""
        with self._snapshot() as (db, (key, last, dropped, *counters)):
            rows = [
                (Row(values[:-1]), values[-1])
                for values in db.execute(
                    f"SELECT {COLUMNS}, body FROM jobs LEFT JOIN payloads USING (n) "
                    "WHERE queue = ?",
                    (key,),
                )
            ]
            orphans = [f"{row.id}: no payload" for row, body in rows if body is None]
            orphans += [
                f"payload {number} without a job"
                for (number,) in db.execute(
                    "SELECT n FROM payloads WHERE n NOT IN (SELECT n FROM jobs)"
                )
            ]
            for number, counter in enumerate(counters):
                found = sum(row.state == number for row, _ in rows)
                if found != counter:
                    orphans.append(f"{found} jobs are {STATES[number]}, counted are {counter}")
            (problem,) = db.execute("PRAGMA integrity_check(1)").fetchone()
            if problem != "ok":
                orphans.append(problem)
            trail = [
                Step(
                    seq=event.cursor.major,
                    kind=str(event.kind),
                    job=event.job_id,
                    worker=event.worker_id,
                    prev=event.prev,
                    t_ms=event.time_ms,
                )
                for number, time_ms, body in db.execute(
                    "SELECT last, time_ms, body FROM events WHERE queue = ? ORDER BY last", (key,)
                )
                for event in read_events(number, time_ms, body)
            ]
        assert [step.seq for step in trail] == list(range(dropped + 1, last + 1)), "lost events"
        views = [_view(row) for row, _ in rows]
        return Dump(jobs=views, orphans=orphans, trail=trail, whole_trail=dropped == 0)


def _view(row: Row) -> JobView:
    record = row.record(b"")
    return JobView(
        id=row.id,
        label=row.id,
        state=record.state.value,
        places=[record.state.value],
        attempts=record.spec.terms.attempts,
        made=row.made,
        started=row.started,
        stalls=row.stalls,
        owner=row.worker_id,
        result=None if row.result is None else json.loads(row.result),
        failure="" if record.failure is None else f"{record.failure.kind}: {record.failure.reason}",
        progress=None if row.progress is None else json.loads(row.progress),
    )
