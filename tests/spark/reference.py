"""Silver in plain Python: follow each job event by event, as a reader of the log would."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.spark.histories import Told

LINE = {"waiting", "delayed", "waiting-children"}
FINAL = {"completed", "failed"}
CANCELLED = ("JobCancelled", "was cancelled while it ran", "cancelled while it ran; its worker")


@dataclass
class Attempt:
    """One start of a job."""

    number: int
    started: int | None = None
    ended: int | None = None
    outcome: str = ""
    spent: int | None = None
    reason: str | None = None
    worker: str | None = None
    settled: bool = False

    def run_ms(self) -> int | None:
        """How long it ran, as told or by the times."""
        if self.spent is not None:
            return self.spent
        return between(self.started, self.ended)


@dataclass
class Life:
    """A job from its adding to its end."""

    begun: int
    name: str | None = None
    added: int | None = None
    ready: int | None = None
    held: bool = False
    state: str = ""
    finished: int | None = None
    removed_ms: int | None = None
    retries: int = 0
    stalls: int = 0
    reason: str | None = None
    worker: str | None = None
    seen: list[int] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Whether its end was told."""
        return self.state in {"completed", "failed", "cancelled", "removed", "gone"}


class Follower:
    """The log of one job, read once from its start."""

    def __init__(self) -> None:
        self.lives: list[Life] = []
        self.last: Told = {}

    def read(self, event: Told) -> None:
        """Take in the next event."""
        kind = str(event["kind"])
        after_end = kind == "removed" and event.get("prev") in FINAL
        if kind == "added" or not self.lives:
            if self.lives and not self.lives[-1].over:
                self.lives[-1].state = "gone"
            self.lives.append(Life(begun=int(str(event["number"]))))
        life = self.lives[-1]
        self._begin(life, event, kind)
        self._end(life, event, kind)
        self._describe(life, event, kind, after_end)
        self._move(life, event, kind)
        self.last = event

    def _begin(self, life: Life, event: Told, kind: str) -> None:
        running = self.last.get("kind") == "active"
        told = event.get("attempt")
        if kind == "active":
            self._start(life, told, event["time_ms"])
            return
        if kind == "failed" and event.get("prev") not in (None, "active"):
            return
        stalled = self.last.get("kind") == "stalled"
        handed_back = self.last.get("kind") == "waiting" and self.last.get("prev") == "active"
        missing = {
            "completed": not running,
            "retrying": not running,
            "failed": not running and not stalled,
            "stalled": not running and not handed_back,
        }
        if missing.get(kind):
            if kind == "retrying" and isinstance(told, int):
                told -= 1
            spent = event.get("duration_ms")
            started = None if spent is None else ms(event) - int(str(spent))
            self._start(life, told, started)

    @staticmethod
    def _start(life: Life, told: object, started: object) -> None:
        for attempt in life.attempts:
            attempt.outcome = attempt.outcome or "unknown"
        number = life.attempts[-1].number + 1 if life.attempts else 1
        if isinstance(told, int):
            number = max(number, told)
        life.attempts.append(Attempt(number, started if isinstance(started, int) else None))

    @staticmethod
    def _end(life: Life, event: Told, kind: str) -> None:
        if not life.attempts or kind in ("active", "added"):
            return
        attempt = life.attempts[-1]
        own = kind in ("completed", "retrying", "stalled") or (
            kind == "failed" and event.get("prev") in (None, "active")
        )
        if own and not attempt.settled:
            attempt.settled = True
            attempt.ended = ms(event)
            attempt.outcome = "retried" if kind == "retrying" else kind
            if kind == "failed" and cancelled(event):
                attempt.outcome = "cancelled"
            spent = event.get("duration_ms")
            attempt.spent = None if spent is None else int(str(spent))
        elif not attempt.outcome and not own and kind != "failed":
            if kind == "removed" and event.get("prev") in FINAL:
                attempt.outcome = "unknown"
                return
            attempt.ended = ms(event)
            attempt.outcome = "released" if kind in LINE else "cancelled"

    @staticmethod
    def _describe(life: Life, event: Told, kind: str, after_end: bool) -> None:
        if not after_end:
            life.seen.append(ms(event))
        life.name = text(event, "job_name") or life.name
        life.worker = text(event, "worker_id") or life.worker
        life.retries += kind == "retrying"
        life.stalls += kind == "stalled"
        reason = text(event, "reason") if kind in ("failed", "retrying") else None
        life.reason = reason or life.reason
        if life.attempts:
            life.attempts[-1].reason = reason or life.attempts[-1].reason
            life.attempts[-1].worker = text(event, "worker_id") or life.attempts[-1].worker
        if kind == "added":
            life.added = life.ready = ms(event)
        elif not life.attempts and life.added is not None:
            if kind in ("delayed", "waiting-children"):
                delay = event.get("delay_ms") if kind == "delayed" else None
                life.ready = None if delay is None else ms(event) + int(str(delay))
                life.held = True
            elif kind == "waiting" and life.held:
                life.ready = min(one for one in (life.ready, ms(event)) if one is not None)
                life.held = False

    @staticmethod
    def _move(life: Life, event: Told, kind: str) -> None:
        if kind == "removed":
            if life.state in ("completed", "failed", "cancelled"):
                return
            prev = event.get("prev")
            life.state = str(prev) if prev in FINAL else "removed"
            life.removed_ms = ms(event)
            life.finished = None if prev in FINAL else ms(event)
            return
        life.removed_ms = None
        life.finished = ms(event) if kind in ("completed", "failed", "cancelled") else None
        if kind == "failed" and cancelled(event):
            life.state = "cancelled"
        else:
            known = {"completed", "failed", "cancelled", "delayed", "active", "waiting-children"}
            life.state = kind if kind in known else "waiting"


