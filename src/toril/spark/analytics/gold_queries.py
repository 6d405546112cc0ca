"""The SQL of gold, over the views `bronze_events`, `silver_jobs` and `silver_attempts`."""

from __future__ import annotations

from typing import Final

from toril.spark.analytics.reasons import reason_group_sql
from toril.spark.schema import GAP

SLOWEST: Final = 50
"""Jobs of each queue that `slowest` names."""

_ENDED: Final = "('completed', 'failed', 'cancelled', 'removed', 'gone')"
_RAN: Final = "('completed', 'failed', 'retried')"
"""Outcomes whose time is the handler's own; a stall is the time until somebody noticed."""


def _percentiles(column: str, name: str) -> str:
    return ", ".join(
        f"percentile({column}, {share}) AS {name}_p{round(share * 100)}_ms"
        for share in (0.5, 0.95, 0.99)
    )


PER_MINUTE: Final = f"""
WITH
spans AS (
  SELECT queue, date_trunc('MINUTE', min(time)) AS first, date_trunc('MINUTE', max(time)) AS last,
    max(time) AS last_event
  FROM bronze_events GROUP BY queue
),
moves AS (
  SELECT queue, date_trunc('MINUTE', coalesce(added, first_seen)) AS minute, 1 AS step
  FROM silver_jobs
  UNION ALL
  SELECT queue, date_trunc('MINUTE', coalesce(finished, last_seen)), -1
  FROM silver_jobs WHERE state IN {_ENDED}
),
flow AS (
  SELECT queue, minute, sum(step) AS step FROM moves GROUP BY queue, minute
),
arrivals AS (
  SELECT queue, date_trunc('MINUTE', added) AS minute, count(*) AS added
  FROM silver_jobs WHERE added IS NOT NULL GROUP BY 1, 2
),
endings AS (
  SELECT queue, date_trunc('MINUTE', finished) AS minute,
    count_if(state = 'completed') AS completed, count_if(state = 'failed') AS failed,
    count_if(state = 'cancelled') AS cancelled
  FROM silver_jobs WHERE finished IS NOT NULL GROUP BY 1, 2
),
waits AS (
  SELECT queue, date_trunc('MINUTE', first_active) AS minute,
    {_percentiles("wait_ms", "wait")}
  FROM silver_jobs WHERE wait_ms IS NOT NULL GROUP BY 1, 2
),
runs AS (
  SELECT queue, date_trunc('MINUTE', ended) AS minute,
    count_if(outcome = 'retried') AS retried, count_if(outcome = 'stalled') AS stalled,
    {_percentiles(f"CASE WHEN outcome IN {_RAN} THEN run_ms END", "run")}
  FROM silver_attempts WHERE ended IS NOT NULL GROUP BY 1, 2
),
held AS (
  SELECT queue, worker_id, started,
    greatest(started, IF(outcome = 'running', last_event, ended)) AS ended,
    -- Without a worker there is nobody whose attempts could overlap.
    coalesce(worker_id, concat(job_id, ' ', life, ' ', attempt)) AS hand
  FROM silver_attempts JOIN spans USING (queue)
  WHERE started IS NOT NULL AND outcome NOT IN ('stalled', 'unknown')
),
fresh AS (
  SELECT *, greatest(started, max(ended) OVER (
    PARTITION BY queue, hand ORDER BY started, ended
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS alone
  FROM held
),
pieces AS (
  SELECT queue, worker_id, minute,
    least(unix_millis(ended), unix_millis(minute) + 60000) AS until_ms,
    greatest(unix_millis(started), unix_millis(minute)) AS from_ms,
    greatest(unix_millis(alone), unix_millis(minute)) AS alone_ms
  FROM fresh LATERAL VIEW explode(sequence(
    date_trunc('MINUTE', started),
    date_trunc('MINUTE', greatest(started, timestampadd(MILLISECOND, -1, ended))),
    INTERVAL 1 MINUTE)) AS minute
),
work AS (
  SELECT queue, minute, sum(until_ms - from_ms) AS busy_ms,
    sum(IF(worker_id IS NULL, 0, greatest(0, until_ms - alone_ms))) AS covered_ms,
    size(collect_set(worker_id)) AS workers
  FROM pieces GROUP BY queue, minute
),
minutes AS (
  SELECT queue, explode(sequence(first, last, INTERVAL 1 MINUTE)) AS minute FROM spans
  UNION SELECT queue, minute FROM flow
  UNION SELECT queue, minute FROM waits
  UNION SELECT queue, minute FROM runs
  UNION SELECT queue, minute FROM work
)
SELECT queue, minute,
  coalesce(added, 0) AS added, coalesce(completed, 0) AS completed, coalesce(failed, 0) AS failed,
  coalesce(retried, 0) AS retried, coalesce(stalled, 0) AS stalled,
  coalesce(cancelled, 0) AS cancelled,
  wait_p50_ms, wait_p95_ms, wait_p99_ms, run_p50_ms, run_p95_ms, run_p99_ms,
  sum(coalesce(step, 0)) OVER (PARTITION BY queue ORDER BY minute) AS backlog,
  coalesce(busy_ms, 0) AS busy_ms, coalesce(workers, 0) AS workers,
  covered_ms / (60000.0D * nullif(workers, 0)) AS utilisation
FROM minutes
LEFT JOIN flow USING (queue, minute)
LEFT JOIN arrivals USING (queue, minute)
LEFT JOIN endings USING (queue, minute)
LEFT JOIN waits USING (queue, minute)
LEFT JOIN runs USING (queue, minute)
LEFT JOIN work USING (queue, minute)
ORDER BY queue, minute
"""

