"""The SQL of silver: cut each job's events into lives, each life into attempts.

`{events}` and `{segments}` are filled in by Spark's `sql(text, events=frame)`.
"""

from __future__ import annotations

from typing import Final

TOLD: Final = (
    "added",
    "waiting",
    "delayed",
    "waiting-children",
    "active",
    "completed",
    "failed",
    "retrying",
    "stalled",
    "cancelled",
    "removed",
)
"""The kinds that change a job; silver reads no others."""

ENDED: Final = ("completed", "failed", "cancelled", "removed", "gone")
"""The states of a life that is over; `gone`: it left without a word."""

_CANCELLED: Final = (
    r"^JobCancelled(:|$)|^job \x27.*\x27 was cancelled while it ran$"
    r"|^cancelled while it ran; its worker is gone$"
)
"""How a job ends that was cancelled while it ran; the BullMQ wire keeps the message alone."""

_TOLD: Final = ", ".join(f"'{kind}'" for kind in TOLD)

AFTER_END: Final = "(kind = 'removed' AND coalesce(prev, '') IN ('completed', 'failed'))"
"""The removal of a finished job: news only if its end was not told."""

_BY_ITSELF: Final = "(kind = 'failed' AND coalesce(prev, 'active') = 'active')"
"""A failed attempt, not a job that fails in line because its children did."""


def _between(start: str, stop: str) -> str:
    """Milliseconds between two times; a clock that was set back makes no time negative."""
    return (
        f"IF({start} IS NULL OR {stop} IS NULL, NULL,"
        f" greatest(0, unix_millis({stop}) - unix_millis({start})))"
    )


