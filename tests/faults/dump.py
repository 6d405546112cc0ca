"""Look at everything a queue holds, at one moment, past every API."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from toril.resp.sync import SyncClient
from toril.resp.url import parse_url
from toril.storage.redis import codec

# One script, so that no job is seen between two places.
_SNAPSHOT = """
local b = KEYS[1]
local function all(key) return redis.call('ZRANGE', b .. key, 0, -1) end
return { redis.call('HGETALL', b .. 'jobs'), redis.call('HGETALL', b .. 'ended'),
         redis.call('HGETALL', b .. 'specs'),
         redis.call('HGETALL', b .. 'results'), redis.call('HGETALL', b .. 'progress'),
         redis.call('LRANGE', b .. 'queue', 0, -1), all('prioritized'), all('delayed'),
         all('processing'), all('completed'), all('failed'),
         redis.call('XRANGE', b .. 'events', '-', '+'),
         redis.call('HGET', b .. 'meta', 'e') or '0' }
"""
_PLACES = ("prioritized", "delayed", "active", "completed", "failed")
_STATES = ("waiting", "prioritized", "delayed", "active", "completed", "failed")
_WORDS = {state[0]: state for state in _STATES}
TERMINAL = frozenset({"completed", "failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job as it lies there. `label` is what its producer calls it: for us, the id."""

    id: str
    label: str
    state: str
    places: Sequence[str]
    attempts: int = 3
    made: int = 0
    started: int = 0
    stalls: int = 0
    owner: str | None = None
    result: object = None
    failure: str = ""
    progress: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One event in the server's own order."""

    seq: int
    kind: str
    job: str | None
    worker: str | None = None
    prev: str | None = None
    t_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """A queue at one moment; `trail` is empty where the server keeps none.

    `names_workers`, `tells_retries`: whether the trail says who did it, and that an attempt failed
    and another follows. The BullMQ wire says neither.
    """

    jobs: Sequence[JobView] = ()
    orphans: Sequence[str] = ()
    trail: Sequence[Step] = ()
    whole_trail: bool = True
    names_workers: bool = True
    tells_retries: bool = True
    by_id: Mapping[str, JobView] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_id", {job.id: job for job in self.jobs})

    @property
    def live(self) -> list[JobView]:
        """Jobs that have not ended."""
        return [job for job in self.jobs if job.state not in TERMINAL]


class Looker:
    """Takes dumps of one queue in the lean layout."""

    def __init__(self, url: str, queue: str) -> None:
        self._address = parse_url(url)
        self._client = SyncClient(self._address)
        self._base = f"{{{self._address.prefix or 'jq'}:{queue}}}:"

    def call(self, *args: str | bytes | int) -> Any:
        """Send a command to the server of the queue."""
        return self._client.call(self._base, *args)

    def key(self, name: str) -> str:
        """A key of the queue."""
        return self._base + name

    def counts(self) -> dict[str, int]:
        """Count records by state; cheap enough to poll."""
        ended = [_open_up(blob)[0] for blob in self.call("HVALS", self.key("ended"))]
        raw = [*self.call("HVALS", self.key("jobs")), *ended]
        found: dict[str, int] = {}
        for one in raw:
            word = _WORDS.get(cast("str", codec.unpack(one)[0]), "ghost")
            found[word] = found.get(word, 0) + 1
        return found

    def close(self) -> None:
        """Let the connection go."""
        self._client.close()

    def dump(self) -> Dump:
        """Read all of it."""
        jobs, ended, specs, results, progress, line, *rest = self.call(
            "EVAL", _SNAPSHOT, 1, self._base
        )
        raw, last = rest[-2:]
        opened = {job_id: _open_up(blob) for job_id, blob in _pairs(ended).items()}
        spec_of, result_of, progress_of = _pairs(specs), _pairs(results), _pairs(progress)
        result_of |= {job_id: result for job_id, (_, result) in opened.items() if result}
        records = _pairs(jobs) | {job_id: record for job_id, (record, _) in opened.items()}
        places, orphans = _places(records, line, dict(zip(_PLACES, rest, strict=False)))
        orphans += [f"{job_id}: both ended and not" for job_id in _pairs(jobs).keys() & opened]
        views = []
        for job_id, blob in records.items():
            record = codec.unpack(blob)
            if record[0] == "g":
                continue
            if job_id not in spec_of:
                orphans.append(f"{job_id}: record without a spec")
                continue
            views.append(
                _view(job_id, record, spec_of[job_id], result_of.get(job_id), places[job_id])
            )
            text = progress_of.get(job_id)
            if text is not None:
                object.__setattr__(views[-1], "progress", json.loads(text))
        orphans += [f"{job_id}: spec without a record" for job_id in spec_of.keys() - places.keys()]
        trail = [
            Step(
                seq=event.cursor.major,
                kind=str(event.kind),
                job=event.job_id,
                worker=event.worker_id,
                prev=event.prev,
                t_ms=event.time_ms,
            )
            for entry in raw
            for event in codec.read_entry(entry[0], entry[1][1])
        ]
        whole = len(trail) == int(last)
        return Dump(jobs=views, orphans=orphans, trail=trail, whole_trail=whole)


def _pairs(flat: Sequence[bytes]) -> dict[str, bytes]:
    return {flat[at].decode(): flat[at + 1] for at in range(0, len(flat), 2)}


def _open_up(blob: bytes) -> tuple[bytes, bytes]:
    """A record, and a short result behind it, whose length is told by the last two bytes."""
    end = len(blob) - 2
    cut = end - int.from_bytes(blob[end:])
    return blob[:cut], blob[cut:end]


def _places(
    jobs: Mapping[str, bytes], line: Sequence[bytes], sets: Mapping[str, Sequence[bytes]]
) -> tuple[dict[str, list[str]], list[str]]:
    """Find where each job sits, and entries that belong to none."""
    places: dict[str, list[str]] = {job_id: [] for job_id in jobs}
    orphans = []
    for entry in line:
        ticket, _, job_id = entry.decode().partition(":")
        # An entry with another ticket than the record's is stale, by design.
        if job_id in jobs and codec.unpack(jobs[job_id])[1] == int(ticket):
            places[job_id].append("waiting")
    for place, members in sets.items():
        for raw in members:
            if (job_id := raw.decode()) in places:
                places[job_id].append(place)
            else:
                orphans.append(f"{job_id}: in {place}, without a record")
    return places, orphans


def _view(
    job_id: str, record: Sequence[Any], blob: bytes, result: bytes | None, places: Sequence[str]
) -> JobView:
    state = _WORDS[record[0]]
    value: object = None
    failure = ""
    if state == "completed" and result is not None:
        value = json.loads(result)
    elif state == "failed" and result is not None:
        failure = ": ".join(str(part) for part in codec.unpack(result)[:2])
    try:
        attempts = codec.unpack_spec(job_id, blob).terms.attempts
    except Exception:  # garbage that a test put there
        attempts = 1
    return JobView(
        id=job_id,
        label=job_id,
        state=state,
        places=places,
        attempts=attempts,
        made=record[3],
        started=record[4],
        stalls=record[5],
        owner=str(record[8]).partition("\n")[0] if record[8] else None,
        result=value,
        failure=failure,
    )
