"""Where a fleet's driver leaves orders and its tasks leave counts: jobs nobody ever claims.

The fleets of a queue share a control queue beside it. A run has one record with its order and
one per task with its counts; the payload is the value, `Edits.replace` writes it, `get` reads it.
So it works on every storage and touches no key of the queue that is worked. A record that vanishes
is made again, and none means "work on". The driver removes its records at the end, the last one
the control queue; what a driver that died left behind goes with the first fleet a day later.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from toril.errors import UnsupportedFeature
from toril.ids import NAME_LIMIT, content_id, ulid
from toril.job import JobSpec, State
from toril.serde import encode_json
from toril.spark.fleet_count import TaskCount
from toril.storage.protocol import Edits, Storage

_PREFIX: Final = "toril-fleet-"
_KEPT_MS: Final = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Work on, or stop: running jobs get `grace_s` to end (None: the worker's own)."""

    stop: bool = False
    grace_s: float | None = None


def control_queue(queue: str) -> str:
    """Name the control queue of a queue; no worker belongs on it.

    The name holds the queue's: where the two layouts of a server may not share a queue's name,
    they do not share this one either.
    """
    name = _PREFIX + queue
    return name if len(name.encode()) <= NAME_LIMIT else _PREFIX + content_id(queue)


class Board:
    """One run's records on the control queue of an open storage."""

    def __init__(self, storage: Storage, queue: str, run: str) -> None:
        if not isinstance(storage, Edits):
            raise UnsupportedFeature(
                f"storage {storage.url} cannot change the data of a job (facet Edits), which a"
                " fleet needs to be told to stop"
            )
        self._storage = storage
        self._edits: Edits = storage
        self._queue = control_queue(queue)
        self._run = run

    async def begin(self) -> None:
        """Forget runs whose driver died long ago, and order to work."""
        await self._storage.purge(self._queue, [State.WAITING], _KEPT_MS)
        await self.give(Order())

    async def give(self, order: Order) -> None:
        """Give an order to all tasks, also to those that start later."""
        await self._put("order", dataclasses.asdict(order))

    async def order(self) -> Order:
        """Read the order; where the record is gone, nobody ordered anything."""
        (found,) = await self._read(["order"])
        return Order() if found is None else Order(**found)

    async def tell(self, attempts: Sequence[TaskCount]) -> None:
        """Leave the counts of a task: its attempts, oldest first."""
        counts = [dataclasses.asdict(one) for one in attempts]
        await self._put(f"task-{attempts[-1].task}", {"attempts": counts})

    async def told(self, tasks: Sequence[int]) -> Sequence[TaskCount]:
        """Read the counts that tasks left, oldest attempt first."""
        found = await self._read([f"task-{task}" for task in tasks])
        return [TaskCount(**count) for one in found if one is not None for count in one["attempts"]]

    async def clear(self, tasks: int) -> None:
        """Remove the run's records, and the control queue if it was the last to use it."""
        ids = ["order", *(f"task-{task}" for task in range(tasks))]
        await self._storage.remove(self._queue, [f"{self._run}-{one}" for one in ids])
        if not (await self._storage.counts(self._queue)).total:
            await self._storage.destroy(self._queue)

    async def _put(self, what: str, value: dict[str, Any]) -> None:
        job_id, payload = f"{self._run}-{what}", encode_json(value)
        if not await self._edits.replace(self._queue, job_id, payload):
            spec = JobSpec(id=job_id, name="fleet", payload=payload, origin=ulid())
            await self._storage.enqueue(self._queue, [spec])

    async def _read(self, what: Sequence[str]) -> Sequence[dict[str, Any] | None]:
        records = await self._storage.get(self._queue, [f"{self._run}-{one}" for one in what])
        return [
            None if one is None else cast("dict[str, Any]", json.loads(one.spec.payload))
            for one in records
        ]