SEGMENTS: Final = f"""
WITH
told AS (
  SELECT queue, job_id, number, 2 * number + IF(kind = 'retrying', 0, 1) AS place, kind, time,
    job_name, attempt, worker_id, prev, reason, delay_ms, duration_ms,
    kind = 'cancelled' OR (kind = 'failed' AND coalesce(reason RLIKE r'{_CANCELLED}', false))
      AS cancelled
  FROM {{events}} WHERE job_id IS NOT NULL AND kind IN ({_TOLD})
),
lived AS (
  SELECT *,
    coalesce(
      max(IF(kind = 'added', number, NULL)) OVER so_far, first_value(number) OVER so_far) AS life,
    max(IF(kind IN ('delayed', 'waiting-children'), place, NULL)) OVER so_far AS held,
    lag(kind) OVER in_order AS kind_before, lag(prev) OVER in_order AS prev_before
  FROM told
  WINDOW in_order AS (PARTITION BY queue, job_id ORDER BY place),
    so_far AS (PARTITION BY queue, job_id ORDER BY place
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
),
begun AS (
  -- An ending of a job that was not running: the event of its start is missing.
  SELECT *, CASE
      WHEN kind = 'active' THEN true
      WHEN kind IN ('completed', 'retrying') THEN NOT kind_before <=> 'active'
      WHEN {_BY_ITSELF} THEN coalesce(kind_before, '') NOT IN ('active', 'stalled')
      WHEN kind = 'stalled' THEN NOT (
        kind_before <=> 'active' OR (kind_before <=> 'waiting' AND prev_before <=> 'active'))
      ELSE false END AS begins
  FROM lived
),
cut AS (
  SELECT *, count_if(begins) OVER (PARTITION BY queue, job_id ORDER BY place
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS segment
  FROM begun
),
segments AS (
  SELECT queue, job_id, life, segment,
    max(IF(begins, named_struct('place', place,
      'attempt', IF(kind = 'retrying', attempt - 1, attempt),
      'time', IF(kind = 'active', time, NULL)), NULL)) AS start,
    min(IF(kind IN ('completed', 'retrying', 'stalled') OR {_BY_ITSELF},
      named_struct('place', place, 'kind', kind, 'time', time, 'duration_ms', duration_ms,
        'cancelled', cancelled), NULL)) AS ending,
    min(IF(kind IN ('waiting', 'delayed', 'waiting-children', 'cancelled', 'removed'),
      named_struct('place', place, 'kind', IF({AFTER_END}, 'ended', kind),
        'time', IF({AFTER_END}, NULL, time)), NULL)) AS back,
    max(IF(kind <> 'removed', named_struct('place', place, 'kind', kind, 'time', time,
      'cancelled', cancelled), NULL)) AS word,
    max(IF(kind = 'removed', named_struct('place', place, 'prev', prev, 'time', time), NULL))
      AS removal,
    max(IF(kind IN ('delayed', 'waiting-children'), named_struct('place', place, 'due',
      IF(kind = 'delayed', timestampadd(MILLISECOND, delay_ms, time), NULL)), NULL)) AS hold,
    -- The first after the last hold.
    min(IF(kind = 'waiting', named_struct('order', coalesce(-held, 1), 'place', place,
      'time', time), NULL))
      AS lined,
    max(IF(kind IN ('failed', 'retrying') AND reason IS NOT NULL,
      named_struct('place', place, 'reason', reason), NULL)) AS failure,
    max(IF(job_name IS NOT NULL, named_struct('place', place, 'name', job_name), NULL)) AS naming,
    max(IF(worker_id IS NOT NULL, named_struct('place', place, 'id', worker_id), NULL)) AS worker,
    max(IF(kind = 'added', time, NULL)) AS added,
    count_if(kind = 'retrying') AS retries, count_if(kind = 'stalled') AS stalls,
    min(IF({AFTER_END}, NULL, time)) AS first_seen, max(IF({AFTER_END}, NULL, time)) AS last_seen
  FROM cut GROUP BY queue, job_id, life, segment
),
whole AS (
  SELECT *,
    coalesce(start.time, timestampadd(MILLISECOND, -ending.duration_ms, ending.time)) AS started,
    coalesce(ending.time, back.time) AS ended,
    max(word) OVER of_life AS last_word,
    max(removal) OVER of_life AS last_removal,
    max(naming) OVER of_life AS last_naming,
    max(life) OVER (PARTITION BY queue, job_id) AS newest,
    max(segment) OVER of_life AS last_segment,
    count_if(start IS NOT NULL) OVER (PARTITION BY queue, job_id, life ORDER BY segment
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS turn
  FROM segments
  WINDOW of_life AS (PARTITION BY queue, job_id, life)
)
SELECT queue, job_id, life, segment, start, ending, back, hold, lined, failure, worker, added,
  retries, stalls, first_seen, last_seen, last_word, last_removal, last_segment,
  last_naming.name AS job_name, started, ended,
  coalesce(ending.duration_ms, {_between("started", "ended")}) AS run_ms,
  -- Attempts are counted; where one tells a higher number, those between are missing.
  turn + max(greatest(coalesce(start.attempt, turn), turn) - turn) OVER (
    PARTITION BY queue, job_id, life ORDER BY segment
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS attempt,
  CASE
    WHEN last_word.cancelled THEN 'cancelled'
    WHEN last_word.kind IN ('completed', 'failed') THEN last_word.kind
    WHEN last_removal.place > coalesce(last_word.place, -1) THEN
      IF(last_removal.prev IN ('completed', 'failed'), last_removal.prev, 'removed')
    WHEN life < newest THEN 'gone'
    WHEN last_word.kind IN ('delayed', 'active', 'waiting-children') THEN last_word.kind
    ELSE 'waiting' END AS state
FROM whole
-- Of a job that ended before the first event there is, its removal alone makes no life.
WHERE last_word IS NOT NULL OR NOT coalesce(last_removal.prev, '') IN ('completed', 'failed')
"""

