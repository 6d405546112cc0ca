"""Let a scheduler make its next job when one of its jobs is handed out.

On this wire nobody watches the clock for a scheduler: each of its jobs, when it starts, adds the
one after it. A worker that does not do so stops the scheduler for the whole fleet.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo

from toril.storage.bullmq import codec
from toril.storage.bullmq.keys import Keys
from toril.storage.bullmq.link import Link
from toril.storage.bullmq.scripts import Command, call

_log = logging.getLogger("toril.bullmq")

_LEGACY_PARTS: Final = 5
"""From so many parts between colons on a key is one that older versions made of its options."""

_ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@hourly": "0 * * * *",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The run of a scheduler that a job is."""

    job_id: str
    name: str
    data: bytes
    options: dict[str, Any]
    key: str
    now_ms: int

    @property
    def repeat(self) -> Mapping[str, Any]:
        """How it repeats."""
        found = self.options.get("repeat")
        return found if isinstance(found, dict) else {}

    @property
    def count(self) -> int:
        """The number of the next run."""
        return int(self.repeat.get("count") or 0) + 1

    @property
    def base_ms(self) -> int:
        """The time the next run comes after."""
        return max(self.now_ms, int(self.options.get("prevMillis") or 0))

    def is_over(self) -> bool:
        """Whether this was the last run."""
        limit, end_ms = self.repeat.get("limit"), to_ms(self.repeat.get("endDate"))
        return (limit is not None and self.count > limit) or (
            end_ms is not None and self.now_ms > end_ms
        )

    def by_pattern(self, pattern: str) -> int:
        """When the next run by a cron pattern is due."""
        start_ms = max(self.base_ms, to_ms(self.repeat.get("startDate")) or 0)
        return max(self.base_ms, next_by_cron(pattern, start_ms, self.repeat.get("tz")))


class Repeats(Link):
    """Carries schedulers on, as Node's workers do."""

    async def carry_on(self, queue: str, job_id: str, fields: Mapping[bytes, bytes]) -> None:
        """Add the job after this one; a scheduler that cannot be read stops with a warning."""
        run = Run(
            job_id=job_id,
            name=fields.get(b"name", b"").decode(errors="replace"),
            data=fields.get(b"data", b"{}"),
            options=codec.read_options(fields),
            key=fields[b"rjk"].decode(),
            now_ms=await self.now(queue),
        )
        try:
            if run.is_over():
                return
            if run.key.count(":") + 1 < _LEGACY_PARTS:
                await self._next_run(queue, run)
            else:
                await self._next_legacy_run(queue, run)
        except (ValueError, TypeError) as error:
            _log.warning("scheduler %r of queue %r stops here: %s", run.key, queue, error)

    async def _next_run(self, queue: str, run: Run) -> None:
        command = scheduler_command(self.keys(queue), run)
        if command is not None:
            await self.pipe(queue, [command])

    async def _next_legacy_run(self, queue: str, run: Run) -> None:
        """Move a repeatable of older versions on, then add its job."""
        keys = self.keys(queue)
        next_ms = legacy_next(run)
        legacy = legacy_key(run)
        fresh = str(run.repeat.get("key") or _md5(legacy))
        (found,) = await self.pipe(
            queue, [call("updateRepeatableJobMillis", keys, next_ms, fresh, legacy)]
        )
        key = found.decode()
        if key:  # else somebody removed it
            await self.pipe(queue, [legacy_command(keys, run, key, next_ms)])


