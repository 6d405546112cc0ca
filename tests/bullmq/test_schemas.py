"""The published schemas hold for everything that Node and toril really write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import redis

from tests.bullmq.peer import Agent
from tests.bullmq.scenarios import SCENARIOS
from tests.bullmq.sides import Lab, NodeSide, Side
from tests.bullmq.toril_side import TorilSide
from tests.servers import Server
from toril.ids import ulid
from toril.storage.bullmq import BullmqStorage

pytestmark = pytest.mark.node

SCHEMAS: Final = Path(__file__).resolve().parents[2] / "docs" / "schemas"
JSON_FIELDS: Final = {"data", "opts", "progress", "returnvalue", "stacktrace", "parent"}
NUMBERS: Final = {
    *("timestamp", "delay", "priority", "processedOn", "finishedOn", "ats", "atm", "stc"),
}
KINDS: Final = {
    *("added", "waiting", "active", "progress", "completed", "failed", "delayed", "stalled"),
    *("removed", "duplicated", "deduplicated", "debounced", "retries-exhausted", "cleaned"),
    *("drained", "paused", "resumed", "waiting-children"),
}


def schema(name: str) -> Any:
    """Read a schema and check that it is one."""
    text: dict[str, Any] = json.loads((SCHEMAS / f"{name}.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(text)
    return jsonschema.Draft202012Validator(text)


def decoded(fields: dict[str, str]) -> dict[str, Any]:
    """Read the fields of a job as the schema describes them."""
    return {
        name: json.loads(value) if name in JSON_FIELDS else int(value) if name in NUMBERS else value
        for name, value in fields.items()
    }


def hashes(client: redis.Redis, queue: str) -> Iterator[dict[str, str]]:
    for key in client.scan_iter(f"bull:{queue}:*", count=1000, _type="hash"):
        found: Any = client.hgetall(key)
        if {"name", "timestamp"} <= found.keys():
            yield found


@pytest.mark.parametrize("side", ["node", "toril"])
async def test_every_job_and_event_of_every_scenario_fits(
    side: str, agent: Agent, server: Server
) -> None:
    jobs, events = schema("job"), schema("event")
    client = redis.Redis(port=server.port, decode_responses=True)
    storage = BullmqStorage(f"bullmq+redis://127.0.0.1:{server.port}")
    await storage.open()
    kinds, number = set(), 0
    for play in SCENARIOS.values():
        lab = Lab(agent, server.port, f"schema-{ulid()}")
        player: Side = NodeSide(lab) if side == "node" else TorilSide(lab, storage)
        await play(player)
        for queue in (lab.queue, lab.child_queue):
            for fields in hashes(client, queue):
                jobs.validate(decoded(fields))
                number += 1
            stream: Any = client.xrange(f"bull:{queue}:events")
            for _, entry in stream:
                events.validate(entry)
                kinds.add(entry["event"])
        await player.close()
        lab.close()
    await storage.close()
    client.close()
    assert number > len(SCENARIOS)
    assert KINDS - kinds == set()


@pytest.mark.parametrize(
    "change",
    [
        {"name": None},
        {"timestamp": 12},
        {"priority": -1},
        {"stacktrace": "text"},
        {"attemptsMade": 1},
        {"opts": {"attempts": 1, "keepLogs": 3}},
        {"opts": {"backoff": 1000}},
        {"opts": {"de": {"ttl": 5}}},
        {"opts": {"removeOnComplete": {}}},
    ],
    ids=str,
)
def test_a_job_that_is_none_is_refused(change: dict[str, Any]) -> None:
    good = {
        "name": "job",
        "data": {},
        "opts": {"attempts": 0},
        "timestamp": 1_800_000_000_000,
        "delay": 0,
        "priority": 0,
    }
    jobs = schema("job")
    jobs.validate(good)
    with pytest.raises(jsonschema.ValidationError):
        jobs.validate({**good, **change})


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"event": "added", "jobId": "a"},
        {"event": "failed", "jobId": "a", "prev": "active"},
        {"event": "delayed", "jobId": "a", "delay": "soon"},
        {"event": "drained", "jobId": "a"},
        {"event": "retry", "jobId": "a"},
    ],
    ids=str,
)
def test_an_event_that_is_none_is_refused(event: dict[str, str]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        schema("event").validate(event)