ATTEMPTS: Final = """
WITH timed AS (
  SELECT *, CASE
      WHEN ending.cancelled THEN 'cancelled'
      WHEN ending.kind = 'retrying' THEN 'retried'
      WHEN ending.kind IS NOT NULL THEN ending.kind
      WHEN back.kind = 'ended' THEN 'unknown'
      WHEN back.kind IN ('cancelled', 'removed') THEN 'cancelled'
      WHEN back.kind IS NOT NULL THEN 'released'
      WHEN state = 'active' AND segment = last_segment THEN 'running'
      ELSE 'unknown' END AS outcome
  FROM {segments} WHERE start IS NOT NULL
)
SELECT queue, job_id, job_name, CAST(attempt AS INT) AS attempt, started, ended, outcome,
  IF(outcome IN ('failed', 'retried', 'stalled', 'cancelled'), failure.reason, NULL) AS reason,
  worker.id AS worker_id, run_ms, life
FROM timed
"""

JOBS: Final = f"""
WITH
lives AS (
  SELECT queue, job_id, life, max(job_name) AS job_name, max(added) AS added,
    max(state) AS state, max(last_word) AS word, max(last_removal) AS removal,
    max(IF(start IS NULL, hold, NULL)) AS hold, min(IF(start IS NULL, lined, NULL)) AS lined,
    min(IF(start IS NULL, NULL, named_struct('attempt', attempt, 'started', started))) AS first,
    max(IF(start IS NULL, NULL, named_struct('attempt', attempt, 'started', started,
      'run_ms', run_ms))) AS last,
    max(failure) AS failure, max(worker) AS worker,
    sum(retries) AS retries, sum(stalls) AS stalls,
    min(first_seen) AS first_seen, max(last_seen) AS last_seen
  FROM {{segments}} GROUP BY queue, job_id, life
),
timed AS (
  SELECT *,
    IF(first.attempt = 1, first.started, NULL) AS first_active,
    CASE
      WHEN added IS NULL THEN NULL
      WHEN hold IS NULL THEN added
      WHEN lined.place > hold.place THEN least(hold.due, lined.time)
      ELSE hold.due END AS ready,
    CASE
      WHEN word.cancelled OR word.kind IN ('completed', 'failed') THEN word.time
      WHEN state = 'removed' THEN removal.time END AS finished
  FROM lives
)
SELECT queue, job_id, job_name, added, first_active, last.started AS last_active, finished, state,
  CAST(coalesce(last.attempt, 0) AS INT) AS attempts, CAST(stalls AS INT) AS stalls,
  CAST(retries AS INT) AS retries, IF(state = 'completed', NULL, failure.reason) AS reason,
  {_between("ready", "first_active")} AS wait_ms, last.run_ms AS run_ms,
  {_between("added", "finished")} AS total_ms, worker.id AS worker_id, 'events' AS source, life,
  ready, first_seen,
  IF(finished IS NULL AND state IN ('completed', 'failed'), removal.time, last_seen) AS last_seen
FROM timed
"""

STRANGERS: Final = f"""
SELECT queue, job_id FROM (
  SELECT queue, job_id, min(2 * number + IF(kind = 'retrying', 0, 1)) AS first,
    min(IF(kind = 'added', 2 * number + 1, NULL)) AS added
  FROM {{events}}
  WHERE job_id IS NOT NULL AND kind IN ({_TOLD}) AND NOT {AFTER_END}
  GROUP BY queue, job_id
) LEFT ANTI JOIN {{open}} USING (queue, job_id)
WHERE added IS NULL OR first < added
"""
"""Jobs that something new is told of though they were over, or never heard of."""

OPEN: Final = f"""
SELECT events.* FROM {{events}} AS events
JOIN (
  SELECT DISTINCT queue, job_id, life FROM {{segments}} WHERE NOT state IN {ENDED}
) AS open
ON events.queue = open.queue AND events.job_id = open.job_id AND events.number >= open.life
WHERE events.kind IN ({_TOLD})
"""
"""The events of lives that are not over."""
