"""Reconciling: what lost events leave open is filled from the job records, and marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.histories import Told, frame_of
from toril.spark.analytics.reconcile import reconcile
from toril.spark.analytics.silver import silver_jobs
from toril.spark.schema import JOBS, ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GAP_MS = 100_000


class Log:
    """Events of a queue, written down one after the other."""

    def __init__(self) -> None:
        self.events: list[Told] = []

    def tell(self, job_id: str, *kinds: str, at: int = 1_000, queue: str = "q") -> None:
        """Let a job go through some kinds, a second each."""
        for step, kind in enumerate(kinds):
            event: Told = {"kind": kind, "time_ms": at + 1_000 * step, "job_id": job_id}
            self.events.append({**event, "queue": queue, "number": len(self.events) + 1})


def record(job_id: str, state: str, **fields: Any) -> dict[str, Any]:
    """A row of `toril_jobs`; times in ms."""
    return {
        "queue": "q",
        "id": job_id,
        "name": "mail",
        "state": state,
        "created_at": 1_000,
        "attempts_made": 0,
        "attempts_started": 0,
        "stalls": 0,
        **fields,
    }


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[str, list[dict[str, Any]]]:
    """All cases at once, by job."""
    log = Log()
    for job_id in ("ended", "vanished", "cancelled", "same", "retried"):
        log.tell(job_id, "added", "waiting")
    log.tell("same", "active", "completed", at=3_000)
    log.tell("again", "added", "waiting", "active", "completed")
    log.tell("replaced", "added", "waiting")
    log.tell("late", "added", "waiting", at=GAP_MS + 1_000)
    log.tell("elsewhere", "added", "waiting", queue="whole")
    ran = {"attempts_made": 1, "attempts_started": 1, "processed_at": 5_000, "finished_at": 6_500}
    table = [
        record("ended", "completed", worker_id="w1", **ran),
        record("cancelled", "failed", failure_kind="JobCancelled", failure_reason="so", **ran),
        record("same", "completed", **{**ran, "processed_at": 3_000, "finished_at": 4_000}),
        record("retried", "delayed", attempts_made=1, attempts_started=2, stalls=1,
               processed_at=7_000, failure_kind="ValueError", failure_reason="no 7"),
        record("again", "prioritized", created_at=90_000),
        record("replaced", "active", created_at=90_000, attempts_started=1, processed_at=91_000),
        record("unheard", "failed", created_at=50_000, attempts_made=2, attempts_started=2,
               processed_at=60_000, finished_at=61_000, failure_kind="E", failure_reason="bad"),
        record("late", "waiting", created_at=GAP_MS + 1_000),
        record("elsewhere", "completed", queue="whole", **ran),
    ]  # fmt: skip
    kinds = {name: "bigint" if kind == "timestamp" else kind for name, kind in JOBS.items()}
    rows = [tuple(row.get(name) for name in JOBS) for row in table]
    records = spark.createDataFrame(rows, ddl(kinds)).selectExpr(
        *(
            f"timestamp_millis({name}) AS {name}" if kind == "timestamp" else name
            for name, kind in JOBS.items()
        )
    )
    gaps = spark.sql(f"SELECT 'q' AS queue, timestamp_millis({GAP_MS}) AS time")
    silver = reconcile(silver_jobs(frame_of(spark, log.events)), records, gaps=gaps)
    times = ("added", "first_active", "last_active", "finished")
    chosen = silver.selectExpr(
        "*", *(f"unix_millis({name}) AS {name}_at" for name in times)
    ).orderBy("job_id", "added")
    jobs: dict[str, list[dict[str, Any]]] = {}
    for row in chosen.collect():
        jobs.setdefault(row["job_id"], []).append(row.asDict())
    return jobs


Found = dict[str, list[dict[str, Any]]]


def tell(job: dict[str, Any], *names: str) -> tuple[Any, ...]:
    """Some columns of a job."""
    return tuple(job[name] for name in names)


def test_an_end_that_was_lost_is_taken_from_the_record(found: Found) -> None:
    (job,) = found["ended"]
    assert tell(job, "state", "source", "attempts", "worker_id") == (
        "completed",
        "reconciled",
        1,
        "w1",
    )
    assert tell(job, "added_at", "first_active_at", "finished_at") == (1_000, 5_000, 6_500)
    assert tell(job, "run_ms", "total_ms") == (1_500, 5_500)


def test_a_job_nothing_was_heard_of_is_made_of_its_record(found: Found) -> None:
    (job,) = found["unheard"]
    assert tell(job, "state", "source", "attempts", "retries") == ("failed", "reconciled", 2, 1)
    assert tell(job, "reason", "added_at", "last_active_at") == ("E: bad", 50_000, 60_000)
    assert tell(job, "first_active", "wait_ms", "run_ms", "life") == (None, None, 1_000, None)


def test_a_job_without_a_record_is_gone(found: Found) -> None:
    (job,) = found["vanished"]
    assert tell(job, "state", "source", "finished") == ("gone", "reconciled", None)


def test_a_job_cancelled_while_it_ran_is_known_by_its_kind(found: Found) -> None:
    (job,) = found["cancelled"]
    assert tell(job, "state", "source") == ("cancelled", "reconciled")


def test_attempts_that_were_lost_are_counted(found: Found) -> None:
    (job,) = found["retried"]
    assert tell(job, "state", "attempts", "stalls", "retries") == ("delayed", 2, 1, 1)
    assert tell(job, "reason", "finished") == ("ValueError: no 7", None)


def test_what_agrees_is_left_as_the_events_told_it(found: Found) -> None:
    assert tell(found["same"][0], "state", "source") == ("completed", "events")
    assert tell(found["late"][0], "state", "source") == ("waiting", "events")


def test_an_id_that_was_added_again_has_a_second_life(found: Found) -> None:
    first, second = found["again"]
    assert tell(first, "state", "source") == ("completed", "events")
    assert tell(second, "state", "source", "added_at") == ("waiting", "reconciled", 90_000)
    first, second = found["replaced"]
    assert tell(first, "state", "source") == ("gone", "reconciled")
    assert tell(second, "state", "source") == ("active", "reconciled")


def test_a_queue_without_gaps_is_left_alone(found: Found) -> None:
    (job,) = found["elsewhere"]
    assert tell(job, "state", "source") == ("waiting", "events")