FAILURES: Final = f"""
WITH
failed AS (
  SELECT queue, job_id, reason, ended AS time FROM silver_attempts
  WHERE outcome IN ('failed', 'retried') OR (outcome = 'stalled' AND reason IS NOT NULL)
  UNION ALL
  SELECT queue, job_id, reason, finished FROM silver_jobs AS jobs
  LEFT ANTI JOIN silver_attempts AS told ON jobs.queue = told.queue
    AND jobs.job_id = told.job_id AND jobs.finished = told.ended
  WHERE source = 'reconciled' AND state = 'failed'
),
grouped AS (
  SELECT *, {reason_group_sql("reason")} AS reason_group FROM failed
)
SELECT queue, reason_group, count(*) AS count, count(DISTINCT job_id) AS jobs,
  min(time) AS first, max(time) AS last,
  max(named_struct('time', time, 'job_id', job_id, 'reason', reason)).job_id AS sample_job_id,
  max(named_struct('time', time, 'job_id', job_id, 'reason', reason)).reason AS sample_reason
FROM grouped GROUP BY queue, reason_group
ORDER BY queue, count DESC, reason_group
"""

SLOWEST_JOBS: Final = f"""
SELECT queue, job_id, job_name, run_ms, wait_ms, attempts, state, finished
FROM silver_jobs WHERE run_ms IS NOT NULL
QUALIFY row_number() OVER (PARTITION BY queue ORDER BY run_ms DESC, job_id, life) <= {SLOWEST}
ORDER BY queue, run_ms DESC, job_id, life
"""

BY_HOUR: Final = """
SELECT queue, CAST(finished AS DATE) AS day, hour(finished) AS hour,
  count_if(state = 'completed') AS completed, count_if(state = 'failed') AS failed
FROM silver_jobs WHERE finished IS NOT NULL AND state IN ('completed', 'failed')
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""

GAPS: Final = f"""
SELECT queue, number, count, time FROM bronze_events WHERE kind = '{GAP}' ORDER BY queue, number
"""

TOTALS: Final = f"""
WITH
told AS (
  SELECT queue, sum(IF(kind = '{GAP}', count, 0)) AS lost,
    min(IF(kind = '{GAP}', NULL, time)) AS first_event,
    max(IF(kind = '{GAP}', NULL, time)) AS last_event
  FROM bronze_events GROUP BY queue
),
jobs AS (
  SELECT queue, count(added) AS added,
    count_if(state = 'completed') AS completed, count_if(state = 'failed') AS failed,
    count_if(state = 'cancelled') AS cancelled, count_if(state NOT IN {_ENDED}) AS unfinished,
    count_if(source = 'reconciled') AS reconciled,
    {_percentiles("wait_ms", "wait")}
  FROM silver_jobs GROUP BY queue
),
runs AS (
  SELECT queue, count_if(outcome = 'retried') AS retried, count_if(outcome = 'stalled') AS stalled,
    count_if(outcome IN {_RAN}) AS ran,
    {_percentiles(f"CASE WHEN outcome IN {_RAN} THEN run_ms END", "run")}
  FROM silver_attempts GROUP BY queue
),
queues AS (
  SELECT queue FROM told UNION SELECT queue FROM jobs
)
SELECT queue, coalesce(added, 0) AS added, coalesce(completed, 0) AS completed,
  coalesce(failed, 0) AS failed, coalesce(cancelled, 0) AS cancelled,
  coalesce(retried, 0) AS retried, coalesce(stalled, 0) AS stalled,
  coalesce(unfinished, 0) AS unfinished, coalesce(lost, 0) AS lost,
  coalesce(reconciled, 0) AS reconciled,
  CAST(failed AS DOUBLE) / nullif(completed + failed, 0) AS failure_rate,
  CAST(retried AS DOUBLE) / nullif(ran, 0) AS retry_rate,
  wait_p50_ms, wait_p95_ms, wait_p99_ms, run_p50_ms, run_p95_ms, run_p99_ms,
  first_event, last_event
FROM queues LEFT JOIN told USING (queue) LEFT JOIN jobs USING (queue) LEFT JOIN runs USING (queue)
ORDER BY queue
"""


def sla_query(sla_ms: int | None) -> str:
    """Write the query of `sla`; without a promise nothing is kept or broken."""
    deadline = f"timestampadd(MILLISECOND, {sla_ms or 0}, ready)"
    none = "" if sla_ms is not None else "\n  AND false -- no sla_ms was given"
    return f"""
WITH
spans AS (
  SELECT queue, max(time) AS last_event FROM bronze_events GROUP BY queue
),
judged AS (
  SELECT queue, {deadline} AS deadline, finished,
    state IN ('completed', 'failed') AND finished <= {deadline} AS kept,
    CASE WHEN state IN ('completed', 'failed') THEN finished > {deadline}
      WHEN state NOT IN {_ENDED} THEN last_event > {deadline} ELSE false END AS broken
  FROM silver_jobs LEFT JOIN spans USING (queue)
  WHERE ready IS NOT NULL{none}
)
SELECT queue, date_trunc('MINUTE', IF(kept, finished, deadline)) AS minute,
  count_if(kept) AS within, count_if(broken) AS breached
FROM judged WHERE kept OR broken GROUP BY 1, 2 ORDER BY 1, 2
"""
