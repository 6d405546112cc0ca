"""Look at everything a queue in the BullMQ layout holds, at one moment, past every API."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.faults.dump import TERMINAL, Dump, JobView, Looker, Step
from toril.storage.bullmq import codec
from toril.storage.bullmq.keys import keys_of
from toril.storage.bullmq.observe import cursor_of, read_event

_CONTAINERS = (
    "wait", "paused", "active", "prioritized", "delayed", "completed", "failed", "waiting-children",
)  # fmt: skip
_STATES = {"wait": "waiting", "paused": "waiting"}
_NOT_JOBS = ("meta", "repeat:", "metrics:", "toril-")

# One script, so that no job is seen between two places.
_SNAPSHOT = """
local b = KEYS[1]
local held = {}
for at, name in ipairs(ARGV) do
  local kind = redis.call('TYPE', b .. name).ok
  held[at] = kind == 'list' and redis.call('LRANGE', b .. name, 0, -1)
    or kind == 'zset' and redis.call('ZRANGE', b .. name, 0, -1) or {}
end
local jobs = {}
for _, key in ipairs(redis.call('KEYS', b .. '*')) do
  if redis.call('TYPE', key).ok == 'hash' then
    jobs[#jobs + 1] = { string.sub(key, #b + 1), redis.call('HGETALL', key),
      redis.call('EXISTS', key .. ':lock') }
  end
end
local added = 0
if redis.call('EXISTS', b .. 'events') == 1 then
  local info = redis.call('XINFO', 'STREAM', b .. 'events')
  for at = 1, #info, 2 do if info[at] == 'entries-added' then added = info[at + 1] end end
end
return { held, jobs, redis.call('XRANGE', b .. 'events', '-', '+'), added }
"""
_COUNTS = """
local found = {}
for at, name in ipairs(ARGV) do
  local kind = redis.call('TYPE', KEYS[1] .. name).ok
  found[at] = kind == 'none' and 0
    or redis.call(kind == 'list' and 'LLEN' or 'ZCARD', KEYS[1] .. name)
end
return found
"""


class BullmqLooker(Looker):
    """Takes dumps of one queue; a job's state is the container it lies in."""

    def __init__(self, url: str, queue: str) -> None:
        super().__init__(url, queue)
        self._base = keys_of(self._address, queue).base

    def counts(self) -> dict[str, int]:
        """Count entries by state; cheap enough to poll."""
        found: dict[str, int] = {}
        numbers = self.call("EVAL", _COUNTS, 1, self._base, *_CONTAINERS)
        for name, number in zip(_CONTAINERS, numbers, strict=True):
            state = _STATES.get(name, name)
            found[state] = found.get(state, 0) + number
        return found

    def dump(self) -> Dump:
        """Read all of it."""
        held, found, raw, added = self.call("EVAL", _SNAPSHOT, 1, self._base, *_CONTAINERS)
        jobs = {
            name: (codec.fields_of(flat), bool(locked))
            for name, flat, locked in ((one[0].decode(), *one[1:]) for one in found)
            if not name.startswith(_NOT_JOBS)
        }
        places: dict[str, list[str]] = {job_id: [] for job_id in jobs}
        orphans = []
        for name, entries in zip(_CONTAINERS, held, strict=True):
            for job_id in (entry.decode() for entry in entries):
                if job_id in places:
                    places[job_id].append(_STATES.get(name, name))
                else:
                    orphans.append(f"{job_id}: in {name}, without a record")
        views = []
        for job_id, (fields, locked) in jobs.items():
            views.append(_view(job_id, fields, places[job_id]))
            orphans += _contradictions(views[-1], fields, locked)
        return Dump(
            jobs=views,
            orphans=orphans,
            trail=_trail(raw),
            whole_trail=len(raw) == added,
            names_workers=False,
            tells_retries=False,
        )


def _view(job_id: str, fields: Mapping[bytes, bytes], places: Sequence[str]) -> JobView:
    state = places[0] if places else "nowhere"
    spec = codec.read_spec(job_id, fields)
    failure = codec.read_failure(fields) if state == "failed" else None
    return JobView(
        id=job_id,
        label=job_id,
        state=state,
        places=places,
        attempts=spec.terms.attempts,
        made=codec.attempts_made(fields),
        started=codec.number(fields, b"ats"),
        stalls=codec.number(fields, b"stc"),
        owner=fields[b"pb"].decode() if b"pb" in fields else None,
        result=_json(fields.get(b"returnvalue")) if state == "completed" else None,
        failure="" if failure is None else f"{failure.kind}: {failure.reason}",
        progress=_json(fields.get(b"progress")),
    )


def _contradictions(job: JobView, fields: Mapping[bytes, bytes], locked: bool) -> list[str]:
    """What a job says of itself must fit its container."""
    found = []
    if locked and job.state != "active":
        found.append(f"{job.id}: {job.state}, yet locked")
    if (b"finishedOn" in fields) != (job.state in TERMINAL):
        found.append(f"{job.id}: {job.state}, finishedOn is {fields.get(b'finishedOn')!r}")
    return found


def _trail(raw: Sequence[Any]) -> list[Step]:
    """Read the stream; the wire does not say it, but a job that runs is delayed out of `active`."""
    steps: list[Step] = []
    running: set[str | None] = set()
    for number, entry in enumerate(raw, 1):
        event = read_event(cursor_of(entry[0], number), entry[1])
        if event is None:
            continue
        kind, job, prev = str(event.kind), event.job_id, event.prev
        if kind == "delayed" and job in running:
            prev = "active"
        if kind == "active":
            running.add(job)
        elif prev == "active":
            running.discard(job)
        steps.append(Step(seq=number, kind=kind, job=job, prev=prev, t_ms=event.time_ms))
    return steps


def _json(raw: bytes | None) -> object:
    return None if raw is None else json.loads(raw)
