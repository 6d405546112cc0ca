"""The dumper must see every difference, and nothing that is none."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import redis

from tests.bullmq.dump import Dump, Dumper
from tests.bullmq.golden import play_on_node
from tests.bullmq.peer import Agent
from tests.bullmq.scenarios import SCENARIOS
from tests.servers import Server

pytestmark = pytest.mark.node

NOW_MS = 1_800_000_000_000


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    client = redis.Redis(port=server.port)
    yield client
    client.close()


@pytest.fixture
def dumper(server: Server) -> Iterator[Dumper]:
    dumper = Dumper(server.port, NOW_MS)
    yield dumper
    dumper.close()


def test_there_are_enough_scenarios() -> None:
    assert len(SCENARIOS) >= 60


@pytest.mark.parametrize(
    "scenario",
    [
        "a_mixed_bunch_at_once",
        "one_job_in_each_state",
        "a_doomed_parent_is_failed_by_its_worker",
        "a_scheduler_by_interval_goes_on_twice",
        "a_repeatable_of_the_oldest_kind_goes_on",
    ],
)
async def test_node_leaves_the_same_when_it_plays_a_scenario_again(
    scenario: str, agent: Agent, server: Server
) -> None:
    first = await play_on_node(scenario, agent, server.port)
    second = await play_on_node(scenario, agent, server.port)
    assert first.diff(second, "first", "second") == ""
    assert first.lines


def test_every_type_is_shown_and_times_are_relative(
    dumper: Dumper, client: redis.Redis, name: str
) -> None:
    base = f"bull:{name}:"
    client.rpush(f"{base}wait", "b", "a")
    client.sadd(f"{base}stalled", "b", "a")
    client.zadd(f"{base}prioritized", {"p": 5 * 2**32 + 7})
    client.zadd(f"{base}delayed", {"d": (NOW_MS + 60_123) * 4096 + 3})
    client.zadd(f"{base}completed", {"c": NOW_MS + 15})
    client.set(f"{base}a:lock", "secret", px=29_500)
    client.hset(f"{base}a", mapping={"opts": '{"b":1,"a":2}', "timestamp": str(NOW_MS + 1)})
    client.hset(f"{base}meta", mapping={"version": "bullmq:5.62.0", "paused": "1"})
    client.xadd(f"{base}events", {"event": "added", "jobId": "a"})
    assert dumper.dump(name).lines == (
        "0:a (hash)",
        '0:a    opts = {"a": 2, "b": 1}',
        "0:a    timestamp = <+0 s>",
        "0:a:lock (string, expires in 30 s)",
        "0:a:lock    <token>",
        "0:completed (zset)",
        "0:completed    c @ <+0 s>",
        "0:delayed (zset)",
        "0:delayed    d @ <+60 s>",
        "0:events (stream)",
        "0:events    event added, jobId a",
        "0:meta (hash)",
        "0:meta    paused = 1",
        "0:prioritized (zset)",
        "0:prioritized    p @ priority 5, number 7",
        "0:stalled (set)",
        "0:stalled    a",
        "0:stalled    b",
        "0:wait (list)",
        "0:wait    b",
        "0:wait    a",
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("RPUSH", "wait", "a", "b"), ("RPUSH", "wait", "b", "a")),
        (("ZADD", "prioritized", "4294967297", "a"), ("ZADD", "prioritized", "4294967298", "a")),
        (("SET", "pc", "1"), ("SET", "pc", "1", "PX", "60000")),
        (("HSET", "a", "data", '{"n":1}'), ("HSET", "a", "data", '{"n": 1}')),
        (("HSET", "a", "delay", "0"), ("HSET", "a", "priority", "0")),
        (("SADD", "x", "a"), ("RPUSH", "x", "a")),
        (
            ("HSET", "a", "data", "x" * 500 + "a"),
            ("HSET", "a", "data", "x" * 500 + "b"),
        ),
        (
            ("XADD", "events", "1-1", "event", "added", "jobId", "a"),
            ("XADD", "events", "1-1", "jobId", "a", "event", "added"),
        ),
    ],
    ids=["order", "score", "expiry", "bytes", "field", "type", "long", "fields of an event"],
)
def test_a_difference_is_noticed(
    first: tuple[str, ...],
    second: tuple[str, ...],
    dumper: Dumper,
    client: redis.Redis,
    name: str,
) -> None:
    dumps = []
    for queue, (verb, key, *rest) in ((f"{name}-1", first), (f"{name}-2", second)):
        client.execute_command(verb, f"bull:{queue}:{key}", *rest)  # type: ignore[no-untyped-call]
        dumps.append(dumper.dump(queue))
    assert dumps[0].diff(dumps[1], "first", "second")


def test_the_name_of_a_queue_makes_no_difference(
    dumper: Dumper, client: redis.Redis, name: str
) -> None:
    for queue in (f"{name}-1", f"{name}-2"):
        client.hset(f"bull:{queue}:a", "parentKey", f"bull:{queue}:parent")
    assert dumper.dump(f"{name}-1") == dumper.dump(f"{name}-2")


def test_what_is_torils_own_is_left_out_and_can_be_named(
    dumper: Dumper, client: redis.Redis, name: str
) -> None:
    client.set(f"bull:{name}:toril-x", "1")
    client.hset(f"bull:{name}:a", mapping={"opts": '{"toril":{"o":"1"}}', "toril-kind": "E"})
    assert dumper.dump(name).lines == ("0:a (hash)", "0:a    opts = {}")
    assert dumper.ours(name) == ["toril-x"]


def test_a_diff_names_the_sides_and_the_key() -> None:
    said = Dump(("0:wait (list)", "0:wait    a")).diff(
        Dump(("0:wait (list)", "0:wait    b")), "Node", "toril"
    )
    assert said.splitlines() == [
        "--- Node",
        "+++ toril",
        "@@ -1,2 +1,2 @@",
        " 0:wait (list)",
        "-0:wait    a",
        "+0:wait    b",
    ]


def test_the_clock_of_a_dump_is_the_beginning_of_its_run(
    server: Server, client: redis.Redis, name: str
) -> None:
    begun = int(time.time() * 1000)
    dumper = Dumper(server.port, begun)
    client.set(f"bull:{name}:stalled-check", str(begun + 30_000))
    assert dumper.dump(name).lines[-1] == "0:stalled-check    <+30 s>"
    dumper.close()