def follow(events: Iterable[Told]) -> dict[tuple[str, str], list[Life]]:
    """Read the events of all jobs."""
    kinds = LINE | FINAL | {"added", "active", "retrying", "stalled", "cancelled", "removed"}
    followers: dict[tuple[str, str], Follower] = {}
    in_order = sorted(events, key=lambda one: (one["number"], one["kind"] != "retrying"))
    for event in in_order:
        if event["kind"] in kinds and event.get("job_id") is not None:
            key = (str(event["queue"]), str(event["job_id"]))
            followers.setdefault(key, Follower()).read(event)
    lives: dict[tuple[str, str], list[Life]] = {}
    for key, follower in followers.items():
        lives[key] = [life for life in follower.lives if life.seen]
        for life in lives[key]:
            for attempt in life.attempts:
                running = life.state == "active" and attempt is life.attempts[-1]
                attempt.outcome = attempt.outcome or ("running" if running else "unknown")
    return lives


def jobs(events: Iterable[Told]) -> list[tuple[Any, ...]]:
    """The rows of `silver_jobs`."""
    return sorted(
        (
            _job_row(queue, job_id, life)
            for (queue, job_id), lives in follow(events).items()
            for life in lives
        ),
        key=repr,
    )


def _job_row(queue: str, job_id: str, life: Life) -> tuple[Any, ...]:
    first = life.attempts[0] if life.attempts else None
    last = life.attempts[-1] if life.attempts else None
    first_active = first.started if first is not None and first.number == 1 else None
    unseen_end = life.state in FINAL and life.finished is None
    return (
        queue,
        job_id,
        life.name,
        life.added,
        first_active,
        last.started if last else None,
        life.finished,
        life.state,
        last.number if last else 0,
        life.stalls,
        life.retries,
        None if life.state == "completed" else life.reason,
        between(life.ready, first_active),
        last.run_ms() if last else None,
        between(life.added, life.finished),
        life.worker,
        "events",
        life.begun,
        life.ready,
        min(life.seen),
        life.removed_ms if unseen_end else max(life.seen),
    )


def attempts(events: Iterable[Told]) -> list[tuple[Any, ...]]:
    """The rows of `silver_attempts`."""
    failing = {"failed", "retried", "stalled", "cancelled"}
    return sorted(
        (
            (
                queue,
                job_id,
                life.name,
                one.number,
                one.started,
                one.ended,
                one.outcome,
                one.reason if one.outcome in failing else None,
                one.worker,
                one.run_ms(),
                life.begun,
            )
            for (queue, job_id), lives in follow(events).items()
            for life in lives
            for one in life.attempts
        ),
        key=repr,
    )


def between(start: int | None, stop: int | None) -> int | None:
    """Milliseconds from one time to another; never below none."""
    return None if start is None or stop is None else max(0, stop - start)


def cancelled(event: Told) -> bool:
    """Whether a job failed because it was cancelled while it ran."""
    return any(sign in (text(event, "reason") or "") for sign in CANCELLED)


def ms(event: Told) -> int:
    """When it happened."""
    return int(str(event["time_ms"]))


def text(event: Told, name: str) -> str | None:
    """A text of the event."""
    found = event.get(name)
    return None if found is None else str(found)