def scheduler_command(keys: Keys, run: Run) -> Command | None:
    """Write the command that adds the next job of a scheduler; None if it says no time."""
    pattern, every = run.repeat.get("pattern"), run.repeat.get("every")
    if not pattern and not every:
        return None
    next_ms = run.by_pattern(str(pattern)) if pattern else None
    repeat = {name: value for name, value in run.repeat.items() if name != "immediately"}
    repeat |= {
        "count": run.count,
        "offset": None,
        "startDate": to_ms(run.repeat.get("startDate")),
        "endDate": to_ms(run.repeat.get("endDate")),
    }
    options = {
        "attempts": 0,
        **run.options,
        "repeat": repeat,
        "jobId": f"repeat:{run.key}:{next_ms}",
        "delay": max(0, (next_ms or 0) - run.now_ms),
        "timestamp": run.now_ms,
        "prevMillis": next_ms,
        "repeatJobKey": run.key,
    }
    return call(
        "updateJobScheduler",
        keys,
        "" if next_ms is None else next_ms,
        *(run.key, run.data, codec.pack(options), run.now_ms, keys.base, run.job_id),
        job_id=run.job_id,
    )


def legacy_key(run: Run) -> str:
    """The key that older versions make of a repeatable's options."""
    repeat = run.repeat
    end_ms = to_ms(repeat.get("endDate"))
    how = _pattern(repeat) or str(repeat.get("every"))
    parts = (run.name, repeat.get("jobId") or "", end_ms or "", repeat.get("tz") or "", how)
    return ":".join(str(part) for part in parts)


def legacy_next(run: Run) -> int:
    """When the next job of a repeatable is due."""
    every = run.repeat.get("every")
    if every:
        slot = run.base_ms // int(every) * int(every)
        return slot if run.repeat.get("immediately") else slot + int(every)
    return run.by_pattern(str(_pattern(run.repeat)))


def legacy_command(keys: Keys, run: Run, key: str, next_ms: int) -> Command:
    """Write the command that adds the next job of a repeatable."""
    job_id = f"repeat:{_legacy_id(run, key)}:{next_ms}"
    repeat = {name: value for name, value in run.repeat.items() if name != "immediately"}
    delay = max(0, next_ms + int(repeat.get("offset") or 0) - run.now_ms)
    options = {
        **run.options,
        "repeat": {**repeat, "count": run.count},
        "jobId": job_id,
        "delay": delay,
        "timestamp": run.now_ms,
        "prevMillis": next_ms,
    }
    head = codec.pack(
        [keys.base, job_id, run.name, run.now_ms, None, None, None, key, None],
    )
    name = "addDelayedJob" if delay else "addStandardJob"
    if not delay and run.options.get("priority"):
        name = "addPrioritizedJob"
    return call(name, keys, head, run.data, codec.pack(options))


def _legacy_id(run: Run, key: str) -> str:
    if key.count(":") < 2:
        return key
    try:
        data = json.loads(run.data)
    except ValueError:
        data = None
    own = data.get("id") if isinstance(data, dict) else None
    return _md5(f"{run.name}{own or ''}{_md5(key)}")


def _pattern(repeat: Mapping[str, Any]) -> object:
    return repeat.get("pattern") or repeat.get("cron")


def _md5(text: str) -> str:
    # A name on the wire, not a secret.
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def to_ms(value: object) -> int | None:
    """Read a date as Node stores it: milliseconds, or ISO 8601."""
    if value is None or value == "":
        return None
    if isinstance(value, int | float):
        return int(value)
    text = str(value)
    if text.lstrip("-").isdecimal():
        return int(text)
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def next_by_cron(pattern: str, after_ms: int, zone: object) -> int:
    """The first moment of a cron pattern after a time, with or without a field for seconds."""
    from cronsim import CronSim, CronSimError

    after = datetime.fromtimestamp(after_ms / 1000, _zone(zone))
    text = _ALIASES.get(pattern.strip(), pattern).replace("?", "*")
    try:
        found = next(CronSim(text, after), None)
    except CronSimError as error:
        raise ValueError(f"cron pattern {pattern!r}: {error}") from None
    if found is None:
        raise ValueError(f"cron pattern {pattern!r} never comes")
    return round(found.timestamp() * 1000)


def _zone(name: object) -> tzinfo:
    if not name:
        # Node takes the zone of its machine.
        local = datetime.now().astimezone().tzinfo
        assert local is not None
        return local
    try:
        return ZoneInfo(str(name))
    except (LookupError, OSError):
        raise ValueError(f"time zone {name!r} is unknown here") from None
