"""Retry failed jobs that a condition in Spark SQL chooses."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from toril.errors import InvalidOption, UnsupportedFeature
from toril.options import whole
from toril.spark.flows.jobs import check_where, read_jobs
from toril.spark.flows.pace import Report, batches, silent
from toril.spark.flows.place import Desk, Place
from toril.spark.flows.trouble import plain_errors
from toril.spark.schema import JOBS
from toril.storage.protocol import Ends, Seen, Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SAMPLE: Final = 5
_BATCH: Final = 2000
_CALL: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A failed job that a condition chose."""

    id: str
    name: str
    finished_at: datetime
    attempts: int
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRun:
    """What a replay found and did; without `retried` it only looked.

    `changed` jobs were chosen, but had been retried, removed or ended anew by then; they were
    left alone. `changed_to` counts them by where they are now.
    """

    matched: int
    sample: tuple[Candidate, ...]
    retried: int = 0
    changed: int = 0
    changed_to: Mapping[str, int] = field(default_factory=dict)


def replay(
    spark: SparkSession,
    queue: str,
    where: str,
    *,
    limit: int | None = None,
    dry_run: bool = False,
    url: str | None = None,
    url_env: str | None = None,
    password_file: str | None = None,
    report: Report = silent,
) -> ReplayRun:
    """Put failed jobs back in line, with all their attempts, oldest failure first.

    `where` speaks of the columns of `toril_jobs`. A job is retried only if it is still failed, by
    the very failure that was read. `dry_run` counts and shows, and changes nothing.
    """
    place = Place(flow="replay", queue=queue, url=url, url_env=url_env, password_file=password_file)
    if not where.strip():
        raise InvalidOption("replay: where is empty; to retry all failed jobs say 'true'")
    if limit is not None:
        whole("limit", limit, 1)
    check_where(spark, "replay", where)
    with plain_errors(), place.open() as desk:
        if not isinstance(desk.storage, Ends):
            raise UnsupportedFeature(f"replay: {desk.storage.url} cannot retry jobs by their end")
        chosen = _choose(spark, place, where, limit).persist()
        try:
            matched = chosen.count()
            sample = tuple(_candidate(row) for row in chosen.limit(SAMPLE).collect())
            if dry_run or not matched:
                return ReplayRun(matched=matched, sample=sample)
            rows: Iterator[Any] = chosen.select("id", "at").toLocalIterator()
            seen = (Seen(id=row["id"], finished_ms=row["at"]) for row in rows)
            retried, now = _rerun(desk, queue, seen, matched, report)
        finally:
            chosen.unpersist()
    return ReplayRun(
        matched=matched,
        sample=sample,
        retried=retried,
        changed=matched - retried,
        changed_to=dict(now),
    )


def _choose(spark: SparkSession, place: Place, where: str, limit: int | None) -> DataFrame:
    from pyspark.sql import functions as f

    jobs = read_jobs(spark, place, ["failed"], list(JOBS)).where(where)
    wanted = ("id", "name", "finished_at", "attempts_made", "failure_reason")
    chosen = jobs.select(*wanted, f.unix_millis("finished_at").alias("at")).orderBy("at", "id")
    return chosen if limit is None else chosen.limit(limit)


def _candidate(row: Any) -> Candidate:
    return Candidate(
        id=row["id"],
        name=row["name"],
        finished_at=row["finished_at"],
        attempts=row["attempts_made"],
        reason=row["failure_reason"],
    )


def _rerun(
    desk: Desk, queue: str, seen: Iterator[Seen], total: int, report: Report
) -> tuple[int, Counter[str]]:
    retried, done, now = 0, 0, Counter[str]()
    for batch in batches(seen, _BATCH):
        some, there = desk.call(partial(_rerun_some, queue=queue, seen=batch))
        retried += some
        now += there
        done += len(batch)
        report(done, total, f"{done - retried:,} changed meanwhile" if done > retried else "")
    return retried, now


async def _rerun_some(
    storage: Storage, queue: str, seen: Sequence[Seen]
) -> tuple[int, Counter[str]]:
    assert isinstance(storage, Ends)
    parts = [seen[at : at + _CALL] for at in range(0, len(seen), _CALL)]
    answers = await asyncio.gather(*(storage.rerun(queue, part) for part in parts))
    flags = [flag for answer in answers for flag in answer]
    left = [one.id for one, flag in zip(seen, flags, strict=True) if not flag]
    records = await storage.get(queue, left) if left else []
    return sum(flags), Counter("gone" if one is None else one.state.value for one in records)
