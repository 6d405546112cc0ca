"""Make up what queues may have done: events of many jobs, as the storages tell them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from toril.spark.schema import EVENTS, GAP, ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Told = dict[str, object]
"""One event: the columns of `EVENTS`, with `time_ms` for `time`; what is missing is None."""

START_MS: Final = 1_790_000_000_000
REASONS: Final = (
    "ValueError: order 17 has no line 3",
    "ValueError: order 18 has no line 4",
    "OSError: [Errno 2] No such file: '/var/data/in/7.csv'",
    "TimeoutError: GET https://example.org/a?b=1 took 30.5 s",
    "KeyError: 'total'",
    "no luck today\nTraceback: line 5",
)
_STEPS: Final = (0, 1, 40, 999, 1_000, 61_000, 200_000)


class Story:
    """One job as it goes through a queue; `wire` is the BullMQ wire, which tells less."""

    def __init__(self, chance: Random, queue: str, job_id: str, wire: bool) -> None:
        self.chance = chance
        self.queue = queue
        self.job_id = job_id
        self.wire = wire
        self.now = START_MS + chance.randrange(3_600_000)
        self.made = 0
        self.worker: str | None = None
        self.told: list[Told] = []

    def tell(self, kind: str, attempt: int | None = None, **fields: object) -> None:
        """Let something happen, now or a little later."""
        event: Told = {"kind": kind, "time_ms": self.now, "job_id": self.job_id, **fields}
        if not self.wire:
            event |= {"job_name": "mail", "attempt": attempt, "worker_id": self.worker}
        elif kind == "added":
            event["job_name"] = "mail"
        self.told.append({"queue": self.queue, **event})

    def go_on(self) -> None:
        """Let time pass."""
        self.now += self.chance.choice(_STEPS)

    def live(self) -> list[Told]:
        """Go through one life or several."""
        for _ in range(self.chance.choice((1, 1, 1, 2))):
            self.made, self.worker = 0, None
            self._enter()
            while self._pend() and self._run():
                pass
            self.go_on()
            if self.chance.random() < 0.2:
                self.tell("duplicated", self.made)
            self.go_on()
        return self.told

    def _enter(self) -> None:
        self.tell("added", 0)
        if self.wire and self.chance.random() < 0.1:
            self.tell("waiting-children")
            self.go_on()
            if self.chance.random() < 0.2:
                self.tell("failed", prev="waiting-children", reason="child failed")
                return
            self.tell("waiting", prev="waiting-children")
            return
        self._line_up(self.chance.choice((0, 0, 0, 500, 70_000)))

    def _line_up(self, delay_ms: int, prev: str | None = None) -> None:
        if delay_ms:
            self.tell("delayed", self.made, delay_ms=delay_ms, prev=None if self.wire else prev)
        else:
            self.tell("waiting", self.made, prev=prev)

    def _pend(self) -> bool:
        """Wait in line; False where that was the end."""
        last = self.told[-1]
        if last["kind"] == "failed":
            return False
        self.go_on()
        fate = self.chance.random()
        if fate < 0.03:
            return False
        if fate < 0.08:
            self.tell("cancelled", self.made, prev="waiting")
            if self.wire:
                self.tell("removed", prev="waiting")
            return False
        if fate < 0.11:
            self.tell("removed", self.made, prev="delayed")
            return False
        if last["kind"] == "delayed":
            if fate < 0.2:
                self._line_up(30_000, "delayed")
                self.go_on()
            self.tell("waiting", self.made, prev="delayed")
            if fate < 0.4:
                self.go_on()
        return True

    def _run(self) -> bool:
        """Run once; False where that was the end."""
        self.worker = self.chance.choice(("w1", "w2", "w3"))
        attempt = self.made + 1
        started = self.now
        self.tell("active", attempt, prev="waiting")
        self.go_on()
        if self.chance.random() < 0.2:
            self.tell("progress", attempt, progress="5")
        spent: Told = {} if self.wire else {"duration_ms": self.now - started}
        reason = self.chance.choice(REASONS)
        fate = self.chance.random()
        if fate < 0.45:
            self.made += 1
            self.tell("completed", self.made, prev="active", result_size=4, **spent)
            return self._afterwards("completed")
        if fate < 0.6:
            self._retry(reason)
        elif fate < 0.75:
            self.made += 1
            self.tell("failed", self.made, prev="active", reason=reason, **spent)
            self.tell("retries-exhausted", self.made)
            return self._afterwards("failed")
        elif fate < 0.85:
            return self._stall(attempt)
        elif fate < 0.9:
            self._line_up(self.chance.choice((0, 1_500)), "active")
        elif fate < 0.95:
            self.tell("failed", attempt, prev="active", reason=self._cancelled(), **spent)
            return False
        else:
            return False
        return True

    def _retry(self, reason: str) -> None:
        self.made += 1
        delay_ms = self.chance.choice((0, 2_000))
        if self.wire:
            self.tell("retrying", delay_ms=delay_ms)
        else:
            self.tell("retrying", self.made + 1, reason=reason, delay_ms=delay_ms)
        self._line_up(delay_ms, "active")

    def _stall(self, attempt: int) -> bool:
        if self.wire:
            self.tell("waiting", prev="active")
            self.tell("stalled")
            return True
        self.tell("stalled", attempt)
        if self.chance.random() < 0.3:
            self.tell("failed", self.made, prev="active", reason="JobStalled: stalled 2 times")
            return self._afterwards("failed")
        self.tell("waiting", self.made, prev="active")
        return True

    def _cancelled(self) -> str:
        reason = f"job '{self.job_id}' was cancelled while it ran"
        return reason if self.wire else f"JobCancelled: {reason}"

    def _afterwards(self, state: str) -> bool:
        """Remove or revive a finished job; True where it is in line again."""
        fate = self.chance.random()
        if fate < 0.2:
            self.go_on()
            self.tell("removed", self.made, prev=state)
        elif fate < 0.35:
            self.go_on()
            self.made = 0
            self.tell("waiting", self.made, prev=state)
            return True
        return False


def make_events(chance: Random, jobs: int, queues: Sequence[str] = ("lean", "bull")) -> list[Told]:
    """Make the events of many jobs; queues named `bull…` are on the BullMQ wire.

    Every fourth job misses some of its events, every tenth had its clock set back.
    """
    events: list[Told] = []
    for queue in queues:
        told: list[tuple[Told, ...]] = []
        for number in range(jobs):
            story = Story(chance, queue, f"job-{number}", queue.startswith("bull"))
            together = list(_together(story.live()))
            if number % 4 == 0:
                together = [some for some in together if chance.random() > 0.3]
            told += together
        told.sort(key=lambda some: int(str(some[0]["time_ms"])))
        told.insert(len(told) // 2, ({"kind": GAP, "count": 7, "time_ms": START_MS + 900_000},))
        told.append(({"kind": "drained", "time_ms": START_MS + 4_000_000},))
        for number, some in enumerate(told, 100):
            events += [{**event, "queue": queue, "number": number} for event in some]
    for event in events:
        if chance.random() < 0.01:
            event["time_ms"] = int(str(event["time_ms"])) - 5_000
    return events


def _together(told: list[Told]) -> Iterator[tuple[Told, ...]]:
    """On the wire a retry and the event it was read from have one number."""
    at = 0
    while at < len(told):
        pair = told[at]["kind"] == "retrying" and "attempt" not in told[at]
        yield tuple(told[at : at + 1 + pair])
        at += 1 + pair


def frame_of(spark: SparkSession, events: Sequence[Told], batch: bool = False) -> DataFrame:
    """Turn events into a DataFrame as `read_bronze` gives it."""
    columns = {("time_ms" if name == "time" else name): kind for name, kind in EVENTS.items()}
    columns["time_ms"] = "bigint"
    if batch:
        columns["batch"] = "bigint"
    rows = [tuple(event.get(name) for name in columns) for event in events]
    frame = spark.createDataFrame(rows, ddl(columns))
    names = [*EVENTS, "batch"] if batch else [*EVENTS]
    return frame.selectExpr(
        *("timestamp_millis(time_ms) AS time" if name == "time" else f"`{name}`" for name in names)
    )


def rows_of(frame: DataFrame) -> list[tuple[object, ...]]:
    """Collect rows, sorted, with times in ms: those of Python are in the machine's zone."""
    chosen = [
        f"unix_millis(`{field.name}`)"
        if field.dataType.simpleString() == "timestamp"
        else f"`{field.name}`"
        for field in frame.schema.fields
    ]
    return sorted((tuple(row) for row in frame.selectExpr(*chosen).collect()), key=repr)
