"""Fill what lost events leave open from the job records that the storage still has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toril.outcome import CANCELLED
from toril.spark.analytics.silver import SILVER_JOBS
from toril.spark.analytics.silver_queries import ENDED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORD: Final = (
    "queue",
    "id",
    "name",
    "state",
    "created_at",
    "attempts_made",
    "attempts_started",
    "stalls",
    "processed_at",
    "finished_at",
    "worker_id",
    "failure_kind",
    "failure_reason",
)
"""The columns of `toril_jobs` that are looked at."""

_SKEW_S: Final = 60
"""Clients of the BullMQ wire date their jobs themselves, by clocks that may differ."""

_BETWEEN: Final = "greatest(0, unix_millis({stop}) - unix_millis({start}))"

_QUERY: Final = f"""
WITH
queues AS (
  SELECT queue, max(time) AS until FROM {{gaps}} GROUP BY queue
),
records AS (
  SELECT jobs.queue, id AS job_id, name AS job_name, created_at, processed_at, finished_at,
    worker_id, attempts_started, stalls,
    CASE
      WHEN state = 'failed' AND failure_kind = '{CANCELLED}' THEN 'cancelled'
      WHEN state = 'prioritized' THEN 'waiting'
      ELSE state END AS state,
    CASE
      WHEN state = 'completed' THEN NULL
      ELSE nullif(concat_ws(': ', nullif(failure_kind, ''), nullif(failure_reason, '')), '')
      END AS reason,
    greatest(0, attempts_made - IF(state IN ('completed', 'failed'), 1, 0)) AS retries
  FROM {{table}} AS jobs LEFT SEMI JOIN queues ON jobs.queue = queues.queue
),
lives AS (
  SELECT *, life = max(life) OVER (PARTITION BY queue, job_id) AS newest FROM {{silver}}
),
paired AS (
  SELECT s.*, r.state AS r_state, r.created_at, r.processed_at, r.finished_at,
    r.worker_id AS r_worker, r.attempts_started, r.stalls AS r_stalls, r.reason AS r_reason,
    r.retries AS r_retries, r.job_name AS r_name, r.job_id AS r_id,
    -- A record made after all that was heard of the job tells of another life.
    coalesce(r.created_at > s.last_seen, false) AND coalesce(
      r.created_at > timestampadd(SECOND, {_SKEW_S}, s.added), s.added IS NULL) AS reborn,
    s.state NOT IN {ENDED} AND r.job_id IS NULL AND coalesce(s.last_seen <= q.until, false)
      AS vanished
  FROM lives AS s
  LEFT JOIN records AS r ON s.queue = r.queue AND s.job_id = r.job_id AND s.newest
  LEFT JOIN queues AS q ON s.queue = q.queue
),
judged AS (
  SELECT *, r_id IS NOT NULL AND NOT reborn AND (state <> r_state OR added IS NULL
    OR attempts < attempts_started OR stalls < r_stalls) AS corrected
  FROM paired
),
kept AS (
  SELECT queue, job_id, coalesce(job_name, r_name) AS job_name, coalesce(added, IF(corrected,
      created_at, NULL)) AS added,
    coalesce(first_active, IF(corrected AND attempts_started = 1, processed_at, NULL))
      AS first_active,
    IF(corrected, greatest(last_active, processed_at), last_active) AS last_active,
    IF(corrected, IF(r_state IN {ENDED}, finished_at, NULL), finished) AS finished,
    CASE
      WHEN corrected THEN r_state
      WHEN vanished OR (reborn AND state NOT IN {ENDED}) THEN 'gone'
      ELSE state END AS state,
    IF(corrected, greatest(attempts, attempts_started), attempts) AS attempts,
    IF(corrected, greatest(stalls, r_stalls), stalls) AS stalls,
    IF(corrected, greatest(retries, r_retries), retries) AS retries,
    IF(corrected, IF(r_state = 'completed', NULL, coalesce(r_reason, reason)), reason) AS reason,
    wait_ms,
    IF(corrected AND r_state IN ('completed', 'failed', 'cancelled') AND processed_at IS NOT NULL
        AND finished_at IS NOT NULL AND finished IS DISTINCT FROM finished_at,
      {_BETWEEN.format(start="processed_at", stop="finished_at")}, run_ms) AS run_ms,
    IF(corrected, coalesce(r_worker, worker_id), worker_id) AS worker_id,
    IF(corrected OR vanished OR (reborn AND state NOT IN {ENDED}), 'reconciled', source) AS source,
    life, ready, first_seen, last_seen
  FROM judged
),
born AS (
  SELECT r.queue, r.job_id, r.job_name, r.created_at AS added,
    IF(attempts_started = 1, processed_at, NULL) AS first_active, processed_at AS last_active,
    finished_at AS finished, r.state, r.attempts_started AS attempts, r.stalls, r.retries,
    r.reason, CAST(NULL AS BIGINT) AS wait_ms,
    IF(processed_at IS NULL OR finished_at IS NULL, NULL,
      {_BETWEEN.format(start="processed_at", stop="finished_at")}) AS run_ms,
    r.worker_id, 'reconciled' AS source, CAST(NULL AS BIGINT) AS life,
    CAST(NULL AS TIMESTAMP) AS ready, r.created_at AS first_seen,
    greatest(r.created_at, r.processed_at, r.finished_at) AS last_seen
  FROM records AS r
  LEFT ANTI JOIN judged AS s
    ON r.queue = s.queue AND r.job_id = s.job_id AND s.newest AND NOT s.reborn
),
together AS (
  SELECT * FROM kept UNION ALL SELECT * FROM born
)
SELECT *, IF(added IS NULL OR finished IS NULL, NULL,
  {_BETWEEN.format(start="added", stop="finished")}) AS total_ms
FROM together
"""


def reconcile(
    jobs_silver: DataFrame, jobs_table: DataFrame, *, gaps: DataFrame | None = None
) -> DataFrame:
    """Bring silver's jobs in line with `toril_jobs`, read whole; what changes is `reconciled`.

    With `gaps` (columns queue and time, as those of gold), only the queues named there are
    touched, and a job is `gone` only if it was last heard of before a gap.
    """
    session = jobs_silver.sparkSession
    if gaps is None:
        gaps = jobs_table.selectExpr("queue", "TIMESTAMP '9999-12-31 00:00:00' AS time").distinct()
    found = session.sql(_QUERY, silver=jobs_silver, table=jobs_table, gaps=gaps)
    return found.select(*SILVER_JOBS)
